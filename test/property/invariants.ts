// What holds of every session tree once nothing of it runs any more, whatever happened to it.
import { expect } from 'vitest';
import type { PublishedEvent } from '#core/ports/live-bus.ts';
import type { SessionId } from '#protocol/ids.ts';
import type { ToolResultBlock } from '#protocol/message.ts';
import { sumPusd, toPusd } from '#protocol/money.ts';
import type { TestEngine } from '../support/engine.ts';

type StoredEvent = PublishedEvent['event'];
const TERMINAL = new Set(['turn.completed', 'turn.failed', 'turn.cancelled']);
/** What opens something -> what closes it, and the payload key that names it. */
const PAIRS: readonly (readonly [string, readonly string[], string])[] = [
  ['llm.call_started', ['llm.call_completed', 'llm.call_failed'], 'request_id'],
  ['tool.called', ['tool.completed', 'tool.failed'], 'tool_use_id'],
  ['tool.confirmation_requested', ['tool.confirmation_resolved'], 'confirmation_request_id'],
  ['delegate.started', ['delegate.completed', 'delegate.failed'], 'tool_use_id'],
];
const payload = (e: StoredEvent) => e.payload as Record<string, unknown>;

/** @param events those of the tree, in the order they were published */
export async function checkTree(t: TestEngine, root: string, events: readonly StoredEvent[]): Promise<void> {
  expect(events.map((e) => e.id)).toEqual(events.map((e) => e.id).sort());
  parentsComeFirst(events);
  workersLeadBack(events, root);
  for (const [opens, closes, key] of PAIRS) eachClosedOnce(events, opens, closes, key);
  turnsEndOnce(events);
  sessionsEndOnce(events, root);
  cascadesEndAtTheTop(events, readBackground(t, root));
  for (const id of new Set(events.map((e) => e.session_id))) await callsAreAnswered(t, id as SessionId);
  resultsAreReadOnce(t, root, events);
  nothingIsOpen(t, root);
}

function parentsComeFirst(events: readonly StoredEvent[]): void {
  const seen = new Set<string>();
  for (const e of events) {
    if (e.parent_event_id !== null && !seen.has(e.parent_event_id))
      expect.fail(`${e.type} ${e.id} stands before its parent, or its parent is not there`);
    seen.add(e.id);
  }
}

/** From any event of a worker's turn the parents lead to a turn of the planner. */
function workersLeadBack(events: readonly StoredEvent[], root: string): void {
  const byId = new Map<string, StoredEvent>(events.map((e) => [e.id, e]));
  const begun = new Set(events.filter((e) => e.type === 'turn.started').map((e) => e.turn_id));
  for (const e of events) {
    if (e.session_id === root || !begun.has(e.turn_id)) continue;
    let top: StoredEvent = e;
    for (let up = byId.get(e.parent_event_id ?? ''); up; up = byId.get(up.parent_event_id ?? '')) top = up;
    expect([top.type, top.session_id], `${e.type} of a worker`).toEqual(['turn.started', root]);
  }
}

function eachClosedOnce(events: readonly StoredEvent[], opens: string, closes: readonly string[], key: string): void {
  const ids = (types: readonly string[]) => events.filter((e) => types.includes(e.type)).map((e) => payload(e)[key]);
  const closed = ids(closes);
  expect(new Set(closed).size, `${closes.join('/')} twice for one ${key}`).toBe(closed.length);
  const open = ids([opens]).filter((id) => !closed.includes(id));
  expect(open, `${opens} without its end`).toEqual([]);
}

function turnsEndOnce(events: readonly StoredEvent[]): void {
  const turns = new Map<string, StoredEvent[]>();
  for (const e of events) if (e.turn_id) turns.set(e.turn_id, [...(turns.get(e.turn_id) ?? []), e]);
  for (const of of turns.values()) {
    const started = of.filter((e) => e.type === 'turn.started').length;
    // A refused turn has its decision and nothing else.
    if (started === 0) expect(of.map((e) => e.type)).toEqual(['route.decided']);
    else {
      expect(started).toBe(1);
      expect(of.filter((e) => TERMINAL.has(e.type))).toHaveLength(1);
      const last = of.at(-1)!;
      expect(TERMINAL.has(last.type), `${last.type} behind the end of its turn`).toBe(true);
      const calls = of.filter((e) => e.type === 'llm.call_completed' && e.session_id === last.session_id);
      const cost = sumPusd(calls.map((e) => toPusd(String(payload(e).cost_usd))));
      expect(toPusd(String(payload(last).total_cost_usd))).toBe(cost);
    }
  }
}

function sessionsEndOnce(events: readonly StoredEvent[], root: string): void {
  for (const id of new Set(events.map((e) => e.session_id))) {
    const of = events.filter((e) => e.session_id === id);
    expect(of[0]!.type).toBe('session.created');
    const ends = of.filter((e) => e.type === 'session.ended').length;
    if (id !== root) expect(ends, 'a worker that was not ended').toBe(1);
    if (ends > 0) expect(of.at(-1)!.type, 'an event behind the end of its session').toBe('session.ended');
    expect(ends).toBeLessThanOrEqual(1);
  }
}

/**
 * The end of a turn has a larger id than everything that its workers, and theirs, ever said; a worker that ended with
 * its planner names the planner's reason.
 */
