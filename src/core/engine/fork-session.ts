// Forks: a new session that begins with the messages of another one, up to a point; how two sessions differ (21 §4); and purges, which forks outlive or not.
import path from 'node:path';
import type { ComparedSide, CompareReply, ForkBody, ForkReply } from '#protocol/api/fork-bodies.ts';
import { isoTime, sleep } from '#protocol/clock.ts';
import { AppError, validationError } from '#protocol/errors.ts';
import type { SessionId, TurnId } from '#protocol/ids.ts';
import { JournalConflict } from '#protocol/journal-batch.ts';
import { joinText, type StoredMessage } from '#protocol/message.ts';
import { fromPusd, fromPusdOrNull, type Pusd, sumPusd, toPusdOrNull } from '#protocol/money.ts';
import { NAMELESS_ADMIN, type Person } from '#protocol/people/person.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { promptTokens } from '#protocol/usage.ts';
import { priceContinuation } from '../policy/delegation/continuation-price.ts';
import { summariseChanges } from '../policy/delegation/worker-changes.ts';
import { promptCache } from '../policy/registry/adapter-config.ts';
import { countShared, type ForkPlace, findFirstDifference, findPrefix } from '../policy/session/fork-point.ts';
import { NOTHING_YET, sessionView } from '../policy/session/session-view.ts';
import type { Write } from '../ports/journal-writer.ts';
import { placeRoot, storeRoot } from './delegation/open-root.ts';
import { discardTree, type Placed, withClosedTree } from './delegation/worker-tree.ts';
import { type EndReply, endSession } from './manage-session.ts';
import { cacheLifetime } from './model-call/model-request.ts';
import { resolvePricingId } from './money/call-price.ts';
import { readHistory } from './session/read-history.ts';
import {
  buildBlankRoot,
  forgetStart,
  requireAllowedMode,
  requireTopLevelSession,
  resolveModel,
  resolveWorkspace,
} from './session/session-records.ts';
import { auditWrites } from './state/audit-writes.ts';
import type { Engine, ModelCatalog, Runtime, Storage } from './state/engine.ts';
import { submitTurn } from './submit-work.ts';

type Claim = (status: number, body: unknown) => Write;

/**
 * Opens a session that begins with the messages of another one; with `dry_run` it only answers what that would be. The
 * prefix is read where it is stored: no ledger row and no message is copied. Throws `not_found`, `session_is_worker`,
 * `session_is_gateway`, `invalid_fork_point`, `model_not_configured`, `workspace_not_allowed`, and with a message what
 * `submitTurn` throws; then nothing is left of the fork.
 */
export async function forkSession(
  engine: Engine,
  id: string,
  { person = NAMELESS_ADMIN, ...body }: ForkBody & { readonly person?: Person },
  claim?: Claim,
): Promise<ForkReply> {
  const origin = await requireTopLevelSession(engine, id);
  if (origin.door === 'gateway')
    throw new AppError('session_is_gateway', 'the client of a gateway session holds its messages: it cannot be forked');
  const prefix = await requirePrefix(engine, origin, body);
  const session = { ...(await buildFork(engine, origin, prefix, body)), ...ownFork(engine, origin, person) };
  const price = priceFirstCall(engine, { origin, session, prefix });
  const answer = {
    prefix_messages: prefix.length,
    model: price.model,
    first_call_usd: fromPusdOrNull(price.first_call),
    workspace_note: WORKSPACE_NOTES[body.workspace],
  };
  if (body.workspace === 'worktree') await requireWorktrees(engine, origin);
  if (body.dry_run) return { session: null, turn_id: null, ...answer };
  const turn_id = body.message === null ? null : engine.ids.turn();
  const placed = await placeFork(engine, origin, session, body);
  const reply: ForkReply = {
    session: sessionView(placed.session, { ...NOTHING_YET, owner_name: person.name }),
    turn_id,
    ...answer,
  };
  await storeFork(engine, placed, claim?.(201, reply));
  if (body.message !== null && turn_id !== null) await startFirstTurn(engine, placed.session, body.message, turn_id);
  return reply;
}

const WORKSPACE_NOTES: Readonly<Record<ForkBody['workspace'], string>> = {
  worktree: 'a copy of the workspace as it is now; files are not in the log, so not as they were at the fork point',
  current: 'the workspace as it is now; files are not in the log, so not as they were at the fork point',
  none: 'without the tools that need a workspace',
};

