// Sessions: records for the engine, wire objects with their derived fields for clients (01 §7.1).

import type { SessionStamp } from '#core/policy/journal/prepare.ts';
import { raiseToSpent } from '#core/policy/learning/forecast.ts';
import { firstLine, type SessionFacts, type Spent, sessionView } from '#core/policy/session/session-view.ts';
import type { SessionReader } from '#core/ports/store-reader.ts';
import { type Awaitable, continueWith } from '#protocol/async/awaitable.ts';
import { isoTime } from '#protocol/clock.ts';
import type { SessionId } from '#protocol/ids.ts';
import { type Pusd, sumPusd } from '#protocol/money.ts';
import type { Session, SessionRecord, Waiting } from '#protocol/session.ts';
import { compareText } from '#protocol/text/compare-text.ts';
import type { TurnRecord, TurnStatus } from '#protocol/turn.ts';
import { OPEN_FOREIGN_FORKS } from '../schema/fork-prefix.ts';
import { LIMIT_AS_TEXT, pusdOrNull, type SessionRow, sessionRecord } from '../schema/rows.ts';
import { EVENTS_OF_TURN, TURN_IS_OPEN, TURN_T_IS_OPEN, WITH_TREE } from '../schema/words.ts';
import type { CachedSession, ReadCaches } from './caches.ts';
import { type ReadDatabase, type Reads, toPage } from './read-database.ts';
import { findSessions, SELECT_SESSIONS } from './session-search.ts';
import type { Spend } from './spend.ts';
import { parseAnswerText, WORKERS_OF_TURN } from './turns.ts';

// The open calls and approvals that the turns of a tree wait for, from rows alone (20 §6).

const MAX_LISTED = 50;

export interface OpenTurn {
  readonly id: string;
  readonly session_id: string;
  readonly status: TurnStatus;
  readonly interrupted_reason: string | null;
}

export interface Since {
  readonly id: string;
  readonly since: number;
}

export interface NewestCall extends Since {
  readonly type: string;
}

export interface PendingCall extends Since {
  /** When the call started; null while it waits for a slot. */
  readonly called: number | null;
  /** The worker that it opened. */
  readonly worker: string | null;
  readonly opened: number | null;
}

const OPEN = 'SELECT t.id, t.session_id, t.status, t.interrupted_reason FROM';

export const OF_ROOT = `${OPEN} sessions s JOIN turns t ON t.session_id = s.id AND ${TURN_T_IS_OPEN} WHERE s.root_session_id = ?`;
export const BELOW = `${WITH_TREE} ${OPEN} tree {join_in_order} turns t ON t.session_id = tree.id AND ${TURN_T_IS_OPEN}`;
export const ASKED =
  'SELECT id, requested_at AS since FROM confirmations WHERE decision IS NULL AND {no_index}turn_id = ?';
export const NEWEST_EVENT = `SELECT e.timestamp_ms AS since FROM ${EVENTS_OF_TURN} WHERE t.id = ? ORDER BY e.id DESC LIMIT 1`;
export const NEWEST_CALL = `
  SELECT {json_field(e.payload_json, request_id)} AS id, e.timestamp_ms AS since, e.type FROM ${EVENTS_OF_TURN}
  WHERE t.id = ? AND {no_index}e.type IN ('llm.call_started', 'llm.call_completed', 'llm.call_failed')
  ORDER BY e.id DESC LIMIT 1`;
/**
 * A call's `tool.called` has a greater id than its message, so the search begins there. A call that is asked about waits
 * for that alone, as each of the delegations that one request is about.
 */
