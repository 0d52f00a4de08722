// A session: the record and its wire object (01 §7.1).
import { z } from 'zod';
import type { Pusd } from './money.ts';
import { PersonRefSchema, type Share, ShareSchema } from './people/person.ts';
import {
  ApprovalModeSchema,
  CountSchema,
  DoorSchema,
  EffortSchema,
  ErrorClassSchema,
  MessageIdSchema,
  OnReachedSchema,
  SessionIdSchema,
  Sha256Schema,
  TimeSchema,
  ToolUseIdSchema,
  TurnIdSchema,
  UsdSchema,
  WorkerOriginSchema,
} from './scalars.ts';
import { TurnErrorCodeSchema } from './turn.ts';
import { ForecastSchema } from './what-if/cost-ahead.ts';
import type { WorkerSnapshot } from './worker-definition.ts';

export const SessionStatusSchema = z.enum(['idle', 'running', 'interrupted', 'ended']);
export type SessionStatus = z.infer<typeof SessionStatusSchema>;
export const DispositionSchema = z.enum(['completed', 'failed', 'cancelled']);
export type Disposition = z.infer<typeof DispositionSchema>;
export const OpenTurnStatusSchema = z.enum(['in_flight', 'cancelling', 'interrupted']);

export const PendingModelSchema = z.strictObject({ model: z.string().nullable() });
export const BudgetViewSchema = z.object({
  max_cost_usd: UsdSchema.nullable(),
  spent_usd: UsdSchema,
  reserved_usd: UsdSchema,
  remaining_usd: UsdSchema,
  worker_spent_usd: UsdSchema,
});
export type BudgetView = z.infer<typeof BudgetViewSchema>;

/** A reason why an open turn waits, and its start (20 §6). */
export const WaitingSchema = z.object({
  kind: z.enum(['approval', 'budget', 'model', 'tool', 'worker', 'slot']),
  /** The session that waits. */
  session_id: SessionIdSchema,
  /** The object of the wait: a confirmation, the paused turn, a model call's `request_id`, a tool call, a worker session, the tool call without a place. */
  id: z.string(),
  since: TimeSchema,
});
export type Waiting = z.infer<typeof WaitingSchema>;

/** Why the newest turn failed. */
export const SessionFailureSchema = z.object({
  turn_id: TurnIdSchema,
  error_code: TurnErrorCodeSchema.nullable(),
  error_class: ErrorClassSchema.nullable(),
  message: z.string().nullable(),
  provider: z.string().nullable(),
  model: z.string().nullable(),
  retryable: z.boolean().nullable(),
  failed_at: TimeSchema,
});
export type SessionFailure = z.infer<typeof SessionFailureSchema>;

/** The last message of another session that a session begins with (21 §4). */
export const ForkPointSchema = z.strictObject({ session_id: SessionIdSchema, message_id: MessageIdSchema });
export type ForkPoint = z.infer<typeof ForkPointSchema>;

/** The run of an experiment that a session is (21 §5). */
export const ExperimentPartSchema = z.strictObject({
  /** SHA-256 of the experiment's file. */
  id: Sha256Schema,
  /** Covers all runs of the experiment together. */
  max_cost_usd: UsdSchema,
  /** The model of each tier in place of any routing file; null = as elsewhere. */
  tiers: z.strictObject({ fast: z.string(), balanced: z.string(), deep: z.string() }).nullable(),
  /** False = the planner alone, without tools that call workers. */
  delegate: z.boolean(),
});
export type ExperimentPart = z.infer<typeof ExperimentPartSchema>;

