// Ending a turn whose last step is behind it: one transaction with the one terminal event (00 §3 step 7).

import { isInputsWaiting } from '#protocol/batch.ts';
import { draft, type EventDraft } from '#protocol/event.ts';
import { type StoredMessage, toolUses } from '#protocol/message.ts';
import type { TurnStopReason } from '#protocol/turn.ts';
import { openCallOutcomes } from '../closing/close-model-calls.ts';
import type { Ending } from '../closing/turn-end-records.ts';
import { turnEnd } from '../closing/turn-end-records.ts';
import { appended } from '../model-call/deltas.ts';
import { type Engine, safeText } from '../state/engine.ts';
import { messagesStored, toolCallsSettled } from '../state/run-progress.ts';
import type { TurnBase, TurnEnd } from '../state/turn-run.ts';
import { answerMessages, CANCELLED_TEXT, FAILED_TEXT, startedCalls, storedResults } from '../tool-call/results.ts';

/**
 * Ends a turn: what its newest message still waits for is answered, model calls that were announced get their outcome,
 * messages it has not read are counted, and the one terminal event comes last, in one transaction.
 * @param text what a tool call without a result is answered with
 */
export async function endTurn(
  engine: Engine,
  run: TurnBase,
  ending: Ending,
  text = ending.status === 'cancelled' ? CANCELLED_TEXT : FAILED_TEXT,
): Promise<TurnEnd> {
  const closing = await closeCalls(engine, run, text);
  for (;;) {
    const unread = await engine.store.turns.inputs(run.turn.id);
    if (await storeEnd(engine, run, ending, { closing, unread: unread.length })) break;
  }
  switch (ending.status) {
    case 'completed':
      return ending;
    case 'cancelled':
      return { status: 'cancelled', reason: ending.by.reason };
    case 'failed':
      return { status: 'failed', message: safeText(engine, ending.message, run.session.workspace_path) };
  }
}

/** Ends a turn whose model has said all, unless a message for it came at the last moment: null then. */
export async function completeTurn(engine: Engine, run: TurnBase, stopReason: TurnStopReason): Promise<TurnEnd | null> {
  const ending = { status: 'completed', stop_reason: stopReason } as const;
  const closing = await closeCalls(engine, run, FAILED_TEXT);
  return (await storeEnd(engine, run, ending, { closing, unread: 0 })) ? ending : null;
}

/** False when another number of messages than `unread` waits for the turn. */
async function storeEnd(
  engine: Engine,
  run: TurnBase,
  ending: Ending,
  { closing, unread }: { readonly closing: Closing; readonly unread: number },
): Promise<boolean> {
  const { messages, writes, failed } = closing;
  // A fault may have come between an announcement and its call.
  const calls = await openCallOutcomes(engine, run.turn.id);
  const { write, event } = turnEnd(engine, run, ending, unread);
  const emit = [...calls, ...failed, ...messages.map((m) => appended(engine, run, m)), event];
  try {
    await engine.journal.commit({ writes: [...writes, write], emit });
  } catch (error) {
    if (isInputsWaiting(error)) return false;
    throw error;
  }
  messagesStored(run, messages);
  return true;
}

interface Closing extends ReturnType<typeof answerMessages> {
  /** The terminal event of every call that had none. */
  readonly failed: readonly EventDraft[];
}

/**
 * Answers what the newest message still waits for: with the stored results, and with `text` where there is none.
 * The store is asked, since a fault may have come between a result and this turn's own memory of it.
 */
async function closeCalls(engine: Engine, run: TurnBase, text: string): Promise<Closing> {
  const calls = unanswered(run);
  if (calls.length === 0) return { messages: [], writes: [], failed: [] };
  const results = await storedResults(engine, run.turn.id);
  const called = await startedCalls(engine, run.turn.id);
  const missing = calls.filter((call) => !results.has(call.id));
  toolCallsSettled(run, missing.length);
  const failed = missing.map((call) =>
    draft({
      type: 'tool.failed',
      session_id: run.session.id,
      turn_id: run.turn.id,
      parent: called.get(call.id)?.event_id ?? run.call_event_id,
      payload: { tool_use_id: call.id, error_class: 'cancelled', error_message: text, latency_ms: 0 },
    }),
  );
  return { ...answerMessages(engine, run, calls, { results, missing: text }), failed };
}

/** Tool calls of the turn's newest complete message that no stored tool message answers yet (01 §6.2). */
function unanswered(run: TurnBase) {
  const at = run.history.findLastIndex((m) => m.role === 'assistant' && m.metadata.status === 'complete');
  const asked: StoredMessage | undefined = run.history[at];
  if (!asked || asked.turn_id !== run.turn.id) return [];
  const answered = new Set(run.history.slice(at + 1).map((m) => m.metadata.parent_tool_use_id));
  return toolUses(asked.content).filter((call) => !answered.has(call.id));
}
