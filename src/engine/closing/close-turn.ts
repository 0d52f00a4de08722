// Ending a turn that nobody runs any more: after a crash, or when it was interrupted and is not wanted back (04 §13).
import type { DelegationRecord } from '../../domain/delegate.ts';
import { draft, type EventDraft } from '../../domain/event.ts';
import type { StoredMessage, ToolResultBlock } from '../../domain/message.ts';
import { plainMetadata } from '../../domain/message.ts';
import type { SessionRecord } from '../../domain/session.ts';
import type { TurnRecord } from '../../domain/turn.ts';
import { Cancelled } from '../../kernel/abort.ts';
import { isoTime } from '../../kernel/clock.ts';
import type { EventId, ToolUseId, TurnId } from '../../kernel/ids.ts';
import { fromPusd } from '../../kernel/money.ts';
import type { DelegateOutcome } from '../../policy/delegation/outcome.ts';
import type { Write } from '../../ports/journal.ts';
import type { ToolCallState } from '../../ports/store.ts';
import { closeDelegation } from '../delegation/close.ts';
import type { Engine } from '../state/engine.ts';
import { CANCELLED_TEXT, errorResult, RESTART_TEXT, startedCalls } from '../tool-call/results.ts';
import { withoutRaw } from '../turn/admit.ts';
import { closeOpenCalls } from './close-model-calls.ts';
import { closeOpenPrompts } from './close-prompts.ts';

const SHUTDOWN = new Cancelled('shutdown');
/** Why something is ended over a fault of the journal. */
export const FAULT = new Cancelled('shutdown', 'internal error');

/**
 * Ends the session's open turn, if it has one, with everything below it. For a caller that holds the session's lock:
 * such a turn was interrupted, or lost its loop to a fault of the journal.
 */
export async function endOpenTurn(engine: Engine, session: SessionRecord, reason: Cancelled = SHUTDOWN): Promise<void> {
  const turn = await engine.store.turns.open(session.id);
  if (turn) await endUnfinishedTurn(engine, session, turn, reason);
}

/**
 * Ends a turn that has no running loop: its workers first, deepest first, then its open calls with a synthetic result,
 * then the one terminal event (01 §11.5). Doing it twice changes nothing.
 */
export async function endUnfinishedTurn(
  engine: Engine,
  session: SessionRecord,
  turn: TurnRecord,
  reason: Cancelled,
): Promise<void> {
  await closeOpenParts(engine, turn.id, reason);
  const calls = await engine.store.turns.toolCalls(turn.id);
  // A call of a message that was cut off was never dispatched and gets no answer (01 §6.2).
  const open = calls.filter((c) => !c.answered && !(c.status === 'cancelled' && c.result === null));
  const totals = await engine.store.turns.totals(turn.id);
  const started = await engine.store.events.lastOfTurn(turn.id, ['turn.started']);
  const asked = await engine.store.events.lastOfTurn(turn.id, ['llm.call_completed']);
  const called = await startedCalls(engine, turn.id);
  const history = await engine.store.messages.history(turn.session_id);
  const last = history.findLast((m) => m.role === 'assistant' && m.turn_id === turn.id);
  const now = engine.clock.now();
  const answers = open.map((call) =>
    answer(engine, turn, call, reason, called.get(call.id)?.event_id ?? asked?.id ?? null),
  );
  const seconds = Math.max(0, now - turn.started_at) / 1000;
  const toolCalls = calls.filter((c) => c.answered).length + open.length;
  const unsettled = answers.filter((a) => a.failed !== null);
  await engine.journal.commit({
    writes: [
      ...answers.flatMap((a) => a.writes),
      {
        kind: 'turn.end',
        turn_id: turn.id,
        session_id: turn.session_id,
        outcome: {
          status: 'cancelled',
          stop_reason: null,
          cancel_reason: reason.reason,
          error_code: null,
          error_class: null,
          error_message: null,
          retryable: null,
          llm_call_count: totals.calls,
          tool_call_count: toolCalls,
          wall_time_seconds: seconds,
          final_message_id: last?.id ?? null,
          ended_at: now,
        },
      },
    ],
    emit: [
      ...unsettled.map((a) => a.failed!),
      ...answers.map((a) => ({
        session_id: turn.session_id,
        turn_id: turn.id,
        timestamp: now,
        delta: { type: 'message.appended' as const, payload: { message: withoutRaw(a.message) } },
      })),
      draft({
        type: 'turn.cancelled',
        session_id: turn.session_id,
        turn_id: turn.id,
        parent: started?.id ?? null,
        actor: reason.reason === 'user_cancel' ? 'user' : 'system',
        payload: {
          reason: reason.reason,
          reason_detail: reason.detail,
          partial_llm_calls: totals.calls,
          partial_tool_calls: toolCalls,
          total_cost_usd: fromPusd(totals.cost_pusd),
          parent_session_id: session.parent_session_id,
        },
      }),
    ],
  });
}