export const SessionSchema = z.object({
  id: SessionIdSchema,
  workspace_path: z.string(),
  active_model: z.string().nullable(),
  pending_active_model: PendingModelSchema.nullable(),
  swap_queued: z.boolean(),
  routing_policy_version: z.string().nullable(),
  cost_so_far_usd: UsdSchema,
  workers_cost_usd: UsdSchema,
  has_unpriced_calls: z.boolean(),
  /** A script answered one of its calls or of its workers': their money is at example prices (08 §5). */
  has_simulated_calls: z.boolean(),
  /** The model of the newest turn. */
  last_model: z.string().nullable(),
  /** Effort of its newest turn. */
  last_effort: EffortSchema.nullable(),
  /** Descendant sessions, and those of them that have not ended. */
  worker_count: CountSchema,
  active_worker_count: CountSchema,
  turn_count: CountSchema,
  current_turn_id: TurnIdSchema.nullable(),
  current_turn_status: OpenTurnStatusSchema.nullable(),
  status: SessionStatusSchema,
  ended_at: TimeSchema.nullable(),
  disposition: DispositionSchema.nullable(),
  created_at: TimeSchema,
  updated_at: TimeSchema,
  parent_session_id: SessionIdSchema.nullable(),
  parent_tool_use_id: ToolUseIdSchema.nullable(),
  is_worker: z.boolean(),
  root_session_id: SessionIdSchema,
  delegation_depth: CountSchema,
  /** The worker with whose prompt and messages it began (20 §3). */
  continues_session_id: SessionIdSchema.nullable(),
  /** Where it was forked; its prompts begin with the messages up to there, its money does not. Null for any other session. */
  forked_from: ForkPointSchema.nullable(),
  /** False = a fork without the tools that need a workspace (21 §4). */
  has_workspace: z.boolean(),
  /** Its model calls are stored so that it can be saved as a case (21 §3). */
  record_case: z.boolean(),
  /** Null for a session of no experiment. `folder`: the copy that the run works on. */
  experiment: ExperimentPartSchema.extend({ folder: z.string().nullable() }).nullable(),
  worker_name: z.string().nullable(),
  worker_digest: z.string().nullable(),
  worker_origin: WorkerOriginSchema.nullable(),
  approval_mode: ApprovalModeSchema,
  door: DoorSchema,
  /** Name of the key that its calls came with; '' = none. */
  caller: z.string(),
  /** The name that the client program gives itself, e.g. `claude-cli`. */
  client: z.string().nullable(),
  /** The client's own name for the session. */
  client_ref: z.string().nullable(),
  /** The token whose session it is (23 §1); null = no named token's. Both are absent where no person owns or shares it. */
  owner: PersonRefSchema.nullable().optional(),
  share: ShareSchema.optional(),
  title: z.string().nullable(),
  /** The task of a worker; its messages only refer to it. Null for a top-level session. */
  task: z.string().nullable(),
  max_cost_usd: UsdSchema.nullable(),
  on_reached: OnReachedSchema,
  budget: BudgetViewSchema.nullable(),
  /** What the running turn is expected to cost with its workers, never below what it has cost; null without enough earlier turns. */
  forecast_usd: ForecastSchema.nullable(),
  /** Delegations of one message above these limits are confirmed before the first starts; null = never. */
  confirm_above_usd: UsdSchema.nullable(),
  confirm_above_workers: CountSchema.nullable(),
  /** Of the newest turn; null where that is open or did not fail. */
  failure: SessionFailureSchema.nullable(),
  /** Of the session and its descendants, oldest first. */
  waiting_on: z.array(WaitingSchema).max(50),
});
/** The wire object. */
export type Session = z.infer<typeof SessionSchema>;

/** The stored record: what the engine works with. Times are Unix milliseconds. */
export interface SessionRecord {
  readonly id: Session['id'];
  readonly workspace_path: string;
  /** The root of its file tools and commands where that is a worktree (20 §2); null = the workspace. */
  readonly tree_path: string | null;
  readonly workspace_hash: string;
  readonly active_model: string | null;
  readonly pending_active_model: { readonly model: string | null } | null;
  readonly routing_policy_version: string | null;
  readonly system_prompt: string | null;
  readonly system_prompt_volatile: string | null;
  readonly turn_count: number;
  readonly disposition: Disposition | null;
  readonly ended_at: number | null;
  readonly parent_session_id: Session['id'] | null;
  readonly parent_tool_use_id: Session['parent_tool_use_id'];
  readonly is_worker: boolean;
  readonly root_session_id: Session['id'];
  readonly delegation_depth: number;
  /** The worker with whose prompt and messages it began: they are read, not copied. */
  readonly continues_session_id: Session['id'] | null;
  /** The session that holds the last message of its prefix, and that message: the prefix is read, not copied. */
  readonly forked_from_session_id: Session['id'] | null;
  readonly forked_from_message_id: ForkPoint['message_id'] | null;
  readonly has_workspace: boolean;
  readonly record_case: boolean;
  /** A worker's is its planner's. */
  readonly experiment: ExperimentPart | null;
  /** The caller's locked model when it delegated. */
  readonly delegated_by_model: string | null;
  readonly worker_name: string | null;
  readonly worker_digest: string | null;
  readonly worker_origin: Session['worker_origin'];
  /** The definition that a named worker's session runs with; later changes of the file do not affect it. */
  readonly worker_definition: WorkerSnapshot | null;
  readonly allow_workers: readonly string[] | null;
  readonly approval_mode: Session['approval_mode'];
  readonly door: Session['door'];
  readonly caller: string;
  readonly client: string | null;
  /** Unique among a caller's top-level sessions, a worker's in its tree. */
  readonly client_ref: string | null;
  /** Id of the token that owns it; of a worker, as its root. */
  readonly owner: string | null;
  readonly share: Share;
  readonly max_cost_pusd: Pusd | null;
  readonly on_reached: Session['on_reached'];
  /** Delegations of one message that may cost more, or are more, are confirmed before the first starts; null = no limit (21 §1). */
  readonly confirm_above_pusd: Pusd | null;
  readonly confirm_above_workers: number | null;
  readonly created_at: number;
  readonly updated_at: number;
}
