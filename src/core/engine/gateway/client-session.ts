// Maps the names that a client gives its sessions to stored session records (19 §2.3).

import { Cancelled } from '#protocol/abort.ts';
import { isoTime } from '#protocol/clock.ts';
import { AppError } from '#protocol/errors.ts';
import { draft } from '#protocol/event.ts';
import type { SessionId } from '#protocol/ids.ts';
import { fromPusd, type Pusd, toPusdOrNull } from '#protocol/money.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { readPolicies } from '../routing/route-environment.ts';
import { buildBlankRoot, resolveWorkspace } from '../session/session-records.ts';
import { cancelScope } from '../state/concurrency.ts';
import type { GatewayEngine, Runtime, Storage } from '../state/engine.ts';
import { dropDecisions, listCallsInTree } from '../state/gateway-memory.ts';
import { secondsSince } from '../state/memory.ts';

/** The client's identity, from its own headers. */
export interface GatewayClient {
  /** Name of the API key of the call; '' = none. */
  readonly caller: string;
  /** Id of the token or key of the call; null = a nameless one, or none. */
  readonly owner: string | null;
  /** The client's name for itself. */
  readonly product: string;
  /** The client's name for the session; null = one session a day. */
  readonly root: string | null;
  /** The client's name for the calling sub-agent; null = the main agent. */
  readonly worker: string | null;
  /** The client's name for the agent above the sub-agent; null = the main agent. */
  readonly parent: string | null;
  /** The client's name for the session above `root`, for clients that name no main session in a sub-agent's call. */
  readonly above_root: string | null;
  /** Kind of the sub-agent. */
  readonly worker_type: string | null;
  readonly workspace: string | null;
  /** Decimal US dollars; can only lower the limit of a new session. */
  readonly budget_usd: string | null;
}

export interface ClientSession {
  readonly session: SessionRecord;
  /** Root of the session, for a session that is not stored yet. */
  readonly new_root: SessionRecord | null;
  /** Sessions to store, from the session up; the highest first. */
  readonly fresh: readonly SessionRecord[];
}

/** Deeper agents are attached to the main agent. */
const MAX_DEPTH = 64;

/**
 * The client with its tree: a session below another one becomes a worker of that session's tree. An unknown parent is
 * a main session whose first call is still to come.
 */
export async function placeClient({ store }: Pick<Storage, 'store'>, client: GatewayClient): Promise<GatewayClient> {
  const { caller, root, above_root } = client;
  if (above_root === null || above_root === root) return client;
  const placed = { ...client, worker: root, above_root: null };
  if ((await store.sessions.findByClientRef(caller, above_root)) === null) {
    const parent = await store.sessions.findWorkerByCaller(caller, above_root);
    const main = parent === null ? null : await store.sessions.record(parent.root_session_id);
    if (main !== null) return { ...placed, root: main.client_ref, parent: above_root };
  }
  return { ...placed, root: above_root, parent: null };
}

/** The name of the client's session of today. */
export function resolveRootRef(engine: Pick<Runtime, 'clock'>, { root, product }: GatewayClient): string {
  return root ?? `${product} ${isoTime(engine.clock.now()).slice(0, 10)}`;
}

/** The session of a call; a new client's session is opened. Throws as `createSession`, and `session_already_ended`. */
export async function openClientSession(
  engine: GatewayEngine,
  client: GatewayClient,
  delegatedBy: string | null,
): Promise<ClientSession> {
  const { sessions } = engine.store;
  const ref = resolveRootRef(engine, client);
  const root = await sessions.findByClientRef(client.caller, ref);
  if (root === null) return openClientTree(engine, client, { ref, delegatedBy });
  if (root.ended_at !== null || engine.ending.has(root.id)) throw sessionEndedError(ref);
  if (client.worker === null) return { session: root, new_root: null, fresh: [] };
  const worker = await sessions.findWorkerInTree(root.id, client.worker);
  if (worker !== null) {
    if (worker.ended_at !== null) throw sessionEndedError(ref);
    return { session: worker, new_root: null, fresh: [] };
  }
  const above = client.parent && (await sessions.findWorkerInTree(root.id, client.parent));
  const isParent = above && above.ended_at === null && above.delegation_depth < MAX_DEPTH;
  const session = createClientWorker(engine, isParent ? above : root, client, delegatedBy);
  return { session, new_root: null, fresh: [session] };
}