/** What must have its end before the turn has: its workers, its prompts, its model calls. None of it runs any more. */
export async function closeOpenParts(engine: Engine, turnId: TurnId, reason: Cancelled): Promise<void> {
  await endOpenDelegations(engine, turnId, reason);
  await closeOpenPrompts(engine, (row) => row.turn_id === turnId);
  await closeOpenCalls(engine, turnId);
}

/** Ends the workers of a turn that have no running loop, and their delegations. */
export async function endOpenDelegations(engine: Engine, turnId: TurnId, reason: Cancelled): Promise<void> {
  for (const delegation of await engine.store.delegations.open(turnId))
    await endUnfinishedDelegation(engine, delegation, reason);
}

interface Answered {
  readonly message: StoredMessage;
  readonly writes: readonly Write[];
  /** The terminal event of a call that had none. */
  readonly failed: EventDraft | null;
}

function answer(
  engine: Engine,
  turn: TurnRecord,
  call: ToolCallState,
  reason: Cancelled,
  parent: EventId | null,
): Answered {
  const at = engine.clock.now();
  const text = reason.reason === 'shutdown' && reason !== FAULT ? RESTART_TEXT : CANCELLED_TEXT;
  const result: ToolResultBlock = call.result ?? errorResult(call.id, text);
  const message: StoredMessage = {
    id: engine.ids.message(),
    session_id: turn.session_id,
    turn_id: turn.id,
    role: 'tool',
    content: [result],
    metadata: plainMetadata(call.id),
    created_at: isoTime(at),
    provider_raw: null,
  };
  const writes: Write[] = [];
  if (call.result === null) writes.push({ kind: 'tool_call.settle', id: call.id, status: 'cancelled', result, at });
  writes.push(
    { kind: 'message.insert', message },
    { kind: 'tool_call.answer', id: call.id, result_message_id: message.id },
  );
  const failed =
    call.result !== null
      ? null
      : draft({
          type: 'tool.failed',
          session_id: turn.session_id,
          turn_id: turn.id,
          parent,
          payload: { tool_use_id: call.id, error_class: 'cancelled', error_message: text, latency_ms: 0 },
        });
  return { message, writes, failed };
}

/** Ends the delegation of a call that must settle now, if its own end could not be stored. */
export async function endDelegationOf(engine: Engine, toolUseId: ToolUseId, reason: Cancelled): Promise<void> {
  const delegation = await engine.store.delegations.get(toolUseId);
  if (delegation?.ended_at === null) await endUnfinishedDelegation(engine, delegation, reason);
}

/** The worker's open turn, its session, then the delegation itself. Its planner's turn may have ended before (04 §13). */
export async function endUnfinishedDelegation(
  engine: Engine,
  delegation: DelegationRecord,
  reason: Cancelled,
): Promise<void> {
  const session =
    delegation.worker_session_id === null ? null : await engine.store.sessions.record(delegation.worker_session_id);
  if (session) {
    const turn = await engine.store.turns.open(session.id);
    if (turn) await endUnfinishedTurn(engine, session, turn, reason);
  }
  const started = await engine.store.events.ofTurn(delegation.parent_turn_id, ['delegate.started']);
  const event = started.find((e) => e.payload.tool_use_id === delegation.tool_use_id);
  await closeDelegation(
    engine,
    {
      delegation,
      session: session?.ended_at === null ? session : null,
      parent_event: event?.id ?? null,
      opening: null,
    },
    abandoned(reason),
    delegation.active_seconds,
  );
}

function abandoned(reason: Cancelled): DelegateOutcome {
  const restarted = reason.reason === 'shutdown';
  return {
    success: false,
    output: '',
    failure_mode: restarted ? 'worker_error' : 'cancelled_by_user',
    error_message: restarted ? `worker_error: ${reason.detail ?? 'server restarted'}` : 'cancelled_by_user',
    insufficient_context_request: null,
    cancel_scope: restarted ? null : 'planner',
    disposition: restarted ? 'failed' : 'cancelled',
  };
}
