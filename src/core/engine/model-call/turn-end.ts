// Builds the end of a turn: its row and its one terminal event. Every end of every turn is built here.

import { DAY_MS } from '#core/policy/analytics/rollup.ts';
import { UNKNOWN_OUTCOME } from '#core/policy/delegation/active-time.ts';
import { buildTreeCost } from '#core/policy/learning/forecast.ts';
import type { TurnOutcome, Write } from '#core/ports/journal-writer.ts';
import type { Cancelled } from '#protocol/abort.ts';
import type { LlmCallCompleted } from '#protocol/event/turn-events.ts';
import { type AnyEvent, draft, type EventDraft } from '#protocol/event.ts';
import { type SessionId, type TurnId, ulidFloor, ulidTime } from '#protocol/ids.ts';
import { fromPusd, sumPusd } from '#protocol/money.ts';
import type { ErrorClass } from '#protocol/scalars.ts';
import type { SessionRecord } from '#protocol/session.ts';
import type { TurnErrorCode, TurnStopReason } from '#protocol/turn.ts';
import { closeOpenApprovals } from '../approval/approve-call.ts';
import { type Delegations, type Runtime, type Storage, safeText } from '../state/engine.ts';
import type { TurnBase, TurnCounts, TurnPlan, TurnProgress } from '../state/turn-run.ts';

// Model calls that were announced and never settled: each gets its one outcome, however its turn ends (00 §3 step 4).

/**
 * Closes every call that was open when its process or its loop died, as failed; whether it was billed is unknown.
 * @param turnId absent = of every open turn
 */
export async function closeOpenModelCalls(engine: Storage, turnId?: TurnId): Promise<void> {
  const open = await engine.store.events.openCalls(turnId);
  const ofClients = turnId === undefined ? await listOpenGatewayCalls(engine) : [];
  for (const call of [...open, ...ofClients]) await engine.journal.commit({ emit: [unknownOutcome(call)] });
}

/** Closes the calls of a tree that was just claimed: those of its open turns, and the gateway's. */
export async function closeModelCallsInTree(engine: Storage, root: SessionId): Promise<void> {
  for (const { id } of await engine.store.turns.allOpen(root)) await closeOpenModelCalls(engine, id);
  const session = await engine.store.sessions.record(root);
  if (session?.door !== 'gateway') return;
  for (const call of await listOpenGatewayCalls(engine, root))
    await engine.journal.commit({ emit: [unknownOutcome(call)] });
}

/** Key in `meta`: an event id up to which every call has its outcome. */
const SETTLED_THROUGH = 'calls_settled_through';

/** Written by an orderly shutdown: no call runs any more, and the next start need not search before this event. */
export async function storeSettledMark({ store, journal }: Storage): Promise<void> {
  const value = await store.events.newestId();
  if (value !== null && value !== (await store.meta(SETTLED_THROUGH)))
    await journal.commit({ writes: [{ kind: 'meta.set', key: SETTLED_THROUGH, value }], emit: [] });
}

/** Every call times out long before this: older calls have their outcome. */
const LONGEST_CALL_MS = 2 * DAY_MS;

/** Calls without a turn, searched for among recent events. */
async function listOpenGatewayCalls({ store }: Pick<Storage, 'store'>, root?: SessionId): Promise<readonly AnyEvent[]> {
  const newest = await store.events.newestId();
  if (newest === null) return [];
  const recent = ulidFloor(Math.max(0, ulidTime(newest) - LONGEST_CALL_MS));
  const settled = (await store.meta(SETTLED_THROUGH)) ?? '';
  return store.events.openGatewayCalls(settled > recent ? settled : recent, root);
}

/** Closes the turn's model calls in the batch that ends the turn: nothing of the turn can be stored afterwards. */
export async function readOpenCallOutcomes(
  engine: Pick<Storage, 'store'>,
  turnId: TurnId,
): Promise<readonly EventDraft[]> {
  return (await engine.store.events.openCalls(turnId)).map(unknownOutcome);
}

function unknownOutcome(call: AnyEvent): EventDraft {
  const started = call.payload as unknown as Pick<
    LlmCallCompleted,
    'model' | 'provider' | 'request_id' | 'is_worker' | 'parent_session_id' | 'root_session_id'
  >;
  return draft({
    type: 'llm.call_failed',
    session_id: call.session_id,
    turn_id: call.turn_id as TurnId | null,
    parent: call.id,
    payload: {
      model: started.model,
      provider: started.provider,
      error_class: 'other',
      error_message_redacted: UNKNOWN_OUTCOME,
      retry_count: 0,
      latency_ms: 0,
      request_id: started.request_id,
      is_worker: started.is_worker,
      parent_session_id: started.parent_session_id,
      root_session_id: started.root_session_id,
    },
  });
}

/** How a turn ends. */
export type Ending =
  | { readonly status: 'completed'; readonly stop_reason: TurnStopReason }
  | { readonly status: 'cancelled'; readonly by: Cancelled }
  | {
      readonly status: 'failed';
      readonly error_code: TurnErrorCode;
      /** The raw text; secrets are removed here. */
      readonly message: string;
      readonly error_class: ErrorClass | null;
      readonly retryable: boolean;
    };