async function openClientTree(
  engine: GatewayEngine,
  client: GatewayClient,
  { ref, delegatedBy }: { readonly ref: string; readonly delegatedBy: string | null },
): Promise<ClientSession> {
  const root = await createRoot(engine, client, ref);
  if (engine.ending.has(root.id)) throw sessionEndedError(ref);
  if (client.worker === null) return { session: root, new_root: root, fresh: [root] };
  const session = createClientWorker(engine, root, client, delegatedBy);
  return { session, new_root: root, fresh: [root, session] };
}

/** An ended session is not reopened under its name. The client shows the message, which asks for another name. */
function sessionEndedError(ref: string): AppError {
  return new AppError(
    'session_already_ended',
    `the session "${ref}" was ended on this server, which takes no more calls of it; ` +
      'begin a new session in the client, or send x-metis-session with another name',
  );
}

async function createRoot(engine: GatewayEngine, client: GatewayClient, ref: string): Promise<SessionRecord> {
  const { config } = engine;
  const workspace = client.workspace === null ? engine.gatewayFolder : await resolveWorkspace(engine, client.workspace);
  const { version } = await readPolicies(engine, workspace);
  return {
    ...buildBlankRoot(engine, workspace, version),
    door: 'gateway',
    caller: client.caller,
    owner: client.owner,
    share: config.server.default_share,
    client: client.product,
    client_ref: ref,
    max_cost_pusd: pickLowerLimit(toPusdOrNull(config.budgets.session_default_usd), toPusdOrNull(client.budget_usd)),
    on_reached: 'stop',
  };
}

function pickLowerLimit(ours: Pusd | null, theirs: Pusd | null): Pusd | null {
  if (ours === null || theirs === null) return ours ?? theirs;
  if (theirs < ours) return theirs;
  return ours;
}

function createClientWorker(
  engine: Runtime,
  parent: SessionRecord,
  client: GatewayClient,
  delegatedBy: string | null,
): SessionRecord {
  const now = engine.clock.now();
  return {
    ...parent,
    id: engine.ids.session() as SessionId,
    active_model: null,
    pending_active_model: null,
    turn_count: 0,
    parent_session_id: parent.id,
    is_worker: true,
    delegation_depth: parent.delegation_depth + 1,
    delegated_by_model: delegatedBy,
    worker_name: client.worker_type,
    door: 'gateway',
    client_ref: client.worker,
    max_cost_pusd: null,
    created_at: now,
    updated_at: now,
  };
}

// Stops a client's session: its calls end, and its sub-agents' sessions with it (19 §2.3).

/** Why a call ends when its session is ended. */
export const ENDED = 'session ended';

/** Aborts every call of the tree and waits for their outcomes, then ends its sub-agents' sessions, the deepest first. */
export async function endGatewayTree(engine: GatewayEngine, root: SessionRecord): Promise<void> {
  const calls = listCallsInTree(engine.gateway, root.id);
  for (const { scope } of calls) cancelScope(scope, new Cancelled('user_cancel', ENDED));
  await Promise.all(calls.map(({ done }) => done));
  dropDecisions(engine.gateway, root.id);
  for (const id of await engine.store.sessions.descendants(root.id)) {
    const session = await engine.store.sessions.record(id);
    // The delegation ends a worker that runs here.
    if (session === null || session.door !== 'gateway' || session.ended_at !== null) continue;
    await engine.journal.commit({
      writes: [{ kind: 'session.end', session_id: id, disposition: 'completed', at: engine.clock.now() }],
      emit: [
        draft({
          type: 'session.ended',
          session_id: id,
          turn_id: null,
          parent: null,
          payload: {
            disposition: 'completed',
            turn_count: 0,
            total_cost_usd: fromPusd(await engine.store.spend.sumSession(id)),
            duration_seconds: secondsSince(engine, id, session.created_at),
          },
        }),
      ],
    });
    engine.starts.delete(id);
  }
}