export const PENDING = `
  SELECT c.id, c.created_at AS since, d.worker_session_id AS worker, d.created_at AS opened,
    (SELECT min(e.timestamp_ms) FROM events e WHERE e.session_id = c.session_id AND e.id > c.message_id AND e.turn_id = c.turn_id
      AND {no_index}e.type = 'tool.called' AND {json_field(e.payload_json, tool_use_id)} = c.id) AS called
  FROM tool_calls c LEFT JOIN delegations d ON d.tool_use_id = c.id
  WHERE c.session_id = ? AND c.status = 'pending' AND c.turn_id = ?
    AND NOT EXISTS (SELECT 1 FROM confirmations a WHERE a.decision IS NULL AND {no_index}a.turn_id = c.turn_id
      AND (a.tool_use_id = c.id OR a.request_json LIKE '%"' || c.id || '"%'))`;

/** Background workers that the turn waits for once it has nothing else to do (20 §9). */
export const OPEN_WORKERS = `SELECT worker_session_id AS id, created_at AS since FROM delegations {index(delegations_open)}
  WHERE status IN ('running','interrupted') AND parent_turn_id = ? AND worker_session_id IS NOT NULL`;

/** Kind, id and since when. */
export type Wait = readonly [Waiting['kind'], string, number];

/** The waits of a running turn. */
export function listWaits(
  asked: readonly Since[],
  call: NewestCall | undefined,
  pending: readonly PendingCall[],
): readonly Wait[] {
  return [
    ...asked.map(({ id, since }): Wait => ['approval', id, since]),
    ...(call?.type === 'llm.call_started' ? [['model', call.id, call.since] as const] : []),
    ...pending.map(({ id, since, called, worker, opened }): Wait => {
      if (worker !== null) return ['worker', worker, opened ?? since];
      if (called === null) return ['slot', id, since];
      return ['tool', id, called];
    }),
  ];
}

/** Oldest first, at most 50. */
export function waitingOn(turns: readonly { readonly turn: OpenTurn; readonly waits: readonly Wait[] }[]): Waiting[] {
  return turns
    .flatMap(({ turn, waits }) => waits.map(([kind, id, since]) => ({ kind, session_id: turn.session_id, id, since })))
    .sort((a, b) => a.since - b.since || compareText(a.id, b.id))
    .slice(0, MAX_LISTED)
    .map(({ since, ...what }) => ({ ...what, since: isoTime(since) }) as Waiting);
}

/** The session's own and its descendants', oldest first, at most 50. */
export type WaitingOf = (session: { readonly id: string; readonly is_worker: number | boolean }) => Promise<Waiting[]>;

export function createWaiting({ all, get }: Reads): WaitingOf {
  async function readWaits({ id, session_id, status, interrupted_reason }: OpenTurn): Promise<readonly Wait[]> {
    if (status === 'interrupted') {
      if (interrupted_reason !== 'budget') return [];
      return [['budget', id, (await get<{ since: number }>(NEWEST_EVENT, id))?.since ?? 0]];
    }
    const [asked, call, pending] = await Promise.all([
      all<Since>(ASKED, id),
      get<NewestCall>(NEWEST_CALL, id),
      all<PendingCall>(PENDING, session_id, id),
    ]);
    const waits = listWaits(asked, call, pending);
    if (waits.length > 0) return waits;
    return (await all<Since>(OPEN_WORKERS, id)).map((worker): Wait => ['worker', worker.id, worker.since]);
  }
  return async ({ id, is_worker }) => {
    const turns = await all<OpenTurn>(is_worker ? BELOW : OF_ROOT, id);
    return waitingOn(await Promise.all(turns.map(async (turn) => ({ turn, waits: await readWaits(turn) }))));
  };
}