/**
 * The writes and the event that end the turn, for one batch.
 * @param run its figures as they are once that batch is stored
 * @param unread messages for the turn that it has not read
 */
export function buildTurnEnd(engine: Runtime, run: TurnBase, ending: Ending, unread: number): TurnEnding {
  const seconds = Math.max(0, Math.round(engine.clock.monotonic() - run.started_monotonic) / 1000);
  const outcome: TurnOutcome = {
    status: ending.status,
    stop_reason: ending.status === 'completed' ? ending.stop_reason : null,
    cancel_reason: ending.status === 'cancelled' ? ending.by.reason : null,
    error_code: null,
    error_class: null,
    error_message: null,
    retryable: null,
    ...(ending.status === 'failed' && {
      error_code: ending.error_code,
      error_class: ending.error_class,
      error_message: safeText(engine, ending.message, run.session.workspace_path),
      retryable: ending.retryable,
    }),
    llm_call_count: run.tally.llm_calls,
    tool_call_count: run.tally.tool_calls,
    wall_time_seconds: seconds,
    final_message_id: run.final_message_id,
    ended_at: engine.clock.now(),
  };
  const cost = describeTreeCost(run, outcome);
  return {
    writes: [
      { kind: 'turn.end', turn_id: run.turn.id, session_id: run.session.id, outcome, unread_inputs: unread },
      ...(cost === null ? [] : [{ kind: 'tree_cost.insert' as const, cost }]),
    ],
    event: terminalEvent(run, ending, outcome, unread),
    cost,
  };
}

interface TurnEnding {
  readonly writes: readonly Write[];
  readonly event: EventDraft;
  /** What the turn cost with its workers, for the forecasts of later ones; null for a turn that teaches nothing. */
  readonly cost: ReturnType<typeof buildTreeCost> | null;
}

/** Of a completed top-level turn; its workers have ended before it (21 §1). */
function describeTreeCost(
  { session, turn, tally, tree }: TurnBase,
  { status, ended_at }: TurnOutcome,
): ReturnType<typeof buildTreeCost> | null {
  const { shape_sig, chosen_model, chosen_effort, forecast } = turn;
  if (status !== 'completed' || session.is_worker || shape_sig === null || chosen_model === null) return null;
  return buildTreeCost({
    id: turn.id,
    workspace_path: session.workspace_path,
    is_worker: false,
    shape_sig,
    chosen_model,
    chosen_effort,
    cost_pusd: sumPusd([tally.cost_pusd, tree.workers_pusd]),
    forecast,
    ended_at,
  });
}

function terminalEvent(
  run: TurnPlan & TurnCounts & Pick<TurnProgress, 'conclusion_message'>,
  ending: Ending,
  outcome: TurnOutcome,
  unread_inputs: number,
): EventDraft {
  const { tally, session } = run;
  const place = { session_id: session.id, turn_id: run.turn.id, parent: run.started_event_id };
  const partial = {
    partial_llm_calls: tally.llm_calls,
    partial_tool_calls: tally.tool_calls,
    total_cost_usd: fromPusd(tally.cost_pusd),
    parent_session_id: session.parent_session_id,
    unread_inputs,
  };
  switch (ending.status) {
    case 'completed':
      return draft({
        ...place,
        type: 'turn.completed',
        payload: {
          stop_reason: ending.stop_reason,
          llm_call_count: tally.llm_calls,
          tool_call_count: tally.tool_calls,
          total_input_tokens: tally.input_tokens,
          total_output_tokens: tally.output_tokens,
          total_cached_input_tokens: tally.cached_input_tokens,
          total_cache_creation_input_tokens: tally.cache_creation_input_tokens,
          total_cost_usd: fromPusd(tally.cost_pusd),
          wall_time_seconds: outcome.wall_time_seconds ?? 0,
          parent_session_id: session.parent_session_id,
          unread_inputs,
          concluded: run.conclusion_message !== null && ending.stop_reason !== 'budget_exceeded',
        },
      });
    case 'cancelled':
      return draft({
        ...place,
        type: 'turn.cancelled',
        actor: ending.by.reason === 'user_cancel' ? 'user' : 'system',
        payload: { reason: ending.by.reason, reason_detail: ending.by.detail, ...partial },
      });
    case 'failed':
      return draft({
        ...place,
        type: 'turn.failed',
        payload: {
          error_code: ending.error_code,
          error_message: outcome.error_message ?? '',
          retryable: ending.retryable,
          error_class: ending.error_class,
          ...partial,
        },
      });
  }
}

// Closes the open work of a turn whose loop is gone, before the turn itself is closed (04 §13).

/** Ends the turn's workers, approvals and model calls. None of them runs any more. */
export async function closeOpenParts(
  engine: Runtime & Storage & Delegations,
  { root_session_id }: Pick<SessionRecord, 'root_session_id'>,
  turnId: TurnId,
  reason: Cancelled,
): Promise<void> {
  await engine.workers.closeUnder(turnId, reason);
  await closeOpenApprovals(engine, root_session_id, (row) => row.turn_id === turnId);
  await closeOpenModelCalls(engine, turnId);
}
