// What the turns of a tree wait for at this moment, from rows alone (20 §6).
import { isoTime } from '#protocol/clock.ts';
import type { Waiting } from '#protocol/session.ts';
import type { TurnStatus } from '#protocol/turn.ts';
import { EVENTS_OF_TURN, TURN_IS_OPEN, WITH_TREE } from '../schema/words.ts';
import type { Reads } from './reads.ts';

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
  /** When it was let through; null while it has no place to run in. */
  readonly called: number | null;
  /** The worker that it opened. */
  readonly worker: string | null;
  readonly opened: number | null;
}

const OPEN = 'SELECT t.id, t.session_id, t.status, t.interrupted_reason FROM';

export const OF_ROOT = `${OPEN} sessions s JOIN turns t ON t.session_id = s.id AND t.${TURN_IS_OPEN} WHERE s.root_session_id = ?`;
export const BELOW = `${WITH_TREE} ${OPEN} tree CROSS JOIN turns t ON t.session_id = tree.id AND t.${TURN_IS_OPEN}`;
export const ASKED = 'SELECT id, requested_at AS since FROM confirmations WHERE decision IS NULL AND +turn_id = ?';
export const NEWEST_EVENT = `SELECT e.timestamp_ms AS since FROM ${EVENTS_OF_TURN} WHERE t.id = ? ORDER BY e.id DESC LIMIT 1`;
export const NEWEST_CALL = `
  SELECT e.payload_json ->> '$.request_id' AS id, e.timestamp_ms AS since, e.type FROM ${EVENTS_OF_TURN}
  WHERE t.id = ? AND +e.type IN ('llm.call_started', 'llm.call_completed', 'llm.call_failed')
  ORDER BY e.id DESC LIMIT 1`;
/** A tool call is let through behind its message, whose id is smaller than those of all events that follow. */
export const PENDING = `
  SELECT c.id, c.created_at AS since, d.worker_session_id AS worker, d.created_at AS opened,
    (SELECT min(e.timestamp_ms) FROM events e WHERE e.session_id = c.session_id AND e.id > c.message_id AND e.turn_id = c.turn_id
      AND +e.type = 'tool.called' AND e.payload_json ->> '$.tool_use_id' = c.id) AS called
  FROM tool_calls c LEFT JOIN delegations d ON d.tool_use_id = c.id
  WHERE c.session_id = ? AND c.status = 'pending' AND c.turn_id = ?
    AND NOT EXISTS (SELECT 1 FROM confirmations a WHERE a.decision IS NULL AND +a.tool_use_id = c.id)`;

/** Kind, id and since when. */
export type Wait = readonly [Waiting['kind'], string, number];

/** Of a turn that runs. */
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
      return called === null ? ['slot', id, since] : ['tool', id, called];
    }),
  ];
}

/** Oldest first, at most 50. */
export function waitingOn(turns: readonly { readonly turn: OpenTurn; readonly waits: readonly Wait[] }[]): Waiting[] {
  return turns
    .flatMap(({ turn, waits }) => waits.map(([kind, id, since]) => ({ kind, session_id: turn.session_id, id, since })))
    .sort((a, b) => a.since - b.since || (a.id < b.id ? -1 : 1))
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
    return listWaits(asked, call, pending);
  }
  return async ({ id, is_worker }) => {
    const turns = await all<OpenTurn>(is_worker ? BELOW : OF_ROOT, id);
    return waitingOn(await Promise.all(turns.map(async (turn) => ({ turn, waits: await readWaits(turn) }))));
  };
}
