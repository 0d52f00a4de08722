// Every configuration key with its type, range and default (15 §2). A key that is not here does not exist.
import { z } from 'zod';
import { ChecksSchema } from './check.ts';
import type { EventType } from './event.ts';
import { IsolationSchema, WorktreeSettingsSchema } from './file-change.ts';
import { PatternConfigSchema } from './learned-pattern.ts';
import { McpServerNameSchema, McpServerSchema } from './mcp.ts';
import { FileTokenSchema, ShareSchema, TokenNameSchema } from './people/person.ts';
import { ApprovalModeSchema, OnReachedSchema, Sha256Schema, UsdLimitSchema } from './scalars.ts';

// Receivers of notifications, from the operator's own file (20 §7).

/** Events that receivers may subscribe to. All other events are on the streams alone. */
export const NOTIFIED_EVENTS = [
  'turn.completed',
  'turn.failed',
  'turn.cancelled',
  'tool.confirmation_requested',
  'tool.confirmation_resolved',
  'budget.warning',
  'budget.exceeded',
  'delegate.failed',
  'session.ended',
] as const satisfies readonly EventType[];

/** What `isPlainUrl` requires. */
export const PLAIN_URL = 'must be an http or https URL without user and password';

const ReceiverSchema = z.strictObject({
  url: z.string().refine(isPlainUrl, PLAIN_URL),
  events: z.array(z.enum(NOTIFIED_EVENTS)).min(1),
  /** The variable that holds the key of the signature. */
  secret_env: z.string().min(1).nullable().default(null),
  /** Also sends events of workers. Approval requests of workers are sent in any case. */
  include_workers: z.boolean().default(false),
});
export type Receiver = z.infer<typeof ReceiverSchema>;

export const NotifySchema = z
  .array(ReceiverSchema)
  .max(10)
  .refine(
    (all) => new Set(all.map(({ url }) => (URL.canParse(url) ? new URL(url).href : url))).size === all.length,
    'names a URL twice; list its events once',
  );

export function isPlainUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, username, password } = new URL(text);
  return (protocol === 'https:' || protocol === 'http:') && username === '' && password === '';
}

// Settings of the gateway: whose credentials, which keys, how long a call waits for money (19 §6).

const MAX_WAIT_SECONDS = 3600;

const GatewayKeySchema = z.strictObject({
  token_sha256: Sha256Schema,
  daily_usd: UsdLimitSchema.nullable().default(null),
});

const GatewaySchema = z.strictObject({
  credentials: z.enum(['server', 'client']),
  rules_apply_to: z.enum(['none', 'workers', 'all']),
  /** By the name that sessions bear as their `caller`. */
  keys: z.record(TokenNameSchema, GatewayKeySchema),
  wait_seconds: z.int().min(0).max(MAX_WAIT_SECONDS),
  min_output_tokens: z.int().min(1),
  /** Calls whose cost nothing in their request bounds, under a limit. */
  unbounded: z.enum(['allow', 'refuse']),
  body_limit_bytes: z.int().min(1),
  /** 0 switches the gateway off. */
  max_streams: z.int().min(0),
  record: z.string().min(1).nullable(),
});

// Several nodes on one PostgreSQL: where it is, how this node is called and reached (16 §11).

const MIN_LEASE_SECONDS = 3;
const MAX_LEASE_SECONDS = 120;

function parseUrl(protocols: readonly string[], example: string) {
  return z
    .string()
    .refine((text) => !isTorn(text), {
      message: 'must have "/", "#" and "?" of its password written as %2F, %23 and %3F',
      abort: true,
    })
    .refine(
      (text) => URL.canParse(text) && protocols.includes(new URL(text).protocol),
      `must be a URL like ${example}`,
    );
}