/** The messages that the fork begins with. Throws `not_found` or `invalid_fork_point`. */
async function requirePrefix(
  engine: Storage,
  origin: SessionRecord,
  { at_message_id, at_turn_id }: ForkBody,
): Promise<readonly StoredMessage[]> {
  const history = await readHistory(engine, origin);
  let place: ForkPlace;
  if (at_turn_id === null) place = { kind: 'message', id: at_message_id! };
  else place = { kind: 'turn', id: at_turn_id, ended: (await engine.store.turns.open(origin.id))?.id !== at_turn_id };
  const found = findPrefix(history, place);
  if (found.ok) return found.value;
  if (found.error === null)
    throw new AppError('not_found', `session ${origin.id} has no ${place.kind} ${place.id}`, { resource: place.kind });
  throw new AppError(
    'invalid_fork_point',
    'a fork begins behind a complete answer without tool calls; details name the nearest ones',
    { nearest_before: found.error.before, nearest_after: found.error.after },
  );
}

/** The record of the fork, not stored yet: prompts, worker and approvals are the original's. */
async function buildFork(
  engine: Engine,
  origin: SessionRecord,
  prefix: readonly StoredMessage[],
  { model, max_cost_usd, workspace }: ForkBody,
): Promise<SessionRecord> {
  const cut = prefix.at(-1)!;
  requireAllowedMode(engine, origin.approval_mode);
  const workspace_path =
    workspace === 'none' ? origin.workspace_path : await resolveWorkspace(engine, origin.workspace_path);
  const blank = buildBlankRoot(engine, workspace_path, origin.routing_policy_version);
  return {
    ...blank,
    workspace_hash: origin.workspace_hash,
    active_model: model === null ? origin.active_model : resolveModel(engine, model),
    system_prompt: origin.system_prompt,
    system_prompt_volatile: origin.system_prompt_volatile,
    worker_name: origin.worker_name,
    worker_digest: origin.worker_digest,
    worker_origin: origin.worker_origin,
    worker_definition: origin.worker_definition,
    allow_workers: origin.allow_workers,
    approval_mode: origin.approval_mode,
    max_cost_pusd: max_cost_usd === null ? blank.max_cost_pusd : toPusdOrNull(max_cost_usd),
    on_reached: origin.on_reached,
    forked_from_session_id: (await findHolder(engine, origin, cut)).id,
    forked_from_message_id: cut.id,
    has_workspace: workspace !== 'none' && origin.has_workspace,
  };
}

/** A fork belongs to its maker (23 §1). */
function ownFork({ config }: Pick<Runtime, 'config'>, origin: SessionRecord, { id, name }: Person) {
  const share = id === origin.owner ? origin.share : config.server.default_share;
  return { owner: id, caller: name, share } satisfies Partial<SessionRecord>;
}

/** The session that a message of a history is stored with: the session itself, or one that it was forked from. */
async function findHolder(
  { store }: Pick<Storage, 'store'>,
  session: SessionRecord,
  message: StoredMessage,
): Promise<SessionRecord> {
  const { forked_from_session_id: id } = session;
  const earlier = message.session_id === session.id || id === null ? null : await store.sessions.record(id);
  // The messages of a session that was purged are copies in the fork.
  if (earlier === null) return session;
  return findHolder({ store }, earlier, message);
}

/** What the prefix costs as input of the first call; null where the model has no price, or routing is to choose one. */
function priceFirstCall(
  engine: Runtime & ModelCatalog,
  {
    origin,
    session,
    prefix,
  }: Record<'origin' | 'session', SessionRecord> & { readonly prefix: readonly StoredMessage[] },
): { readonly model: string | null; readonly first_call: Pusd | null } {
  const { metadata, created_at } = prefix.at(-1)!;
  const { usage } = metadata;
  const reference = session.active_model ?? metadata.model;
  const model = reference === null ? null : (engine.registry.findReference(reference)?.id ?? null);
  const adapter = engine.registry.adapters.get((model && engine.registry.get(model)?.adapter) ?? '');
  if (model === null || usage === null) return { model, first_call: null };
  const isSame = model === metadata.model;
  // Thinking is not sent to another model, and other tools are another beginning.
  const unsent = isSame ? 0 : usage.reasoning_tokens;
  const mayBeCached = isSame && session.has_workspace === origin.has_workspace;
  const price = priceContinuation(
    engine.prices,
    {
      pricing_id: resolvePricingId(engine, model),
      tokens: promptTokens(usage) + usage.output_tokens - unsent,
      answered_at: mayBeCached ? Date.parse(created_at) : 0,
      cache: adapter === undefined ? null : promptCache(adapter, cacheLifetime(engine, { session, history: prefix })),
    },
    engine.clock.now(),
  );
  return { model, first_call: price === null ? null : (price.cached?.cost ?? price.uncached) };
}

