// Answers tool calls that have no result and will have none: at the end of a turn, and where it goes on behind a cut-off answer (01 §6.2).
import { draft, type EventDraft } from '#protocol/event.ts';
import { type StoredMessage, toolUses } from '#protocol/message.ts';
import type { Runtime, Storage } from '../state/engine.ts';
import { recordSettledCalls, type TurnBase, type TurnPlan, type TurnProgress } from '../state/turn-run.ts';
import { buildAnswers, readStartedCalls, readStoredResults } from '../tool-call/tool-results.ts';
import { deliverWithAnswers } from './deliveries.ts';

export interface Closing extends ReturnType<typeof buildAnswers> {
  /** The terminal event of every call that had none, then those of results that the messages hold. */
  readonly failed: readonly EventDraft[];
  /** Results of workers that its messages hold, and their events. */
  readonly delivered: number;
}

/**
 * Answers the open calls of the newest message: with the stored results, and with `text` where there is none. Reads the
 * store, since a fault may have come between a result and this turn's own memory of it.
 */
export async function closeCalls(engine: Runtime & Storage, run: TurnBase, text: string): Promise<Closing> {
  const calls = findUnansweredCalls(run);
  if (calls.length === 0) return { messages: [], writes: [], failed: [], delivered: 0 };
  const results = await readStoredResults(engine, run.turn.id);
  const called = await readStartedCalls(engine, run.turn.id);
  const missing = calls.filter((call) => !results.has(call.id));
  recordSettledCalls(run, missing.length);
  const failed = missing.map((call) =>
    draft({
      type: 'tool.failed',
      session_id: run.session.id,
      turn_id: run.turn.id,
      parent: called.get(call.id)?.event_id ?? run.call_event_id,
      payload: { tool_use_id: call.id, error_class: 'cancelled', error_message: text, latency_ms: 0 },
    }),
  );
  const answers = buildAnswers(engine, run, calls, { results, missing: text });
  const deliveries = await engine.store.delegations.deliveries(run.turn.id);
  const carried = await deliverWithAnswers(engine, run, answers.messages, deliveries);
  return {
    messages: answers.messages,
    writes: [...answers.writes, ...carried.writes],
    failed: [...failed, ...carried.events],
    delivered: carried.events.length,
  };
}

/** Tool calls of the turn's newest complete message that no stored tool message answers yet (01 §6.2). */
function findUnansweredCalls(run: TurnPlan & TurnProgress) {
  const at = run.history.findLastIndex((m) => m.role === 'assistant' && m.metadata.status === 'complete');
  const asked: StoredMessage | undefined = run.history[at];
  if (!asked || asked.turn_id !== run.turn.id) return [];
  const answered = new Set(
    run.history
      .slice(at + 1)
      .filter((m) => m.role === 'tool')
      .map((m) => m.metadata.parent_tool_use_id),
  );
  return toolUses(asked.content).filter((call) => !answered.has(call.id));
}
