// The table of every configuration key as `docs/configuration.md` shows it: names, types and defaults read off the schema.
import { z } from 'zod';
import { defaultConfig } from '#protocol/config.ts';
import { UsdLimitSchema } from '#protocol/scalars.ts';
import { CONFIG_KEYS } from './config.ts';

/** What each key is for, in a few words. */
export const CONFIG_MEANING: Readonly<Record<string, string>> = {
  'server.host': 'address to bind',
  'server.port': 'port to bind; 0 picks a free one',
  'server.auth_tokens': 'tokens that callers must send, 32 characters or more each; none = no token is needed',
  'server.tokens':
    'tokens with a name: `token_sha256` (`metis token hash`), `role`, `daily_usd`, `monthly_usd`, `workspaces`, `expires_at`',
  'server.default_share': 'what others may do with a new session: nothing, read it, or write in it',
  'server.allowed_hosts': 'further names, with or without a port, under which requests are served',
  'server.cors_allowed_origins': 'web pages of these origins may call',
  'server.workspace_roots': 'workspaces must lie below one of these; none = anywhere',
  'server.body_limit_bytes': 'largest request body',
  'server.turn_body_limit_bytes': 'largest body of a message',
  'server.rate_limit_rpm': 'requests per minute and caller; 600 unless set when other machines can reach the server',
  'approvals.own': 'whether a member may answer approvals of its own sessions',
  'retention.audit_days': 'age at which entries of the audit are deleted; null = keep all',
  'shutdown.drain_seconds': 'how long running calls and tools may continue after a stop was requested',
  'shutdown.linger_seconds':
    'the same for a node of a cluster, where it is longer: its process continues what it runs, and other nodes take everything else',
  'log.level': 'lowest level that is logged',
  'recovery.on_start': 'what a start does with interrupted turns',
  'storage.db_path': 'the database file',
  'storage.synchronous': "SQLite's own setting; `FULL` also survives a power cut without losing the last commits",
  'database.url': 'PostgreSQL in place of the file, for [several nodes](#several-nodes); null = one process on SQLite',
  'database.pool_size': 'connections for commits and reads, besides those of heartbeats and reports',
  'database.synchronous_commit': 'off = faster commits, of which a crash of PostgreSQL may lose the last moments',
  'database.start_timeout_seconds':
    'how long a start waits for PostgreSQL, and for older nodes to stop before a migration that breaks them; null = as long as it takes',
  'nats.url': 'NATS, by which other nodes see events and deltas at once; null = within 2 s, without deltas',
  'cluster.name': 'name of this cluster among those that share a NATS; first word of its subjects',
  'cluster.node_name': 'name of this node, unlike any other; null = host name and port',
  'cluster.advertise_url': 'where other nodes reach this one; null = the bound address, the host name if bound to all',
  'cluster.lease_seconds': 'a node that is silent for this long loses its sessions to other nodes',
  'cluster.max_turns': 'top-level turns that run on this node at once; null = no limit',
  'cluster.shared_roots': 'folders that are the same file system at the same path on each node that lists them',
  'cluster.local_workspaces': 'a workspace outside the shared roots is served by the node that opened its session',
  'cluster.worktree_root':
    'folder below a shared root for the worktrees of workers on several nodes; null = workers get none there',
  'trace.retention_days': 'age of the events that a prune deletes when it names no other; null = keep all',
  'registry.path': "models and adapters; the package's own serve while the default file is missing",
  'routing.global_path': 'routing rules for all workspaces',
  'routing.global_default_model': 'model of a turn that nothing else decides; null = by tier',
  'turn.max_llm_calls': 'model calls in one turn',
  'turn.max_output_tokens': 'maximum output tokens of a model call',
  'turn.timeout_seconds': 'longest turn; null = no limit',
  'delegation.max_depth': 'workers below workers, all kinds together',
  'delegation.delegate_depth': 'how deep `delegate` is offered; not above `delegation.max_depth`',
  'delegation.max_workers_per_turn': 'workers one turn may start, with those below them',
  'delegation.worker_timeout_seconds':
    'how long a worker may run, not counting time spent waiting for approval; null = no limit',
  'delegation.schema_repair_attempts': 'how often a worker may repair an answer that does not match its schema',
  'delegation.allow_costlier_fallback': 'a worker may get a more expensive model where its own cannot do the task',
  'delegation.worker_max_cost_usd': 'cap of a delegation that names none',
  'delegation.max_continuations': 'workers that may go on with one after the other',
  'delegation.conclude_at':
    'share of its time, tokens or own money at which a worker answers with what it has; null = never by itself',
  'delegation.max_background': 'workers of one turn that may run in the background at a time',
  'delegation.grace_seconds':
    'how long background workers of a turn that a limit ends may take to answer with what they have',
  'delegation.confirm_above_usd':
    'delegations of one message that may cost more together are confirmed before the first starts; null = never',
  'delegation.confirm_above_workers': 'delegations of one message that are more than this are confirmed; null = never',
  'delegation.isolation':
    'where a worker works whose call does not name it: `shared`, in the workspace; `worktree`, in a copy that is merged back; or `auto`, a copy where several of one message may write',
  'delegation.worktree_copy':
    'ignored files of the workspace that a worktree gets as copies; patterns as in `.gitignore`, such as `.env`',
  'delegation.worktree_links':
    'folders of the workspace that a worktree gets as links, or as copies by reflink, and that are never merged',
  'delegation.worktree_setup': 'command that runs once in each new worktree, at most 120 s; null = none',
  'stream.max_connections': 'open streams, all sessions together',
  'analytics.savings_baseline': 'model that savings are compared with when a query names none',
  'pricing.tables': 'price files, each over the one before; `builtin` is the shipped one',
  'pricing.free_providers': 'providers whose calls cost nothing',
  'pricing.update_url': 'where `metis prices update` fetches from without `--from`; nothing else fetches it',
  'tools.disabled': 'tools that no session gets',
  'tools.max_concurrent_per_session': 'tools of one session that run at the same time',
  'tools.timeouts.per_tool': "seconds by tool name, instead of the tool's own limit; 0 = none",
  'tools.shell.sandbox': '`required` runs commands in bubblewrap or not at all',
  'tools.shell.sandbox_network': 'a sandboxed command may use the network',
  'tools.shell.env_passthrough': 'variables that commands get besides the few harmless ones',
  'tool_confirmation.default.none': 'tools without effects: run, ask first, or refuse',
  'tool_confirmation.default.read': 'tools that read',
  'tool_confirmation.default.write': 'tools that change files',
  'tool_confirmation.default.execute': 'tools that run programs',
  'tool_confirmation.default.network': 'tools that use the network',
  'tool_confirmation.per_tool': 'the same by tool name, before the kind of effect',
  'tool_confirmation.mode': 'tool calls that need approval: request it, run without it, or refuse',
  'tool_confirmation.timeout_seconds': 'how long a request for approval waits; then it counts as rejected',
  mcp_servers: 'MCP servers by name; see [MCP servers](#mcp-servers)',
  'mcp.project_files': 'the `.mcp.json` of a workspace is read too, and starts the programs it names',
  'mcp.serve': 'MCP clients may delegate to workers at `/mcp`',
  checks: "commands by name that decide whether a worker's changes count; see [checks](workers.md#checks)",
  notify: 'receivers of webhooks; see [webhooks](#webhooks)',
  'context.base_system_prompt': 'beginning of every system prompt',
  'context.project_instruction_files': 'the first of these in a workspace is its instructions',
  'context.compaction.mode':
    'near the window: nothing, old tool results shown as one line, or old turns summarised as well',
  'context.cache_ttl.planner':
    'lifetime of cached prompts where a provider has a choice; `auto` = 1 h once a session had a pause',
  'context.cache_ttl.worker': 'the same for workers',
  'skills.global_dir': 'skills for all workspaces, a folder each',
  'providers.record': 'folder to which exchanges with providers are written; see [replay](replay.md)',
  'providers.replay': 'folder with recorded exchanges that answer instead of the providers',
  'pattern.mode': 'off = nothing is learned; suggest = routing shows the model that did well; apply = routing uses it',
  'pattern.evidence': 'scores that a cheaper model needs: verified = of checks and people; any = of heuristics too',
  'pattern.cost_weight': 'share of cost in the score of a recommendation, the rest is quality',
  'pattern.min_confidence': 'how far the best model must be ahead of the second to be recommended',
  'pattern.min_sample_size': 'turns of a model before it is recommended',
  'eval.disabled': 'finished turns and sessions get no automatic score, only ratings by users',
  'workers.generated_dir': 'folder for copies of the workers that sessions create',
  'workers.planner_allow_workers': 'named workers that a planner may call; `*` is all of its project',
  'workers.dynamic': 'planners may create workers for their session',
  'workers.allow_approve_all': 'callers may open sessions that run every tool without asking',
  'workers.creation.default_model': 'model of a created worker that names none',
  'workers.creation.default_sandboxes': 'folders of created workers',
  'workers.creation.default_attachment_policy': 'which files created workers take',
  'workers.creation.default_allow_workers': 'workers that created workers may call',
  'workers.creation.default_tool_rules': 'rules of created workers',
  'workers.creation.default_tools': 'tools of created workers, of those that their creator has',
  'gateway.credentials': "which key the provider gets: the server's, or the client's own",
  'gateway.rules_apply_to': 'calls that routing rules may send to another model than the requested one',
  'gateway.keys': 'tokens of the gateway by name, each with an optional daily cap; see [clients](doors.md)',
  'gateway.wait_seconds': 'how long a call waits for money that running calls hold',
  'gateway.min_output_tokens': 'how far a cap may lower the length of an answer',
  'gateway.unbounded': 'calls under a limit whose cost nothing in their request bounds',
  'gateway.body_limit_bytes': 'longest request of a client of the gateway',
  'gateway.max_streams': 'calls of the gateway at once; 0 switches it off',
  'gateway.record': 'folder to which exchanges of the gateway are written, content included',
  'budgets.session_default_usd': 'cap of a session that names none',
  'budgets.daily_usd': 'cap of the whole server for a day',
  'budgets.on_reached': 'at its cap, a session with its workers waits, or its turn ends',
  'budgets.warn_ratio': 'share of a cap at which the server warns',
  'budgets.show_to_model': 'results of delegations include what is left of the tightest cap',
};