function cascadesEndAtTheTop(events: readonly StoredEvent[], background: readonly Background[]): void {
  const beside = new Set(background.map(({ worker }) => worker));
  const lastOf = new Map<string, string>();
  for (const e of events) lastOf.set(e.session_id, e.id);
  const stop = (session: string) => events.findLast((e) => e.type === 'turn.cancelled' && e.session_id === session);
  for (const end of events.filter((e) => TERMINAL.has(e.type))) {
    for (const e of events.filter((e) => e.turn_id === end.turn_id)) {
      const worker = String(payload(e).worker_session_id);
      if (e.type === 'delegate.started' && lastOf.get(worker)! > end.id)
        expect.fail(`${end.type} of ${end.session_id} stands before its worker's end`);
      // Workers of the background are ended by a failure of their planner and by a limit too.
      const isFree = beside.has(worker) && end.type !== 'turn.cancelled';
      if (e.type === 'delegate.failed' && payload(e).cancel_scope === 'planner' && !isFree) {
        expect(end.type).toBe('turn.cancelled');
        const last = stop(worker);
        const reasons = [payload(end).reason];
        // A turn out of time lets its workers conclude, and a person may cancel them meanwhile.
        if (beside.has(worker) && payload(end).reason === 'timeout') reasons.push('user_cancel');
        if (last) expect(reasons).toContain(payload(last).reason);
      }
    }
  }
}

async function callsAreAnswered(t: TestEngine, sessionId: SessionId): Promise<void> {
  const history = await t.engine.store.messages.history(sessionId);
  const asked = history
    .filter((m) => m.role === 'assistant' && m.metadata.status === 'complete')
    .flatMap((m) => m.content.flatMap((b) => (b.type === 'tool_use' ? [b.id] : [])));
  const answered = history.filter((m) => m.role === 'tool').map((m) => (m.content[0] as ToolResultBlock).tool_use_id);
  expect(answered, 'results do not stand in the order of the calls').toEqual(asked);
}

interface Background {
  readonly turn: string;
  readonly worker: string;
}

/** The workers of the tree that ran in the background, with the turns that own them. */
function readBackground(t: TestEngine, root: string): Background[] {
  const rows = t.db.db.prepare(`
    SELECT d.parent_turn_id AS turn, d.worker_session_id AS worker
    FROM delegations d JOIN sessions s ON s.id = d.parent_session_id
    WHERE s.root_session_id = ? AND d.worker_session_id IS NOT NULL AND json_extract(d.request_json, '$.background') = 1`);
  return rows.all(root) as Background[];
}

/** The result of each background worker is in the history of its caller once, or its turn ended and counts it as unread. */
function resultsAreReadOnce(t: TestEngine, root: string, events: readonly StoredEvent[]): void {
  const owned = new Map<string, string[]>();
  for (const { turn, worker } of readBackground(t, root)) owned.set(turn, [...(owned.get(turn) ?? []), worker]);
  for (const [turn, workers] of owned) {
    const own = events.filter((e) => e.turn_id === turn);
    const read = own.filter((e) => e.type === 'delegate.delivered').map((e) => payload(e).worker_session_id);
    const unread = Number(payload(own.find((e) => TERMINAL.has(e.type))!).unread_inputs);
    expect(new Set(read).size, 'a result was read twice').toBe(read.length);
    const waiting = t.db.db
      .prepare('SELECT count(*) AS n FROM deliveries WHERE turn_id = ? AND delivered_at IS NULL')
      .get(turn) as { readonly n: number };
    expect(read.length + waiting.n, 'a result was lost').toBe(workers.length);
    // Messages of persons that no call could read are counted with them.
    expect(unread, 'a result was not counted').toBeGreaterThanOrEqual(waiting.n);
    const stored = t.db.db.prepare('SELECT count(*) AS n FROM messages WHERE turn_id = ? AND content_json LIKE ?');
    for (const worker of read)
      expect(stored.get(turn, `%"[worker ${worker} %`), 'not in the history').not.toEqual({ n: 0 });
  }
}

const OPEN = `
  WITH tree AS (SELECT id FROM sessions WHERE root_session_id = @root)
  SELECT 'turn ' || id AS open FROM turns WHERE session_id IN tree AND status IN ('in_flight', 'cancelling', 'interrupted')
  UNION ALL SELECT 'call ' || c.id FROM tool_calls c JOIN messages m ON m.id = c.message_id
    WHERE c.session_id IN tree AND (c.status = 'pending' OR (m.status = 'complete' AND c.result_json IS NULL))
  UNION ALL SELECT 'delegation ' || tool_use_id FROM delegations
    WHERE parent_session_id IN tree AND status IN ('running', 'interrupted')
  UNION ALL SELECT 'prompt ' || id FROM confirmations WHERE root_session_id = @root AND decision IS NULL
  UNION ALL SELECT 'worker ' || id FROM sessions WHERE id IN tree AND is_worker = 1 AND ended_at IS NULL`;

function nothingIsOpen(t: TestEngine, root: string): void {
  const rows = t.db.db.prepare(OPEN).all({ root }) as { open: string }[];
  expect(rows.map((row) => row.open)).toEqual([]);
  const { locks, approvals, budget, ending } = t.engine;
  expect(locks.activeTurns()).toEqual([]);
  expect([approvals.size, budget.reserved.size, ending.size]).toEqual([0, 0, 0]);
}
