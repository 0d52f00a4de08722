// A case on disk: `case.yaml`, one file for each model call, and the workspace that it begins with (21 §3).
import fs from 'node:fs';
import path from 'node:path';
import { stringify } from 'yaml';
import { z } from 'zod';
import type { LoggedEvent, MetisClient, Turn } from '#client/client.ts';
import { readJson } from '#core/policy/parsing/json.ts';
import { describeIssues } from '#core/policy/parsing/plain-issue.ts';
import { type Limits, WHOLE_ANSWER } from '#core/policy/parsing/text-limits.ts';
import { readYaml } from '#core/policy/parsing/yaml.ts';
import { ContentBlockSchema } from '#protocol/message.ts';
import { fromPusd, sumPusd, toPusd } from '#protocol/money.ts';
import {
  ApprovalModeSchema,
  CountSchema,
  type EffortSchema,
  OnReachedSchema,
  SessionIdSchema,
  Sha256Schema,
  UsdLimitSchema,
  UsdSchema,
} from '#protocol/scalars.ts';
import { readErrorMessage } from '#protocol/text/error-message.ts';
import { CaseApprovalSchema, CaseCallSchema, CaseStartSchema } from '#protocol/what-if/case.ts';

export const START_BUNDLE = 'start.bundle';
const FILE = 'case.yaml';
const CALLS = 'calls';
/** Of one file: `case.yaml` has every message of a person, a call what it adds to the one before it. */
const LIMITS: Limits = WHOLE_ANSWER;
const MAX_CALLS = 10_000;

/** What came of a session: of a recorded one, and of a run of its case. */
export const OutcomeSchema = z.strictObject({
  turns: z.array(z.strictObject({ status: z.string(), stop_reason: z.string().nullable() })),
  /** Names of the tools that were called, by `planner` or the task of a worker. */
  tools: z.record(z.string(), z.array(z.string())),
  /** Changed by tools, sorted. */
  files: z.array(z.string()),
  cost_usd: UsdSchema,
  final_text: z.string().nullable(),
});
export type Outcome = z.infer<typeof OutcomeSchema>;

/** Sections whose settings a model or a tool can notice; paths are of this machine. */
const SECTIONS = [
  'turn',
  'delegation',
  'workers',
  'tools',
  'tool_confirmation',
  'budgets',
  'context',
  'pattern',
  'eval',
];

export function isCaseSetting(key: string): boolean {
  return SECTIONS.includes(key.split('.', 1)[0] ?? '') && !/(?:_dir|_path|_root|\.path)$/.test(key);
}

const AssertsSchema = z
  .strictObject({
    max_cost_usd: UsdLimitSchema,
    tools: OutcomeSchema.shape.tools,
    files: OutcomeSchema.shape.files,
    final_text_matches: z.string().max(1000),
  })
  .partial();

export const CaseFileSchema = z.strictObject({
  schema_version: z.literal(1),
  session: z.strictObject({
    initial_active_model: z.string().nullable(),
    approval_mode: ApprovalModeSchema,
    max_cost_usd: UsdSchema.nullable(),
    on_reached: OnReachedSchema,
    worker: z.string().nullable(),
    confirm_above_usd: UsdSchema.nullable().default(null),
    confirm_above_workers: CountSchema.nullable().default(null),
  }),
  settings: z
    .record(z.string(), z.unknown())
    .refine((settings) => Object.keys(settings).every(isCaseSetting), `only settings of ${SECTIONS.join(', ')}`),
  routing: z.record(z.string(), z.unknown()),
  registry: z.record(z.string(), z.record(z.string(), z.unknown())),
  prices: z.record(z.string(), z.unknown()),
  turns: z
    .array(z.strictObject({ content: z.array(ContentBlockSchema).min(1), model: z.string().nullable() }))
    .min(1)
    .max(1000),
  approvals: z.array(CaseApprovalSchema),
  start: z.discriminatedUnion('kind', [
    z.strictObject({
      kind: z.literal('snapshot'),
      prefix: z.string().refine((prefix) => !prefix.split('/').includes('..'), 'must lie in the snapshot'),
    }),
    CaseStartSchema.options[1],
  ]),
  expect: OutcomeSchema.omit({ final_text: true }),
  /** What has to hold; absent = all that was recorded. */
  asserts: AssertsSchema.optional(),
});
export type CaseFile = z.infer<typeof CaseFileSchema>;

export const CaseCallFileSchema = CaseCallSchema.extend({ session_id: SessionIdSchema, key: Sha256Schema });
export type CaseCallFile = z.infer<typeof CaseCallFileSchema>;

export interface Case {
  readonly file: CaseFile;
  readonly calls: readonly CaseCallFile[];
}

/** A case that cannot be written or read; the message is for the person. */
export class CaseError extends Error {
  override readonly name = 'CaseError';
}

/**
 * Writes the whole case or nothing: the folder, which must be missing or empty, takes its name once all is written.
 * @param bundle writes the start to the file that it is given; null = the case has no files
 */