/** The folder of an original that worked in a worktree goes with its end. */
function getCallerPath({ ended_at, tree_path, workspace_path }: SessionRecord): string {
  return (ended_at === null ? tree_path : null) ?? workspace_path;
}

async function requireWorktrees({ worktrees }: Pick<Engine, 'worktrees'>, origin: SessionRecord): Promise<void> {
  const obstacle = await worktrees.findObstacle(getCallerPath(origin));
  if (obstacle !== null) throw validationError([{ path: 'workspace', message: obstacle }]);
}

/** Makes the worktree, where one is asked for. Throws `validation_error` with the reason where it cannot be made. */
async function placeFork(
  engine: Engine,
  origin: SessionRecord,
  session: SessionRecord,
  { workspace }: ForkBody,
): Promise<Placed> {
  if (workspace !== 'worktree') return { session, worktree: null };
  return placeRoot(engine, session, { caller_path: getCallerPath(origin), field: 'workspace' });
}

async function storeFork(engine: Engine, placed: Placed, claimed: Write | undefined): Promise<void> {
  try {
    await storeRoot(engine, placed, claimed === undefined ? [] : [claimed]);
  } catch (error) {
    if (!(error instanceof JournalConflict && error.code === 'session_ended')) throw error;
    const gone = placed.session.forked_from_session_id;
    throw new AppError('not_found', `no session with id ${gone}`, { resource: 'session' });
  }
}

/** Starts the fork's first turn; a fork whose message cannot be taken is removed. */
async function startFirstTurn(
  engine: Engine,
  { id, owner }: SessionRecord,
  content: string,
  turn_id: TurnId,
): Promise<void> {
  try {
    await submitTurn(engine, id, {
      content,
      per_message_override: null,
      if_busy: 'reject',
      turn_id,
      submitted_by: owner,
    });
  } catch (error) {
    await purgeSession(engine, id);
    throw error;
  }
}

/** Throws `not_found`, `session_is_worker`, `validation_error`. */
export async function compareSessions(engine: Engine, first: string, second: string): Promise<CompareReply> {
  const [a, b] = [await requireTopLevelSession(engine, first), await requireTopLevelSession(engine, second)];
  if (a.id === b.id) throw validationError([{ path: 'with', message: 'must be another session' }]);
  const [messagesOfA, messagesOfB] = [await readHistory(engine, a), await readHistory(engine, b)];
  const count = countShared(messagesOfA, messagesOfB);
  const shared = messagesOfA.slice(0, count);
  const [ownOfA, ownOfB] = [messagesOfA.slice(count), messagesOfB.slice(count)];
  return {
    shared: { messages: count, ...(await sumShared(engine, shared)) },
    a: await describeSide(engine, a, { shared, own: ownOfA }),
    b: await describeSide(engine, b, { shared, own: ownOfB }),
    first_difference: findFirstDifference(ownOfA, ownOfB),
  };
}

/** The calls behind the shared messages, each in the session that made it. */
async function sumShared(
  { store }: Pick<Storage, 'store'>,
  shared: readonly StoredMessage[],
): Promise<Pick<CompareReply['shared'], 'calls' | 'cost_usd'>> {
  const holders = [...new Set(shared.map(({ session_id }) => session_id))];
  const sums = await Promise.all(
    holders.map(async (id) => {
      const until = await findLastCall({ store }, id, shared);
      return store.comparisons.sumCalls(id, null, until ?? '');
    }),
  );
  return {
    calls: sums.reduce((sum, { calls }) => sum + calls, 0),
    cost_usd: fromPusd(sumPusd(sums.map(({ cost_pusd }) => cost_pusd))),
  };
}

/** The call that wrote the last of these messages that the session holds; null where it holds none. */
async function findLastCall(
  { store }: Pick<Storage, 'store'>,
  id: SessionId,
  messages: readonly StoredMessage[],
): Promise<string | null> {
  const last = messages.findLast(({ session_id, role }) => session_id === id && role === 'assistant');
  if (last === undefined) return null;
  return store.comparisons.callOfMessage(id, last.id);
}