/** A password with one of these ends the address before its `@`: part of it would be taken for a host, a port, a path. */
function isTorn(text: string): boolean {
  const parts = /^[a-z]+:\/\/([^/?#]*)(.*)$/is.exec(text);
  return parts !== null && !parts[1]!.includes('@') && /^[^?]*@|\?[^=]*@/.test(parts[2]!);
}

const DatabaseSchema = z.strictObject({
  /** Null = SQLite, one process; else the switch to cluster mode. */
  url: parseUrl(['postgres:', 'postgresql:'], 'postgres://user:password@host:5432/database').nullable(),
  pool_size: z.int().min(2).max(1000),
  synchronous_commit: z.enum(['on', 'off']),
  start_timeout_seconds: z.number().min(0).max(86_400).nullable(),
});

const NatsSchema = z.strictObject({
  url: parseUrl(['nats:', 'tls:'], 'nats://host:4222').nullable(),
});

const ClusterSchema = z.strictObject({
  /** A token of a NATS subject. */
  name: z.string().regex(/^[A-Za-z0-9_-]{1,64}$/, 'must be 1 to 64 letters, digits, "_" or "-"'),
  /** Null = host name and port. */
  node_name: z.string().min(1).max(200).nullable(),
  /** Null = from the bound address. */
  advertise_url: parseUrl(['http:', 'https:'], 'http://host:8420').refine(isPlainUrl, PLAIN_URL).nullable(),
  lease_seconds: z.int().min(MIN_LEASE_SECONDS).max(MAX_LEASE_SECONDS),
  max_turns: z.int().min(1).nullable(),
  /** The same on every node, so that it belongs to no folder of one. */
  shared_roots: z.array(
    z
      .string()
      .refine((text) => /^(~?[/\\]|~$|[a-z]:[/\\])/i.test(text), 'must be an absolute path, the same on every node'),
  ),
  local_workspaces: z.boolean(),
  /** Below one of the shared roots; null = workers get no worktrees. */
  worktree_root: z
    .string()
    .refine((text) => /^(~?[/\\]|~$|[a-z]:[/\\])/i.test(text), 'must be an absolute path, the same on every node')
    .nullable(),
});

const strings = z.array(z.string());
const MAX_DAYS = 36_500;
/** A century: whatever is due or cut off by it still has a time that can be written. */
const MAX_SECONDS = MAX_DAYS * 86_400;
const seconds = z.int().min(1).max(MAX_SECONDS);
const ToolModeSchema = z.enum(['auto', 'prompt', 'deny']);
export type ToolMode = z.infer<typeof ToolModeSchema>;

const CacheLifetimeSchema = z.enum(['auto', '5m', '1h']);

export const ConfigSchema = z.strictObject({
  server: z.strictObject({
    host: z.string().min(1),
    port: z.int().min(0).max(65_535),
    auth_tokens: z.array(z.string().min(32, 'must have at least 32 characters')),
    tokens: z.record(TokenNameSchema, FileTokenSchema),
    default_share: ShareSchema,
    allowed_hosts: strings,
    cors_allowed_origins: z.array(z.string().refine((o) => o !== '*', '"*" is not allowed; list each origin')),
    workspace_roots: strings,
    body_limit_bytes: z.int().min(1),
    turn_body_limit_bytes: z.int().min(1),
    rate_limit_rpm: z.int().min(1).nullable(),
  }),
  approvals: z.strictObject({ own: z.boolean() }),
  retention: z.strictObject({ audit_days: z.int().min(1).max(MAX_DAYS).nullable() }),
  shutdown: z.strictObject({
    drain_seconds: z.int().min(0).max(MAX_SECONDS),
    linger_seconds: z.int().min(0).max(MAX_SECONDS),
  }),
  log: z.strictObject({ level: z.enum(['fatal', 'error', 'warn', 'info', 'debug', 'trace']) }),
  recovery: z.strictObject({ on_start: z.enum(['resume', 'hold', 'cancel']) }),
  storage: z.strictObject({ db_path: z.string().min(1), synchronous: z.enum(['NORMAL', 'FULL']) }),
  database: DatabaseSchema,
  nats: NatsSchema,
  cluster: ClusterSchema,
  trace: z.strictObject({ retention_days: z.int().min(1).max(MAX_DAYS).nullable() }),
  registry: z.strictObject({ path: z.string().min(1) }),
  routing: z.strictObject({ global_path: z.string().min(1), global_default_model: z.string().nullable() }),
  turn: z.strictObject({
    max_llm_calls: z.int().min(1),
    max_output_tokens: z.int().min(1),
    timeout_seconds: seconds.nullable(),
  }),
  delegation: z
    .strictObject({
      max_depth: z.int().min(1).max(8),
      delegate_depth: z.int().min(1).max(8),
      max_workers_per_turn: z.int().min(1),
      worker_timeout_seconds: z.int().min(1).max(3600).nullable(),
      schema_repair_attempts: z.int().min(0).max(5),
      allow_costlier_fallback: z.boolean(),
      worker_max_cost_usd: UsdLimitSchema.nullable(),
      max_continuations: z.int().min(1),
      conclude_at: z.number().min(0.5).max(0.95).nullable(),
      max_background: z.int().min(1).max(32),
      grace_seconds: z.int().min(1).max(3600),
      confirm_above_usd: UsdLimitSchema.nullable(),
      confirm_above_workers: z.int().min(0).nullable(),
      isolation: IsolationSchema.or(z.literal('auto')),
      ...WorktreeSettingsSchema.shape,
    })
    .refine((d) => d.delegate_depth <= d.max_depth, {
      path: ['delegate_depth'],
      message: 'must not be above delegation.max_depth',
    }),
  stream: z.strictObject({ max_connections: z.int().min(1) }),
  analytics: z.strictObject({ savings_baseline: z.string().min(1) }),
  pricing: z.strictObject({
    tables: z.array(z.string().min(1)).min(1),
    free_providers: strings,
    update_url: z.string().refine(isPlainUrl, PLAIN_URL).nullable(),
  }),
  tools: z.strictObject({
    disabled: strings,
    max_concurrent_per_session: z.int().min(1),
    timeouts: z.strictObject({ per_tool: z.record(z.string(), z.number().min(0).max(MAX_SECONDS)) }),
    shell: z.strictObject({
      sandbox: z.enum(['off', 'required']),
      sandbox_network: z.boolean(),
      env_passthrough: strings,
    }),
  }),
  tool_confirmation: z.strictObject({
    default: z.strictObject({
      none: ToolModeSchema,
      read: ToolModeSchema,
      write: ToolModeSchema,
      execute: ToolModeSchema,
      network: ToolModeSchema,
    }),
    per_tool: z.record(z.string(), ToolModeSchema),
    mode: ApprovalModeSchema,
    timeout_seconds: seconds,
  }),
  mcp_servers: z.record(McpServerNameSchema, McpServerSchema),
  mcp: z.strictObject({ project_files: z.boolean(), serve: z.boolean() }),
  checks: ChecksSchema,
  notify: NotifySchema,
  context: z.strictObject({
    base_system_prompt: z.string(),
    project_instruction_files: strings,
    compaction: z.strictObject({ mode: z.enum(['off', 'elide', 'summarize']) }),
    cache_ttl: z.strictObject({ planner: CacheLifetimeSchema, worker: CacheLifetimeSchema }),
  }),
  skills: z.strictObject({ global_dir: z.string().min(1) }),
  providers: z.strictObject({ record: z.string().nullable(), replay: z.string().nullable() }),
  pattern: PatternConfigSchema,
  eval: z.strictObject({ disabled: z.boolean() }),
  workers: z.strictObject({
    generated_dir: z.string().min(1),
    planner_allow_workers: strings,
    dynamic: z.boolean(),
    allow_approve_all: z.boolean(),
    creation: z.strictObject({
      default_model: z.string().nullable(),
      default_sandboxes: z.record(z.string(), z.unknown()),
      default_attachment_policy: z.record(z.string(), z.unknown()),
      default_allow_workers: strings,
      default_tool_rules: z.record(z.string(), z.unknown()),
      default_tools: strings,
    }),
  }),
  gateway: GatewaySchema,
  budgets: z.strictObject({
    session_default_usd: UsdLimitSchema.nullable(),
    daily_usd: UsdLimitSchema.nullable(),
    on_reached: OnReachedSchema,
    warn_ratio: z.number().gt(0).max(1),
    show_to_model: z.boolean(),
  }),
});
export type Config = z.infer<typeof ConfigSchema>;

/**
 * The built-in defaults.
 * @param data the data folder that replaces `~/.metis`
 */
/** Seconds for which a server that stops lets running calls and tools continue (04 §13). */
export function getDrainSeconds({ shutdown, database }: Pick<Config, 'shutdown' | 'database'>): number {
  if (database.url === null) return shutdown.drain_seconds;
  return Math.max(shutdown.drain_seconds, shutdown.linger_seconds);
}

export function defaultConfig(data: string): Config {
  return {
    server: {
      host: '127.0.0.1',
      port: 8420,
      auth_tokens: [],
      tokens: {},
      default_share: 'read',
      allowed_hosts: [],
      cors_allowed_origins: [],
      workspace_roots: [],
      body_limit_bytes: 1_048_576,
      turn_body_limit_bytes: 10_485_760,
      rate_limit_rpm: null,
    },
    approvals: { own: true },
    retention: { audit_days: 365 },
    shutdown: { drain_seconds: 10, linger_seconds: 120 },
    log: { level: 'info' },
    recovery: { on_start: 'resume' },
    storage: { db_path: `${data}/metis.db`, synchronous: 'NORMAL' },
    database: { url: null, pool_size: 10, synchronous_commit: 'on', start_timeout_seconds: null },
    nats: { url: null },
    cluster: {
      name: 'metis',
      node_name: null,
      advertise_url: null,
      lease_seconds: 15,
      max_turns: null,
      shared_roots: [],
      local_workspaces: false,
      worktree_root: null,
    },
    trace: { retention_days: 90 },
    registry: { path: `${data}/registry.yaml` },
    routing: { global_path: `${data}/routing.yaml`, global_default_model: null },
    turn: { max_llm_calls: 50, max_output_tokens: 4096, timeout_seconds: null },
    delegation: {
      max_depth: 5,
      delegate_depth: 1,
      max_workers_per_turn: 32,
      worker_timeout_seconds: 300,
      schema_repair_attempts: 2,
      allow_costlier_fallback: true,
      worker_max_cost_usd: null,
      max_continuations: 10,
      conclude_at: null,
      max_background: 8,
      grace_seconds: 30,
      confirm_above_usd: null,
      confirm_above_workers: null,
      isolation: 'shared',
      worktree_copy: [],
      worktree_links: ['node_modules', '.venv'],
      worktree_setup: null,
    },
    stream: { max_connections: 1000 },
    analytics: { savings_baseline: 'anthropic:claude-sonnet-4-6' },
    pricing: { tables: ['builtin'], free_providers: ['ollama'], update_url: null },
    tools: {
      disabled: [],
      max_concurrent_per_session: 8,
      timeouts: { per_tool: {} },
      shell: { sandbox: 'off', sandbox_network: false, env_passthrough: [] },
    },
    tool_confirmation: {
      default: { none: 'auto', read: 'auto', write: 'prompt', execute: 'prompt', network: 'prompt' },
      per_tool: { delegate: 'auto' },
      mode: 'interactive',
      timeout_seconds: 300,
    },
    mcp_servers: {},
    mcp: { project_files: false, serve: true },
    checks: {},
    notify: [],
    context: {
      base_system_prompt:
        "You are an agent in a developer's workspace. Use your tools to read, change and run what the task needs. Be concise: report what you did and found, nothing else.",
      project_instruction_files: ['AGENTS.md', 'CLAUDE.md'],
      compaction: { mode: 'elide' },
      cache_ttl: { planner: 'auto', worker: '5m' },
    },
    skills: { global_dir: `${data}/skills` },
    providers: { record: null, replay: null },
    pattern: { mode: 'suggest', evidence: 'verified', cost_weight: 0.05, min_confidence: 0.05, min_sample_size: 5 },
    eval: { disabled: false },
    workers: {
      generated_dir: `${data}/generated-workers`,
      planner_allow_workers: [],
      dynamic: false,
      allow_approve_all: false,
      creation: {
        default_model: null,
        default_sandboxes: {},
        default_attachment_policy: {},
        default_allow_workers: [],
        default_tool_rules: {
          'sandbox.read': { allowed: true, approval_required: false },
          'sandbox.write': { allowed: true, approval_required: true },
        },
        default_tools: [],
      },
    },
    gateway: {
      credentials: 'server',
      rules_apply_to: 'none',
      keys: {},
      wait_seconds: 120,
      min_output_tokens: 4096,
      unbounded: 'refuse',
      body_limit_bytes: 33_554_432,
      max_streams: 256,
      record: null,
    },
    budgets: { session_default_usd: null, daily_usd: null, on_reached: 'pause', warn_ratio: 0.8, show_to_model: true },
  };
}