const BEGIN = '<!-- keys: written by npm run gen -->';
const END = '<!-- end of keys -->';
const MAX_DEFAULT = 60;

/** `page` with the part between its two marks made anew. Throws when a mark or the meaning of a key is missing. */
export function withKeyTable(page: string): string {
  const begin = page.indexOf(BEGIN);
  const end = page.indexOf(END);
  if (begin < 0 || end < begin) throw new Error(`the page lacks ${BEGIN} or ${END}`);
  return `${page.slice(0, begin + BEGIN.length)}\n\n${writeKeyTable()}\n\n${page.slice(end)}`;
}

function writeKeyTable(): string {
  const defaults = defaultConfig('~/.metis');
  const rows = [...CONFIG_KEYS].map(([key, schema]) => {
    const meaning = CONFIG_MEANING[key];
    if (meaning === undefined) throw new Error(`${key} has no meaning in CONFIG_MEANING`);
    const value = key.split('.').reduce<unknown>((at, part) => (at as Record<string, unknown>)[part], defaults);
    return [`\`${key}\``, describeType(schema), formatDefault(value), meaning];
  });
  const table = [['Key', 'Type', 'Default', 'For'], ...rows];
  const widths = table[0]!.map((_, i) => Math.max(...table.map((row) => row[i]!.length)));
  const formatRow = (row: readonly string[]) => `| ${row.map((cell, i) => cell.padEnd(widths[i]!)).join(' | ')} |`;
  return [
    formatRow(table[0]!),
    formatRow(widths.map((width) => '-'.repeat(width))),
    ...table.slice(1).map(formatRow),
  ].join('\n');
}

