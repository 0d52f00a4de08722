// Opens, changes and ends top-level sessions (05 §3.1).
import { Cancelled } from '#protocol/abort.ts';
import { isoTime } from '#protocol/clock.ts';
import { AppError } from '#protocol/errors.ts';
import { draft } from '#protocol/event.ts';
import type { SessionId, TurnId } from '#protocol/ids.ts';
import { JournalConflict } from '#protocol/journal-batch.ts';
import { fromPusd, fromPusdOrNull, toPusd, toPusdOrNull, ZERO_PUSD } from '#protocol/money.ts';
import { NAMELESS_ADMIN, type Person, type Share } from '#protocol/people/person.ts';
import { canShare } from '#protocol/people/rights.ts';
import type { OnReached } from '#protocol/scalars.ts';
import type { Session, SessionRecord } from '#protocol/session.ts';
import type { Turn } from '#protocol/turn.ts';
import { readStructured } from '../policy/delegation/worker-outcome.ts';
import { NOTHING_YET, sessionView, viewOwnership } from '../policy/session/session-view.ts';
import type { Write } from '../ports/journal-writer.ts';
import { placeRoot, storeRoot } from './delegation/open-root.ts';
import { endOutsideDelegations } from './delegation/outside-delegation.ts';
import { closeForkTree, type Placed } from './delegation/worker-tree.ts';
import { endGatewayTree } from './gateway/client-session.ts';
import { computeLeft, forgetLimit, readReserved } from './money/budget-limits.ts';
import { wakeWaiters } from './money/reserve-money.ts';
import {
  buildSession,
  requireOpenTopLevelSession,
  requireTopLevelSession,
  resolveModel,
  resolveWorkspace,
  type SessionInput,
  sessionEndedError,
  storeWithStart,
} from './session/session-records.ts';
import { auditWrites } from './state/audit-writes.ts';
import { takeWhenFree } from './state/concurrency.ts';
import type {
  Delegations,
  Engine,
  GatewayState,
  LiveSessions,
  Runtime,
  SessionEngine,
  Storage,
  WorkspaceAccess,
} from './state/engine.ts';
import { dropDecisions, listCallingSessions } from './state/gateway-memory.ts';
import { secondsSince } from './state/memory.ts';
import { cancelRunning } from './turn/background-waits.ts';
import { endOpenTurn } from './turn/end-turn.ts';
import { resumeIfPaid } from './turn/planner-turn.ts';

type Claim = (status: number, body: unknown) => Write;

/**
 * Opens a top-level session; its row and `session.created` are one commit. If the client's name has a session already, it is
 * returned instead. Throws `not_found` (workspace), `workspace_not_allowed`, `model_not_configured`,
 * `approval_mode_not_allowed`.
 */
export async function createSession(engine: Engine, input: SessionInput, claim?: Claim): Promise<Session> {
  const { client_ref: ref = null } = input;
  if (ref === null) return openNewSession(engine, input, claim);
  const name = { caller: input.person?.name ?? '', ref };
  const known = await findClientSession(engine, name, input.workspace_path);
  if (known !== null) return known;
  try {
    return await openNewSession(engine, input, claim);
  } catch (error) {
    if (!(error instanceof JournalConflict && error.code === 'client_known')) throw error;
    // Another request opened it first.
    return (await findClientSession(engine, name, input.workspace_path))!;
  }
}

/** A client's name for a session, which is unique among those of one token. */
interface ClientName {
  readonly caller: string;
  readonly ref: string;
}

/** The tree of the session with this name. */
export async function findClientTree(engine: Engine, { caller, ref }: ClientName): Promise<SessionId | null> {
  return (await engine.store.sessions.findByClientRef(caller, ref))?.id ?? null;
}

/** The session with this name. A gateway session without a workspace gets one. */
async function findClientSession(
  engine: Runtime & Storage & WorkspaceAccess & GatewayState,
  { caller, ref }: ClientName,
  workspace: string,
): Promise<Session | null> {
  const record = await engine.store.sessions.findByClientRef(caller, ref);
  if (record === null) return null;
  if (record.ended_at === null && record.workspace_path === engine.gatewayFolder) {
    const workspace_path = await resolveWorkspace(engine, workspace);
    const at = engine.clock.now();
    const write: Write = { kind: 'session.set_workspace', session_id: record.id, workspace_path, at };
    await engine.journal.commit({ writes: [write], emit: [] });
  }
  return engine.store.sessions.view(record.id);
}