async function describeSide(
  { store }: Pick<Storage, 'store'>,
  { id }: SessionRecord,
  { shared, own }: Record<'shared' | 'own', readonly StoredMessage[]>,
): Promise<ComparedSide> {
  const after = await findLastCall({ store }, id, shared);
  const [sums, work, changes] = await Promise.all([
    store.comparisons.sumCalls(id, after, null),
    store.comparisons.countWork(id, after),
    store.comparisons.changes(id, after),
  ]);
  const answers = own.filter(({ role, metadata }) => role === 'assistant' && metadata.status === 'complete');
  const last = answers.at(-1);
  return {
    session_id: id,
    model: last?.metadata.model ?? null,
    calls: sums.calls,
    ...work,
    input_tokens: sums.input_tokens,
    output_tokens: sums.output_tokens,
    cost_usd: fromPusd(sums.cost_pusd),
    changed_files: summariseChanges(changes, () => []).changed_files,
    final_text: last === undefined ? null : joinText(last.content),
  };
}

// Purges (01 §7.4).

/** Ends a session that another node may hold. Throws `node_unavailable` where that fails. */
export type EndElsewhere = (session: SessionId) => Promise<void>;

/** A fork can be made, or be ending, while the original is purged. */
const MOST_ROUNDS = 20;
const BETWEEN_ROUNDS_MS = 100;

/**
 * Ends the session if needed, then removes it and every descendant; the ledger stays (01 §7.4). Forks of other owners end
 * first (23 §4): while one is open, nothing is removed.
 * @param endElsewhere null on a single server
 */
export async function purgeSession(
  engine: Engine,
  id: string,
  actor: Person = NAMELESS_ADMIN,
  endElsewhere: EndElsewhere | null = null,
): Promise<EndReply & { readonly purged: true; readonly purged_session_count: number }> {
  const session = await requireTopLevelSession(engine, id);
  await engine.library.dropCopies(path.join(engine.config.workers.generated_dir, session.id)).catch((err: unknown) => {
    engine.log.warn({ err, session_id: session.id }, 'copies of created workers could not be removed');
  });
  const ended =
    session.ended_at === null ? await endSession(engine, id, actor) : { ended_at: isoTime(session.ended_at) };
  const end = endElsewhere ?? ((fork: SessionId) => endSession(engine, fork, actor));
  await endForeignForks(engine, session.id, end);
  const worktrees = await engine.store.worktrees.list(session.id);
  // While the rows lead to them. Each row goes with its worktree, so that a request that waited finds nothing to apply.
  for (const worktree of worktrees)
    await withClosedTree(engine, worktree, async () => {
      await discardTree(engine, worktree);
      const { session_id } = worktree;
      await engine.journal.commit({ writes: [{ kind: 'worktree.remove', session_id }], emit: [] });
    });
  await forgetStart(engine, session, await engine.store.cases.start(session.id));
  const { owner, share } = session;
  const noted = auditWrites(engine, actor, 'session.purged', { subject: session.id, details: { owner, share } });
  if (noted.length > 0) await engine.journal.commit({ writes: noted, emit: [] });
  const purged_session_count = await removeRows(engine, session.id, end);
  engine.recommender?.forget(session.workspace_path);
  await engine.forecasts?.refresh();
  return { id: session.id, ended_at: ended.ended_at, purged: true, purged_session_count };
}

async function removeRows(engine: Engine, id: SessionId, end: (fork: SessionId) => Promise<unknown>): Promise<number> {
  for (let round = 1; ; round += 1) {
    try {
      return await engine.journal.purge(id);
    } catch (error) {
      if (!(error instanceof JournalConflict && error.code === 'fork_open')) throw error;
      if (round === MOST_ROUNDS) throw new AppError('node_unavailable', `${error.message}; purge the session again`);
      await sleep(engine.clock, BETWEEN_ROUNDS_MS);
      await endForeignForks(engine, id, end);
    }
  }
}

/** A fork of another owner ends with its original, whose messages it loses. */
async function endForeignForks(
  engine: Engine,
  origin: SessionId,
  end: (fork: SessionId) => Promise<unknown>,
): Promise<void> {
  for (const fork of await engine.store.sessions.foreignForks(origin)) {
    try {
      await end(fork);
    } catch (error) {
      // It is ending already.
      if (!(error instanceof AppError && error.code === 'session_already_ended')) throw error;
    }
  }
}