function formatDefault(value: unknown): string {
  const text = JSON.stringify(value);
  if (text.length > MAX_DEFAULT) return `\`${text.slice(0, MAX_DEFAULT)}…\``;
  return `\`${text}\``;
}

function describeType(schema: z.ZodType): string {
  if (schema instanceof z.ZodNullable) return `${describeType(schema.unwrap() as z.ZodType)} or null`;
  if (schema === UsdLimitSchema) return 'US dollars as text';
  return describeJsonType(z.toJSONSchema(schema) as JsonType);
}

interface JsonType {
  readonly type?: string;
  readonly enum?: readonly unknown[];
  readonly items?: JsonType;
  readonly additionalProperties?: JsonType;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly exclusiveMinimum?: number;
}

function describeJsonType(type: JsonType): string {
  if (type.enum !== undefined) return type.enum.map((value) => `\`${value}\``).join(', ');
  if (type.type === 'array') return `list of ${describeJsonType(type.items ?? {})}s`;
  if (type.type === 'object') {
    const values = describeJsonType(type.additionalProperties ?? {});
    if (values === 'anything') return 'map';
    return `map to ${values}`;
  }
  if (type.type !== 'integer' && type.type !== 'number') return type.type ?? 'anything';
  return [type.type, ...describeRange(type)].join(' ');
}

function describeRange({ minimum, exclusiveMinimum, maximum }: JsonType): string[] {
  const range: string[] = [];
  if (exclusiveMinimum !== undefined) range.push(`above ${exclusiveMinimum}`);
  else if (minimum !== undefined) range.push(`from ${minimum}`);
  if (maximum !== undefined && maximum < Number.MAX_SAFE_INTEGER) range.push(`to ${maximum}`);
  return range;
}