/** A gateway session is active while one of its calls is open, which only the engine knows. */
const WORKERS = "count(*) AS count, count(*) FILTER (WHERE s.ended_at IS NULL AND s.door <> 'gateway') AS active";
export const BY_ID = `${SELECT_SESSIONS} WHERE s.id = ?`;
/** With the limit of the last budget warning. */
export const KNOWN = `SELECT *, ${LIMIT_AS_TEXT}, CAST(budget_warned_pusd AS TEXT) AS warned_text FROM sessions WHERE id = ?`;
export type KnownRow = SessionRow & { readonly warned_text: string | null };
export const OPEN_TURN = `SELECT id, status, forecast_json FROM turns WHERE session_id = ? AND ${TURN_IS_OPEN}`;
export const DELEGATION = `SELECT ${LIMIT_AS_TEXT}, request_json FROM delegations WHERE worker_session_id = ?`;
export const DESCENDANTS = `${WITH_TREE} SELECT id FROM tree WHERE depth > 0 ORDER BY depth DESC, id`;
export const LINEAGE = `
  WITH RECURSIVE up(id, parent, distance) AS (
    SELECT id, parent_session_id, 0 FROM sessions WHERE id = ?
    UNION ALL SELECT s.id, s.parent_session_id, distance + 1 FROM sessions s JOIN up ON s.id = up.parent)
  SELECT id FROM up ORDER BY distance`;
export const ACTIVE_SESSIONS =
  "SELECT count(*) AS n FROM sessions WHERE ended_at IS NULL AND is_worker = ? AND door <> 'gateway'";
export const ACTIVE_TURNS = `SELECT count(*) AS n FROM turns WHERE ${TURN_IS_OPEN} AND status <> 'interrupted'`;
export const LAST_TURN = `
  SELECT id, status, chosen_model, chosen_effort AS last_effort, provider, error_code, error_class, error_message, retryable, ended_at
  FROM turns WHERE session_id = ? ORDER BY id DESC LIMIT 1`;
type OpenTurnRow = NonNullable<SessionFacts['open_turn']> & { readonly forecast_json: string | null };
type LastTurnRow = Pick<
  TurnRecord,
  'id' | 'status' | 'chosen_model' | 'provider' | 'error_code' | 'error_class' | 'error_message' | 'ended_at'
> &
  Pick<SessionFacts, 'last_effort'> & { readonly retryable: number | null };

export const WORKERS_OF_TREE = `SELECT ${WORKERS} FROM sessions s WHERE s.root_session_id = ? AND s.is_worker = 1`;
/** Walks the tree, then looks up each session. */
export const WORKERS_BELOW = `${WITH_TREE} SELECT ${WORKERS} FROM tree {join_in_order} sessions s ON s.id = tree.id WHERE tree.depth > 0`;
/** Written exactly as in the indexes, so that SQLite uses them. */
export const OF_CLIENT =
  'SELECT id FROM sessions WHERE caller = ? AND client_ref = ? AND is_worker = 0 AND client_ref IS NOT NULL';
export const WORKER_OF_CLIENT =
  'SELECT id FROM sessions WHERE root_session_id = ? AND client_ref = ? AND is_worker = 1 AND client_ref IS NOT NULL';
/** Finds the caller's root sessions, then searches each tree. */
export const WORKER_OF_CALLER = `
  SELECT s.id FROM sessions r {join_in_order} sessions s ON s.root_session_id = r.id
  WHERE r.caller = ? AND r.is_worker = 0 AND r.client_ref IS NOT NULL
    AND s.client_ref = ? AND s.is_worker = 1 AND s.client_ref IS NOT NULL
  ORDER BY s.id DESC LIMIT 1`;
export const FIRST_MESSAGE =
  "SELECT content_json FROM messages WHERE session_id = ? AND role = 'user' ORDER BY id LIMIT 1";
/** The fields that events and cost facts copy from a session, and whether it has ended. */
export const STAMP = `
  SELECT s.parent_session_id, s.root_session_id, s.is_worker, s.workspace_hash,
    coalesce(s.worker_name, '') AS worker_name, coalesce(s.delegated_by_model, '') AS delegated_by_model,
    coalesce(d.tier, '') AS delegation_tier, s.door, s.caller, coalesce(s.owner, '') AS owner, s.share,
    s.ended_at IS NOT NULL AS ended
  FROM sessions s LEFT JOIN delegations d ON d.worker_session_id = s.id
  WHERE s.id = ?`;
