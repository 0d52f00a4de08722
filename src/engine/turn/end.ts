// The three ways a turn ends: each is one transaction with the one terminal event (00 §3 step 7), which an answer
// without tool calls shares with its call.

import { draft, type EventDraft } from '../../domain/event.ts';
import { type StoredMessage, toolUses } from '../../domain/message.ts';
import type { ErrorClass } from '../../domain/scalars.ts';
import type { TurnErrorCode, TurnStopReason } from '../../domain/turn.ts';
import { cancelledBy } from '../../kernel/abort.ts';
import { fromPusd } from '../../kernel/money.ts';
import { openCallOutcomes } from '../closing/close-model-calls.ts';
import type { Ending } from '../closing/turn-end-records.ts';
import { completed, turnEnd, wallTime } from '../closing/turn-end-records.ts';
import { appended } from '../model-call/deltas.ts';
import { type Engine, safeText } from '../state/engine.ts';
import type { TurnBase, TurnEnd } from '../state/turn-run.ts';
import { answerMessages, CANCELLED_TEXT, FAILED_TEXT, startedCalls, storedResults } from '../tool-call/results.ts';

export async function completeTurn(engine: Engine, run: TurnBase, stopReason: TurnStopReason): Promise<TurnEnd> {
  const seconds = wallTime(engine, run);
  const closing = await closeCalls(engine, run, FAILED_TEXT);
  const ending = { status: 'completed', stop_reason: stopReason } as const;
  await end(engine, run, { ending, seconds, closing, terminal: completed(run, stopReason, seconds) });
  return ending;
}

/** @param text what a tool call without a result is answered with */
export async function cancelTurnRun(engine: Engine, run: TurnBase, text = CANCELLED_TEXT): Promise<TurnEnd> {
  const { reason, detail } = cancelledBy(run.signal);
  const closing = await closeCalls(engine, run, text);
  await end(engine, run, {
    ending: { status: 'cancelled', cancel_reason: reason },
    seconds: wallTime(engine, run),
    closing,
    terminal: draft({
      type: 'turn.cancelled',
      session_id: run.session.id,
      turn_id: run.turn.id,
      parent: run.started_event_id,
      actor: reason === 'user_cancel' ? 'user' : 'system',
      payload: {
        reason,
        reason_detail: detail,
        partial_llm_calls: run.tally.llm_calls,
        partial_tool_calls: run.tally.tool_calls,
        total_cost_usd: fromPusd(run.tally.cost_pusd),
        parent_session_id: run.session.parent_session_id,
      },
    }),
  });
  return { status: 'cancelled', reason };
}

export async function failTurn(
  engine: Engine,
  run: TurnBase,
  fault: {
    readonly error_code: TurnErrorCode;
    readonly message: string;
    readonly error_class: ErrorClass | null;
    readonly retryable: boolean;
  },
): Promise<TurnEnd> {
  const message = safeText(engine, fault.message, run.session.workspace_path);
  const { error_code, error_class, retryable } = fault;
  const closing = await closeCalls(engine, run, FAILED_TEXT);
  await end(engine, run, {
    ending: { status: 'failed', error_code, error_class, error_message: message, retryable },
    seconds: wallTime(engine, run),
    closing,
    terminal: draft({
      type: 'turn.failed',
      session_id: run.session.id,
      turn_id: run.turn.id,
      parent: run.started_event_id,
      payload: {
        error_code,
        error_message: message,
        retryable,
        error_class,
        partial_llm_calls: run.tally.llm_calls,
        partial_tool_calls: run.tally.tool_calls,
        total_cost_usd: fromPusd(run.tally.cost_pusd),
        parent_session_id: run.session.parent_session_id,
      },
    }),
  });
  return { status: 'failed', message };
}

async function end(
  engine: Engine,
  run: TurnBase,
  how: {
    readonly ending: Ending;
    readonly seconds: number;
    readonly closing: Closing;
    readonly terminal: EventDraft;
  },
): Promise<void> {
  const { messages, writes, failed } = how.closing;
  // A fault may have come between an announcement and its call.
  const calls = await openCallOutcomes(engine, run.turn.id);
  await engine.journal.commit({
    writes: [...writes, turnEnd(engine, run, how.ending, how.seconds)],
    emit: [...calls, ...failed, ...messages.map((m) => appended(engine, run, m)), how.terminal],
  });
  run.history.push(...messages);
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
  run.tally.tool_calls += missing.length;
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
