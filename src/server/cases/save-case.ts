// `metis case save`: writes what a recorded session needs to run again without a model (21 §3).
import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { toJsonLine } from '#cli/printable-text.ts';
import { askServer, printMessage, type ServerFlags, type Terminal } from '#cli/terminal.ts';
import {
  ApiError,
  createMetisClient,
  type MetisClient,
  type RecordedCase,
  type Session,
  type Turn,
} from '#client/client.ts';
import type { ServerAddress } from '#client/request.ts';
import { bodyKey } from '#models/recorded/recording.ts';
import { nameReference } from '#protocol/text/model-reference.ts';
import { scrubValue } from '#protocol/text/scrub.ts';
import { createRequestBuilder, DATA, hidePlaces, type Place, WORKSPACE } from './case-answers.ts';
import {
  type CaseCallFile,
  CaseError,
  type CaseFile,
  describeRegistryModel,
  isCaseSetting,
  listAllTurns,
  readSessionOutcome,
  writeCase,
} from './case-files.ts';

export interface SaveFlags extends Pick<ServerFlags, 'json'> {
  readonly withContent?: boolean;
}

/** Exit code: 0 written, 1 refused. */
export async function saveCase(
  terminal: Terminal,
  server: ServerAddress,
  target: { readonly session: string; readonly dir: string },
  { withContent = false, json = false }: SaveFlags,
): Promise<number> {
  const { stdout, stderr, env, cwd } = terminal;
  if (!withContent) {
    printMessage(stderr, 'a case holds prompts, answers and files of the workspace; --with-content agrees to that');
    return 1;
  }
  return askServer(terminal, server, async () => {
    const dir = path.resolve(cwd, target.dir);
    try {
      const client = createMetisClient(server);
      const { calls, ...described } = await describeCase(client, target.session);
      const { start: begun } = described;
      const start = begun.kind === 'listing' ? begun : omitPlace(begun);
      const bundle = begun.kind === 'listing' ? null : (file: string) => bundleStart(begun, file, env.PATH);
      writeCase(dir, { file: { ...described.file, start }, calls }, bundle);
      if (json) stdout.write(toJsonLine({ dir, calls: calls.length, turns: described.file.turns.length }));
      else stdout.write(`${dir}: turns ${described.file.turns.length}, model calls ${calls.length}\n`);
      return 0;
    } catch (error) {
      const isRefusal = error instanceof CaseError || (error instanceof ApiError && error.code === 'case_not_recorded');
      if (!isRefusal) throw error;
      printMessage(stderr, error.message);
      return 1;
    }
  });
}

function omitPlace({ kind, prefix }: Extract<RecordedCase['start'], { readonly kind: 'snapshot' }>) {
  return { kind, prefix };
}

/** A bundle of the one commit of the start. */
function bundleStart(
  { repository, ref }: Extract<RecordedCase['start'], { readonly kind: 'snapshot' }>,
  file: string,
  PATH: string | undefined,
): void {
  const args = [`--git-dir=${repository}`, 'bundle', 'create', '-q', file, ref];
  const { error, status, stderr } = spawnSync('git', args, { env: { PATH, LC_ALL: 'C' }, encoding: 'utf8' });
  if (error === undefined && status === 0) return;
  const problem = error?.message ?? stderr.trim();
  throw new CaseError(`the start of the session cannot be read from ${repository} on this machine: ${problem}`);
}

async function describeCase(client: MetisClient, sessionId: string) {
  const { start, messages, approvals, calls: rows } = await readRecorded(client, sessionId);
  const session = await client.getSession(sessionId);
  if (session.current_turn_id !== null) throw new CaseError(`a turn of ${sessionId} has not ended`);
  const settings = await client.getSettings();
  const places: readonly Place[] = [
    [session.workspace_path, WORKSPACE],
    [settings.data_dir, DATA],
  ];
  const calls = toCallFiles(rows, places);
  const turns = describeTurns(messages, await listAllTurns(client, sessionId));
  if (turns.length === 0) throw new CaseError(`${sessionId} has no turns`);
  const { final_text: _, ...expected } = await readSessionOutcome(client, sessionId);
  const file: Omit<CaseFile, 'start'> = {
    schema_version: 1,
    session: describeSession(session),
    settings: selectSettings(settings.settings),
    ...(await describeModels(client, session)),
    turns: hidePlaces(turns, places),
    approvals: hidePlaces(approvals, places),
    expect: hidePlaces(scrubValue(expected, []), places),
  };
  return { file, calls, start };
}

async function readRecorded(client: MetisClient, sessionId: string): Promise<RecordedCase> {
  const first = await client.getCase(sessionId);
  const calls = [...first.calls];
  for (let cursor = first.next_cursor; cursor !== null; ) {
    const page = await client.getCase(sessionId, { cursor });
    calls.push(...page.calls);
    cursor = page.next_cursor;
  }
  return { ...first, calls };
}

function toCallFiles(rows: RecordedCase['calls'], places: readonly Place[]): readonly CaseCallFile[] {
  const builders = new Map<string, ReturnType<typeof createRequestBuilder>>();
  return rows.map(({ session_id, call: stored }) => {
    const call = hidePlaces(stored, places);
    const build = builders.get(session_id) ?? createRequestBuilder();
    builders.set(session_id, build);
    return { session_id, key: bodyKey(build(call), []), ...call };
  });
}

function describeSession(session: Session): CaseFile['session'] {
  const { approval_mode, max_cost_usd, on_reached, confirm_above_usd, confirm_above_workers } = session;
  return {
    initial_active_model: session.active_model,
    approval_mode,
    max_cost_usd,
    on_reached,
    worker: session.worker_name,
    confirm_above_usd,
    confirm_above_workers,
  };
}

function selectSettings(
  settings: readonly { readonly key: string; readonly value: unknown; readonly source: string }[],
) {
  const chosen = settings.filter(({ key, source }) => source !== 'default' && isCaseSetting(key));
  return Object.fromEntries(chosen.map(({ key, value }) => [key, value]));
}

async function describeModels(client: MetisClient, session: Session) {
  const [{ models }, { table }, policy] = await Promise.all([
    client.listModels(),
    client.getPricing(),
    client.getRoutingPolicy({ workspace_path: session.workspace_path }),
  ]);
  const usable = models.filter(({ configured }) => configured);
  const names = new Set(usable.map(({ id }) => id));
  const tiers = Object.fromEntries(Object.entries(policy.tiers).filter(([, model]) => model !== null));
  const fallback = policy.workspace_default ?? policy.global_default;
  return {
    registry: Object.fromEntries(usable.map((model) => [model.id, describeRegistryModel(model)])),
    routing: { schema_version: 1, ...(fallback !== null && { global_default: fallback }), tiers },
    prices: {
      pricing_version: table.pricing_version,
      models: Object.fromEntries(Object.entries(table.models).filter(([id]) => names.has(id))),
    },
  };
}

function describeTurns(messages: RecordedCase['messages'], turns: readonly Turn[]): CaseFile['turns'] {
  return turns.map(({ id, user_message_id, chosen_model, chosen_effort }) => {
    const own = messages.filter(({ turn_id }) => turn_id === id);
    const first = own.find(({ message_id }) => message_id === user_message_id);
    if (first === undefined) throw new CaseError(`the message of turn ${id} is missing`);
    if (own.length > 1)
      throw new CaseError(`turn ${id} read a message while it ran, whose moment a case cannot repeat`);
    return {
      content: first.content,
      model: chosen_model === null ? null : nameReference(chosen_model, chosen_effort),
    };
  });
}