export function writeCase(dir: string, { file, calls }: Case, bundle: ((file: string) => void) | null): void {
  if (fs.existsSync(dir) && fs.readdirSync(dir).length > 0) throw new CaseError(`${dir} is not empty`);
  fs.mkdirSync(path.dirname(dir), { recursive: true });
  const draft = fs.mkdtempSync(path.join(path.dirname(dir), `.${path.basename(dir)}-`));
  try {
    fs.mkdirSync(path.join(draft, CALLS), { mode: 0o700 });
    bundle?.(path.join(draft, START_BUNDLE));
    writeFiles(draft, { file, calls });
    // Over an empty folder too.
    fs.renameSync(draft, dir);
  } catch (error) {
    fs.rmSync(draft, { recursive: true, force: true });
    throw error;
  }
}

function writeFiles(folder: string, { file, calls }: Case): void {
  const write = (name: string, text: string) => fs.writeFileSync(path.join(folder, name), text, { mode: 0o600 });
  for (const [at, call] of calls.entries())
    write(path.join(CALLS, `${String(at + 1).padStart(5, '0')}.json`), `${JSON.stringify(call, null, 1)}\n`);
  write(FILE, stringify(file));
}

export function readCase(dir: string): Case {
  const file = readCaseFile(path.join(dir, FILE), CaseFileSchema, readYaml);
  const folder = path.join(dir, CALLS);
  const names = fs.existsSync(folder) ? fs.readdirSync(folder).filter((name) => name.endsWith('.json')) : [];
  if (names.length > MAX_CALLS) throw new CaseError(`${folder} has more than ${MAX_CALLS} calls`);
  const calls = names.sort().map((name) => readCaseFile(path.join(folder, name), CaseCallFileSchema, readJson));
  return { file, calls };
}

function readCaseFile<T>(file: string, schema: z.ZodType<T>, parse: typeof readJson): T {
  let text: string;
  try {
    const found = fs.statSync(file);
    if (!found.isFile()) throw new CaseError('it is no plain file');
    if (found.size > LIMITS.bytes) throw new CaseError(`has more than ${LIMITS.bytes} bytes`);
    text = fs.readFileSync(file, 'utf8');
  } catch (error) {
    throw new CaseError(`${file} cannot be read: ${readErrorMessage(error)}`);
  }
  const read = parse(text, LIMITS);
  if (!read.ok) throw new CaseError(`${file} ${read.error}`);
  const parsed = schema.safeParse(read.value);
  if (parsed.success) return parsed.data;
  const [first] = describeIssues(parsed.error);
  throw new CaseError(`${file}: ${first?.path.join('.')}: ${first?.message}`);
}

/** An entry of the registry for a model of the case. */
export const describeRegistryModel = (model: {
  readonly tier: string | null;
  readonly can_delegate: boolean;
  readonly aliases: readonly string[];
  readonly efforts: readonly z.infer<typeof EffortSchema>[];
  readonly default_effort: string | null;
  readonly capabilities: object;
}) => ({
  adapter: 'case',
  tier: model.tier,
  can_delegate: model.can_delegate,
  aliases: [...model.aliases],
  efforts: model.efforts.length === 0 ? null : [...model.efforts],
  default_effort: model.default_effort,
  capabilities: { ...model.capabilities },
});

const PAGE = 200;

/** Oldest first. */
export async function listAllTurns(client: MetisClient, sessionId: string): Promise<readonly Turn[]> {
  const turns: Turn[] = [];
  let cursor: string | undefined;
  do {
    const page = await client.listTurns(sessionId, { limit: PAGE, cursor });
    turns.push(...page.turns);
    cursor = page.next_cursor ?? undefined;
  } while (cursor !== undefined);
  return turns.toReversed();
}

export async function readSessionOutcome(client: MetisClient, sessionId: string): Promise<Outcome> {
  const session = await client.getSession(sessionId);
  const turns = await listAllTurns(client, sessionId);
  const names = new Map([[sessionId, 'planner']]);
  const tools: Record<string, string[]> = {};
  const files = new Set<string>();
  for (const event of await listToolEvents(client, sessionId)) {
    if (event.type === 'tool.called') {
      const name = names.get(event.session_id) ?? (await nameWorker(client, event.session_id));
      names.set(event.session_id, name);
      tools[name] = [...(tools[name] ?? []), event.payload.tool_name];
    } else if (event.type === 'tool.completed') for (const file of event.payload.files_modified ?? []) files.add(file);
  }
  // Calls of one message run side by side.
  for (const list of Object.values(tools)) list.sort();
  const output = turns.at(-1)?.output ?? null;
  return {
    turns: turns.map(({ status, stop_reason }) => ({ status, stop_reason })),
    tools,
    files: [...files].sort(),
    cost_usd: fromPusd(sumPusd([session.cost_so_far_usd, session.workers_cost_usd].map(toPusd))),
    final_text: output === null || typeof output === 'string' ? output : JSON.stringify(output),
  };
}

async function nameWorker(client: MetisClient, id: string): Promise<string> {
  const { task, worker_name } = await client.getSession(id);
  return `worker: ${(task ?? worker_name ?? '').split('\n', 1)[0]}`;
}

async function listToolEvents(client: MetisClient, id: string): Promise<readonly LoggedEvent[]> {
  const events: LoggedEvent[] = [];
  let cursor: string | undefined;
  do {
    const page = await client.listEvents(id, {
      types: ['tool.called', 'tool.completed'],
      include_worker_sessions: true,
      limit: 1000,
      cursor,
    });
    events.push(...page.events);
    cursor = page.next_cursor ?? undefined;
  } while (cursor !== undefined);
  return events;
}
