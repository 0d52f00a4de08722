// A turn: one user message and everything done to answer it (01 §8).
import { z } from 'zod';
import type { MessageId } from './ids.ts';
import { RoutingModeSchema, type TextBlock } from './message.ts';
import { PersonRefSchema } from './people/person.ts';
import {
  CountSchema,
  type Effort,
  EffortSchema,
  ErrorClassSchema,
  MessageIdSchema,
  SessionIdSchema,
  TimeSchema,
  TurnIdSchema,
  UlidSchema,
  UsdSchema,
} from './scalars.ts';
import type { Forecast } from './what-if/cost-ahead.ts';

export const TurnStatusSchema = z.enum(['in_flight', 'cancelling', 'interrupted', 'completed', 'cancelled', 'failed']);
export type TurnStatus = z.infer<typeof TurnStatusSchema>;
export const CancelReasonSchema = z.enum(['user_cancel', 'timeout', 'shutdown']);
export const InterruptedReasonSchema = z.enum(['restart', 'budget']);
export const TurnStopReasonSchema = z.enum(['end_turn', 'max_tokens', 'stop_sequence', 'tool_use', 'budget_exceeded']);
export type TurnStopReason = z.infer<typeof TurnStopReasonSchema>;
export const TurnErrorCodeSchema = z.enum(['provider_error', 'model_not_configured', 'internal_error']);
export type TurnErrorCode = z.infer<typeof TurnErrorCodeSchema>;

/** A message sent to a turn while it runs, until the turn reads it (20 §4). */
export const TurnInputSchema = z.object({ id: UlidSchema, text: z.string(), submitted_at: TimeSchema });
export type TurnInput = z.infer<typeof TurnInputSchema>;

/** The same as it is stored. */
export interface TurnInputRecord {
  readonly id: string;
  readonly session_id: z.infer<typeof SessionIdSchema>;
  readonly turn_id: z.infer<typeof TurnIdSchema>;
  readonly content: readonly TextBlock[];
  /** Unix milliseconds. */
  readonly submitted_at: number;
}
/** That may wait for one turn. */
export const MAX_TURN_INPUTS = 20;

/** A user's score of an ended turn (12 §12.8). */
export const UserScoreSchema = z.object({
  score: z.number().min(0).max(1),
  comment: z.string().nullable(),
  scored_at: TimeSchema,
});
export type UserScore = z.infer<typeof UserScoreSchema>;

/** The limit that refused the turn's last call, with the amounts of that moment (14 §3). */
export const BudgetRefusalSchema = z.object({
  scope: z.string(),
  limit_usd: UsdSchema,
  spent_usd: UsdSchema,
  reserved_usd: UsdSchema,
  needed_usd: UsdSchema,
  /** The smallest limit that lets the call pass. */
  sufficient_limit_usd: UsdSchema,
});

export const TurnSchema = z.object({
  id: TurnIdSchema,
  session_id: SessionIdSchema,
  user_message_id: MessageIdSchema,
  status: TurnStatusSchema,
  per_message_override: z.string().nullable(),
  chosen_model: z.string().nullable(),
  /** Null where the model has no efforts. */
  chosen_effort: EffortSchema.nullable(),
  provider: z.string().nullable(),
  routing_mode: RoutingModeSchema.nullable(),
  stop_reason: TurnStopReasonSchema.nullable(),
  cancel_reason: CancelReasonSchema.nullable(),
  interrupted_reason: InterruptedReasonSchema.nullable(),
  error_code: TurnErrorCodeSchema.nullable(),
  error_class: ErrorClassSchema.nullable(),
  error_message: z.string().nullable(),
  retryable: z.boolean().nullable(),
  /** Null unless a limit ended the turn or interrupted it. */
  budget_refusal: BudgetRefusalSchema.nullable(),
  llm_call_count: CountSchema,
  tool_call_count: CountSchema,
  total_input_tokens: CountSchema,
  total_cached_input_tokens: CountSchema,
  total_cache_creation_input_tokens: CountSchema,
  total_output_tokens: CountSchema,
  /** Its own calls. */
  total_cost_usd: UsdSchema,
  /** Calls of the workers it opened, and of those below them. */
  workers_cost_usd: UsdSchema,
  started_at: TimeSchema,
  ended_at: TimeSchema.nullable(),
  wall_time_seconds: z.number().nullable(),
  final_message_id: MessageIdSchema.nullable(),
  output: z.union([z.string(), z.record(z.string(), z.unknown())]).nullable(),
  worker_session_ids: z.array(SessionIdSchema),
  /** Messages that were sent to it and that it has not read: it still may while it is open. */
  unread_inputs: CountSchema,
  inputs: z.array(TurnInputSchema),
  /** Null unless a person scored it. */
  user_score: UserScoreSchema.nullable(),
  /** The named token that sent its message (23 §1). */
  submitted_by: PersonRefSchema.optional(),
});
/** The wire object. */
export type Turn = z.infer<typeof TurnSchema>;

/** The stored record. Times are Unix milliseconds. */
export interface TurnRecord {
  readonly id: Turn['id'];
  readonly session_id: Turn['session_id'];
  readonly user_message_id: Turn['user_message_id'];
  readonly status: TurnStatus;
  readonly per_message_override: string | null;
  readonly chosen_model: string | null;
  readonly chosen_effort: Effort | null;
  readonly provider: string | null;
  readonly routing_mode: Turn['routing_mode'];
  readonly stop_reason: Turn['stop_reason'];
  readonly cancel_reason: Turn['cancel_reason'];
  readonly interrupted_reason: Turn['interrupted_reason'];
  readonly error_code: Turn['error_code'];
  readonly error_class: Turn['error_class'];
  readonly error_message: string | null;
  readonly retryable: boolean | null;
  readonly llm_call_count: number;
  readonly tool_call_count: number;
  readonly started_at: number;
  readonly ended_at: number | null;
  readonly wall_time_seconds: number | null;
  readonly final_message_id: Turn['final_message_id'];
  /** Names of the tools offered, fixed for the turn. */
  readonly tools: readonly string[];
  readonly resume_attempts: number;
  /** When it was asked to answer with what it has (20 §3). */
  readonly concluded_at: number | null;
  /** The message that asks for it, behind which one last model call is made. */
  readonly conclusion_message_id: MessageId | null;
  /** Id of the token that sent its message; of a worker's turn, that of the turn which spawned it. */
  readonly submitted_by: string | null;
  /** Of its fingerprint without the workspace; null where nothing is learned of it. */
  readonly shape_sig: string | null;
  /** What it was expected to cost with its workers when it started; of top-level turns alone (21 §1). */
  readonly forecast: Forecast | null;
}

export const OPEN_TURN_STATUSES = ['in_flight', 'cancelling', 'interrupted'] as const satisfies readonly TurnStatus[];