async function openNewSession(
  engine: SessionEngine & LiveSessions,
  input: SessionInput,
  claim?: Claim,
): Promise<Session> {
  const session = await buildSession(engine, input);
  const placed = await placeRun(engine, session, input.experiment?.start_path ?? null);
  const view = sessionView(placed.session, { ...NOTHING_YET, owner_name: input.person?.name ?? null });
  const claimed = claim ? [claim(201, view)] : [];
  await storeWithStart(engine, session, (noted) => storeRoot(engine, placed, [...noted, ...claimed]));
  return view;
}

/** A run of an experiment works on a copy of its own (21 §5). */
async function placeRun(engine: SessionEngine, session: SessionRecord, start: string | null): Promise<Placed> {
  if (start === null) return { session, worktree: null };
  const caller_path = await resolveWorkspace(engine, start);
  return placeRoot(engine, session, { caller_path, field: 'experiment.start_path' });
}

// Changes an open session: its sticky model and its limit (03 §4.2, 14 §1).

interface SessionPatch {
  /** Alias or id; null clears the sticky choice; absent leaves it. */
  readonly active_model?: string | null;
  readonly max_cost_usd?: string | null;
  readonly on_reached?: OnReached;
  readonly share?: Share;
  /** Id of a token. */
  readonly owner?: string | null;
}

interface PatchReply {
  readonly id: SessionId;
  readonly active_model: string | null;
  readonly swap_queued: boolean;
  readonly swap_queued_until_turn: TurnId | null;
  readonly max_cost_usd: string | null;
  readonly on_reached: OnReached;
  readonly owner?: Session['owner'];
  readonly share?: Session['share'];
}

/** Changes the sticky model (queued while a turn is open) and the limit (03 §4.2, 14 §1). */
export async function patchSession(
  engine: Engine,
  id: string,
  patch: SessionPatch,
  actor: Person = NAMELESS_ADMIN,
): Promise<PatchReply> {
  // Who sees a session can change after its end.
  const changes = Object.keys(patch).some((name) => name !== 'share' && name !== 'owner');
  const session = await (changes ? requireOpenTopLevelSession : requireTopLevelSession)(engine, id);
  const at = engine.clock.now();
  const writes: Write[] = [];
  const open = await engine.store.turns.open(session.id);
  let { model: target } = session.pending_active_model ?? { model: session.active_model };
  let queued = session.pending_active_model !== null;
  if (patch.active_model !== undefined) {
    target = patch.active_model === null ? null : resolveModel(engine, patch.active_model);
    queued = open !== null && target !== session.active_model;
    if (open === null) writes.push({ kind: 'session.set_model', session_id: session.id, model: target, at });
    else
      writes.push({
        kind: 'session.queue_model',
        session_id: session.id,
        pending: queued ? { model: target } : null,
        at,
      });
  }
  // Only the fields that were sent are written, so that a concurrent change of other fields stays.
  const { max_cost_usd, on_reached } = patch;
  if (max_cost_usd !== undefined) {
    const max_cost_pusd = toPusdOrNull(max_cost_usd);
    const change = { from: fromPusdOrNull(session.max_cost_pusd), to: max_cost_usd };
    writes.push(
      { kind: 'session.set_limit', session_id: session.id, max_cost_pusd, at },
      ...auditWrites(engine, actor, 'limit.changed', { subject: session.id, details: change }),
    );
  }
  if (on_reached !== undefined) writes.push({ kind: 'session.set_on_reached', session_id: session.id, on_reached, at });
  if (patch.share !== undefined || patch.owner !== undefined)
    writes.push(...planOwnership(engine, session, patch, actor));
  try {
    await engine.journal.commit({ writes, emit: [] });
  } catch (error) {
    if (!(error instanceof JournalConflict && error.code === 'session_ended')) throw error;
    // It ended or was purged meanwhile.
    await requireTopLevelSession(engine, id);
    throw sessionEndedError();
  }
  if (patch.active_model !== undefined && queued && (await engine.store.turns.open(session.id)) === null) {
    // The turn ended while the swap was being stored. Without this write the swap would wait for the end of the next turn.
    queued = false;
    const landed: Write = { kind: 'session.set_model', session_id: session.id, model: target, at };
    await engine.journal.commit({ writes: [landed], emit: [] });
  }
  dropDecisions(engine.gateway, session.id);
  if (max_cost_usd !== undefined) {
    // A call that waits for other calls' money may pass now; a check that read the earlier limit is repeated.
    wakeWaiters(engine.budget);
    await resumeIfPaid(engine, session.id);
  }
  const stored = (await engine.store.sessions.record(session.id)) ?? session;
  return {
    id: session.id,
    active_model: target,
    swap_queued: queued,
    swap_queued_until_turn: queued ? (open?.id ?? null) : null,
    max_cost_usd: fromPusdOrNull(stored.max_cost_pusd),
    on_reached: stored.on_reached,
    ...viewOwnership(stored, stored.owner === null ? null : (engine.people.find(stored.owner)?.name ?? null)),
  };
}