export type StampRow = Omit<SessionStamp, 'is_worker'> & { readonly is_worker: 0 | 1; readonly ended: 0 | 1 };

export interface DelegationRow {
  readonly max_cost_text: string | null;
  readonly request_json: string;
}

export function delegationFacts({ max_cost_text, request_json }: DelegationRow): {
  readonly task: string;
  readonly max_cost_pusd: Pusd | null;
} {
  const { task } = JSON.parse(request_json) as { readonly task: string };
  return { task, max_cost_pusd: pusdOrNull(max_cost_text) };
}

export function parseTitle(firstMessage: string): string | null {
  return firstLine(parseAnswerText(firstMessage));
}

/** What is left of a tree without its root; an unpriced or simulated call of the root's own is among its own anyway. */
export function subtractOwn(tree: Spent, own: Spent): Spent {
  return { cost_pusd: (tree.cost_pusd - own.cost_pusd) as Pusd, unpriced: tree.unpriced, simulated: tree.simulated };
}

export interface SessionReaderParts {
  readonly spend: Spend;
  readonly caches: ReadCaches;
  readonly together: ReadDatabase['together'];
}

export function createSessionReader(reads: Reads, { spend, caches, together }: SessionReaderParts): SessionReader {
  const { all, get } = reads;
  const readTitle = createTitles(get);
  const waitingOn = createWaiting(reads);

  function readSession(id: string): Awaitable<CachedSession | null> {
    const cached = caches.sessions.get(id);
    if (cached !== null) return cached;
    const isCurrent = caches.beginRead(id);
    return continueWith(get<KnownRow>(KNOWN, id), (row) => {
      if (row === undefined) return null;
      const { warned_text, ...rest } = row;
      const session = { record: sessionRecord(rest), warned_pusd: pusdOrNull(warned_text) };
      if (isCurrent()) caches.sessions.put(id, session);
      return session;
    });
  }
  async function findRecord(text: string, ...values: string[]) {
    const row = await get<{ id: string }>(text, ...values);
    if (row === undefined) return null;
    return (await readSession(row.id))?.record ?? null;
  }

  async function readLastTurn({
    id,
    door,
  }: SessionRecord): Promise<Pick<SessionFacts, 'last_model' | 'last_effort' | 'failure'>> {
    if (door === 'gateway') {
      const call = await spend.lastCall(id);
      const last_effort = (call?.effort || null) as SessionFacts['last_effort'];
      return { last_model: call?.model ?? null, last_effort, failure: null };
    }
    const turn = await get<LastTurnRow>(LAST_TURN, id);
    const { chosen_model: last_model = null, last_effort = null } = turn ?? {};
    return { last_model, last_effort, failure: describeFailure(turn) };
  }

  const ids = (rows: readonly { readonly id: SessionId }[]) => rows.map(({ id }) => id);

  /** The forecast of a running turn: at least what it has cost with its workers. */
  async function readForecast(id: string, open: OpenTurnRow): Promise<SessionFacts['forecast']> {
    if (open.forecast_json === null) return null;
    const workers = await all<{ id: SessionId }>(WORKERS_OF_TURN, id, open.id);
    const [own, below] = await Promise.all([spend.sumTurn(open.id), spend.sumSubtrees(ids(workers))]);
    return raiseToSpent(JSON.parse(open.forecast_json), sumPusd([own.cost_pusd, below]));
  }

  async function viewSession(row: SessionRow): Promise<Session> {
    const record = sessionRecord(row);
    const { is_worker: isWorker } = record;
    const delegation = isWorker ? await get<DelegationRow>(DELEGATION, row.id) : undefined;
    const [own, open, others, last, descendants, title] = await Promise.all([
      spend.sumSession(row.id),
      get<OpenTurnRow>(OPEN_TURN, row.id),
      isWorker ? spend.sumDescendants(row.id) : spend.sumTree(row.id),
      readLastTurn(record),
      get<SessionFacts['descendants']>(isWorker ? WORKERS_BELOW : WORKERS_OF_TREE, row.id),
      delegation === undefined ? readTitle(row.id) : null,
    ]);
    return sessionView(record, {
      owner_name: row.person_name ?? null,
      open_turn: open === undefined ? null : { id: open.id, status: open.status },
      own,
      workers: isWorker ? others : subtractOwn(others, own),
      ...last,
      descendants: descendants!,
      delegation: delegation === undefined ? null : delegationFacts(delegation),
      title,
      // A worker runs only under a turn that is open.
      waiting_on: open === undefined ? [] : await waitingOn(row),
      forecast: open === undefined ? null : await readForecast(row.id, open),
    });
  }
  const countRows = async (text: string, ...values: unknown[]) => (await get<{ n: number }>(text, ...values))?.n ?? 0;

  return {
    limit: (rootSessionId) =>
      continueWith(readSession(rootSessionId), (root) => {
        if (root === null) return null;
        const { max_cost_pusd, on_reached, experiment } = root.record;
        return { max_cost_pusd, on_reached, experiment, warned_pusd: root.warned_pusd };
      }),
    record: (id) => continueWith(readSession(id), (session) => session?.record ?? null),
    findByClientRef: (caller, ref) => findRecord(OF_CLIENT, caller, ref),
    findWorkerInTree: (root, ref) => findRecord(WORKER_OF_CLIENT, root, ref),
    findWorkerByCaller: (caller, ref) => findRecord(WORKER_OF_CALLER, caller, ref),
    view: async (id) => {
      const row = await get<SessionRow>(BY_ID, id);
      if (row === undefined) return null;
      return viewSession(row);
    },
    list: async (query) => {
      const rows = await findSessions(reads, query);
      return together(async () => {
        const page = toPage(rows, query.limit, (row) => row.id, viewSession);
        return { rows: await Promise.all(page.rows), next: page.next };
      });
    },
    foreignForks: async (id) => ids(await all<{ id: SessionId }>(OPEN_FOREIGN_FORKS, JSON.stringify([id]))),
    descendants: async (id) => ids(await all<{ id: SessionId }>(DESCENDANTS, id)),
    lineage: async (id) => ids(await all<{ id: SessionId }>(LINEAGE, id)),
    counts: async () => {
      const [active_sessions, active_workers, active_turns] = await Promise.all([
        countRows(ACTIVE_SESSIONS, 0),
        countRows(ACTIVE_SESSIONS, 1),
        countRows(ACTIVE_TURNS),
      ]);
      return { active_sessions, active_workers, active_turns };
    },
  };
}

function describeFailure(turn: LastTurnRow | undefined): Session['failure'] {
  if (turn?.status !== 'failed') return null;
  const { id: turn_id, error_code, error_class, error_message: message, provider, chosen_model: model } = turn;
  const retryable = turn.retryable === null ? null : turn.retryable === 1;
  const failed_at = isoTime(turn.ended_at ?? 0);
  return { turn_id, error_code, error_class, message, provider, model, retryable, failed_at };
}

const MAX_TITLES = 10_000;

/** Null before the first user message, and when that has no text. A title is kept: the first message never changes. */
function createTitles(get: Reads['get']): (sessionId: string) => Promise<string | null> {
  const cached = new Map<string, string | null>();
  return async (sessionId) => {
    const known = cached.get(sessionId);
    if (known !== undefined) return known;
    const first = await get<{ content_json: string }>(FIRST_MESSAGE, sessionId);
    if (first === undefined) return null;
    const title = parseTitle(first.content_json);
    if (cached.size >= MAX_TITLES) cached.delete(cached.keys().next().value ?? '');
    cached.set(sessionId, title);
    return title;
  };
}