/** Throws `forbidden` for a member who is not the owner, `not_found` for an unknown owner. */
function planOwnership(
  engine: Runtime,
  session: SessionRecord,
  { share, owner: given }: SessionPatch,
  actor: Person,
): readonly Write[] {
  if (!canShare(actor, session))
    throw new AppError('forbidden', 'only the owner of the session or an admin may share it', {
      required_role: 'owner',
    });
  if (given !== undefined && actor.role !== 'admin')
    throw new AppError('forbidden', 'only an admin may give a session to another owner', { required_role: 'admin' });
  const owner = given === undefined ? undefined : resolveOwner(engine, given);
  const { id: session_id } = session;
  // As above: a change of the other field, of another request, stays.
  const change = { ...(share !== undefined && { share }), ...(owner !== undefined && { owner }) };
  const writes: Write[] = [{ kind: 'session.set_ownership', session_id, ...change, at: engine.clock.now() }];
  if (share !== undefined && share !== session.share)
    writes.push(...auditWrites(engine, actor, 'session.shared', { subject: session_id, details: { share } }));
  if (owner !== undefined && owner !== session.owner)
    writes.push(...auditWrites(engine, actor, 'session.given', { subject: session_id, details: { owner } }));
  return writes;
}

function resolveOwner({ people }: Pick<Runtime, 'people'>, given: string | null): string | null {
  if (given === null) return null;
  const id = people.findId(given);
  if (id === null) throw new AppError('not_found', `no token with id ${given}`, { resource: 'token' });
  return id;
}

// Ends a session (05 §3.1, 01 §7.2).

export interface EndReply {
  readonly id: SessionId;
  readonly ended_at: string;
}

/** Cancels the running turn, waits for its terminal event, then ends the session (05 §3.1). */
export async function endSession(
  engine: Engine,
  id: string,
  actor: Person = NAMELESS_ADMIN,
): Promise<EndReply & { readonly purged: false }> {
  const session = await requireOpenTopLevelSession(engine, id);
  if (engine.ending.has(session.id)) throw sessionEndedError();
  engine.ending.add(session.id);
  // The lock is held to the end: no turn is admitted, resumed or ended meanwhile.
  const reason = new Cancelled('user_cancel', 'session ended');
  await takeWhenFree(engine.locks, session.id, null, (turn) => cancelRunning(engine, turn, reason));
  try {
    await endOpenTurn(engine, session);
    await endOutsideDelegations(engine, session, new Cancelled('user_cancel', 'session ended'));
    await endGatewayTree(engine, session);
    const at = engine.clock.now();
    const now = (await engine.store.sessions.record(session.id)) ?? session;
    await engine.journal.commit({
      writes: [
        { kind: 'session.end', session_id: session.id, disposition: 'completed', at },
        ...auditWrites(engine, actor, 'session.ended', { subject: session.id }),
      ],
      emit: [
        draft({
          type: 'session.ended',
          session_id: session.id,
          turn_id: null,
          parent: null,
          actor: 'user',
          payload: {
            disposition: 'completed',
            turn_count: now.turn_count,
            total_cost_usd: fromPusd(await engine.store.spend.sumSession(session.id)),
            duration_seconds: secondsSince(engine, session.id, session.created_at),
          },
        }),
      ],
    });
    forgetLimit(engine, 'session', session.id);
    engine.files.forget(session.id);
    engine.starts.delete(session.id);
    await closeForkTree(engine, session.id);
    return { id: session.id, ended_at: isoTime(at), purged: false };
  } catch (error) {
    if (error instanceof JournalConflict && error.code === 'session_ended') throw sessionEndedError();
    throw error;
  } finally {
    engine.locks.release(session.id);
    engine.ending.delete(session.id);
  }
}

// Sessions and turns for callers: with values that are not stored with them (14 §4, 13 §6.6).

/** The session's API form, with the money that its calls hold right now. */
export function addReservedMoney(engine: Engine, stored: Session): Session {
  const session = addOpenCalls(engine, stored);
  const { budget } = session;
  if (budget === null) return session;
  const key = session.is_worker ? `delegation:${session.parent_tool_use_id}` : `session:${session.id}`;
  const reserved = readReserved(engine, key);
  if (reserved === ZERO_PUSD) return session;
  const left = computeLeft({ limit: toPusd(budget.remaining_usd), spent: ZERO_PUSD, reserved });
  return {
    ...session,
    budget: { ...budget, reserved_usd: fromPusd(reserved), remaining_usd: fromPusd(left) },
  };
}

/** Sessions that run without a turn: gateway sessions with an open call, and sessions with a delegation of their own. */
export function listSessionsWithoutTurn({
  gateway,
  outside,
}: Pick<Engine, 'gateway' | 'outside'>): readonly SessionId[] {
  return [...listCallingSessions(gateway), ...outside.listSessions()];
}

/** A gateway session runs while one of its calls is open; the sessions above count it as active. */
function addOpenCalls({ gateway, outside }: Delegations & GatewayState, session: Session): Session {
  const open = listSessionsWithoutTurn({ gateway, outside });
  if (open.length === 0) return session;
  const below = [...gateway.calls].filter(
    (call) => call.root_session_id === session.id && call.session_id !== session.id,
  );
  const active = new Set(below.map((call) => call.session_id)).size;
  const runs = session.status === 'idle' && open.includes(session.id);
  if (!runs && active === 0) return session;
  return {
    ...session,
    status: runs ? 'running' : session.status,
    active_worker_count: session.active_worker_count + active,
  };
}

/** Counts of the whole server, gateway clients included. */
export interface ServerCounts {
  readonly active_sessions: number;
  readonly active_workers: number;
  readonly active_turns: number;
}

export async function countServerWork({ store, gateway }: Engine): Promise<ServerCounts> {
  const counts = await store.sessions.counts();
  const open = [...gateway.calls];
  const sessions = (calls: typeof open) => new Set(calls.map((call) => call.session_id)).size;
  return {
    ...counts,
    active_sessions: counts.active_sessions + sessions(open.filter((call) => call.session_id === call.root_session_id)),
    active_workers: counts.active_workers + sessions(open.filter((call) => call.session_id !== call.root_session_id)),
  };
}

/**
 * The output of a turn, as an object if its session has an output schema (13 §6.6, 01 §8). A top-level session has no repair: an invalid answer
 * stays text.
 */
export async function addCheckedOutput(engine: Engine, turn: Turn): Promise<Turn> {
  if (typeof turn.output !== 'string') return turn;
  const session = await engine.store.sessions.record(turn.session_id);
  if (session?.is_worker !== false) return turn;
  const schema = session.worker_definition?.output_schema ?? null;
  if (schema === null) return turn;
  const compiled = engine.schemas.compile(schema);
  if (!compiled.ok) return turn;
  const read = readStructured(turn.output, compiled.validate);
  if (!read.ok) return turn;
  return { ...turn, output: read.value };
}
