// The event envelope and the closed catalog: type -> payload schema, sensitivity, usual actor (02 §1, §9).
import { z } from 'zod';
import {
  ContextCompactedSchema,
  EvalCompletedSchema,
  MemoryUpdatedSchema,
  PatternRecordedSchema,
  SessionCreatedSchema,
  SessionEndedSchema,
  SkillLoadedSchema,
  WorkerCreatedSchema,
} from './event/session-events.ts';
import {
  DelegateCheckedSchema,
  DelegateCompletedSchema,
  DelegateDeliveredSchema,
  DelegateFailedSchema,
  DelegateStartedSchema,
  ToolCalledSchema,
  ToolCompletedSchema,
  ToolConfirmationRequestedSchema,
  ToolConfirmationResolvedSchema,
  ToolFailedSchema,
  ToolInputInvalidSchema,
} from './event/tool-events.ts';
import {
  BudgetSchema,
  LlmCallCompletedSchema,
  LlmCallFailedSchema,
  LlmCallStartedSchema,
  ProviderRecoveredSchema,
  ProviderUnavailableSchema,
  RouteDecidedSchema,
  RoutingPolicyInvalidSchema,
  TurnCancelledSchema,
  TurnCompletedSchema,
  TurnFailedSchema,
  TurnResumedSchema,
  TurnStartedSchema,
  TurnSteeredSchema,
} from './event/turn-events.ts';
import { EventIdSchema, TimeSchema, TurnIdSchema } from './scalars.ts';
import { DelegatePricedSchema } from './what-if/cost-ahead.ts';

export const ActorSchema = z.enum(['user', 'agent', 'system', 'tool', 'worker']);
export type Actor = z.infer<typeof ActorSchema>;
export const SensitivitySchema = z.enum(['private', 'pseudonymous']);
export type Sensitivity = z.infer<typeof SensitivitySchema>;

/** Session id of events that belong to no session. */
export const SYSTEM_SESSION = 'system';

interface EventKind {
  readonly payload: z.ZodObject;
  readonly sensitivity: Sensitivity;
  /** The usual actor; a draft may name another, and every event of a worker session has `worker`. */
  readonly actor: Actor;
}

export const CATALOG = {
  'session.created': { payload: SessionCreatedSchema, sensitivity: 'pseudonymous', actor: 'system' },
  'session.ended': { payload: SessionEndedSchema, sensitivity: 'pseudonymous', actor: 'system' },
  'turn.started': { payload: TurnStartedSchema, sensitivity: 'private', actor: 'user' },
  'turn.completed': { payload: TurnCompletedSchema, sensitivity: 'pseudonymous', actor: 'agent' },
  'turn.cancelled': { payload: TurnCancelledSchema, sensitivity: 'private', actor: 'system' },
  'turn.failed': { payload: TurnFailedSchema, sensitivity: 'pseudonymous', actor: 'system' },
  'turn.resumed': { payload: TurnResumedSchema, sensitivity: 'pseudonymous', actor: 'system' },
  'turn.steered': { payload: TurnSteeredSchema, sensitivity: 'pseudonymous', actor: 'user' },
  'route.decided': { payload: RouteDecidedSchema, sensitivity: 'pseudonymous', actor: 'system' },
  'routing.policy_invalid': { payload: RoutingPolicyInvalidSchema, sensitivity: 'pseudonymous', actor: 'system' },
  'routing.provider_unavailable': { payload: ProviderUnavailableSchema, sensitivity: 'pseudonymous', actor: 'system' },
  'routing.provider_recovered': { payload: ProviderRecoveredSchema, sensitivity: 'pseudonymous', actor: 'system' },
  'llm.call_started': { payload: LlmCallStartedSchema, sensitivity: 'private', actor: 'agent' },
  'llm.call_completed': { payload: LlmCallCompletedSchema, sensitivity: 'pseudonymous', actor: 'agent' },
  'llm.call_failed': { payload: LlmCallFailedSchema, sensitivity: 'pseudonymous', actor: 'agent' },
  'tool.called': { payload: ToolCalledSchema, sensitivity: 'private', actor: 'agent' },
  'tool.completed': { payload: ToolCompletedSchema, sensitivity: 'private', actor: 'tool' },
  'tool.failed': { payload: ToolFailedSchema, sensitivity: 'private', actor: 'tool' },
  'tool.input_invalid': { payload: ToolInputInvalidSchema, sensitivity: 'private', actor: 'system' },
  'tool.confirmation_requested': { payload: ToolConfirmationRequestedSchema, sensitivity: 'private', actor: 'system' },
  'tool.confirmation_resolved': { payload: ToolConfirmationResolvedSchema, sensitivity: 'private', actor: 'user' },
  'delegate.started': { payload: DelegateStartedSchema, sensitivity: 'pseudonymous', actor: 'system' },
  'delegate.priced': { payload: DelegatePricedSchema, sensitivity: 'pseudonymous', actor: 'system' },
  'delegate.checked': { payload: DelegateCheckedSchema, sensitivity: 'pseudonymous', actor: 'system' },
  'delegate.completed': { payload: DelegateCompletedSchema, sensitivity: 'private', actor: 'system' },
  'delegate.delivered': { payload: DelegateDeliveredSchema, sensitivity: 'pseudonymous', actor: 'system' },
  'delegate.failed': { payload: DelegateFailedSchema, sensitivity: 'private', actor: 'system' },
  'memory.updated': { payload: MemoryUpdatedSchema, sensitivity: 'private', actor: 'agent' },
  'skill.loaded': { payload: SkillLoadedSchema, sensitivity: 'pseudonymous', actor: 'system' },
  'context.compacted': { payload: ContextCompactedSchema, sensitivity: 'pseudonymous', actor: 'system' },
  'pattern.recorded': { payload: PatternRecordedSchema, sensitivity: 'pseudonymous', actor: 'system' },
  'eval.completed': { payload: EvalCompletedSchema, sensitivity: 'pseudonymous', actor: 'system' },
  'worker.created': { payload: WorkerCreatedSchema, sensitivity: 'private', actor: 'agent' },
  'budget.warning': { payload: BudgetSchema, sensitivity: 'pseudonymous', actor: 'system' },
  'budget.exceeded': { payload: BudgetSchema, sensitivity: 'pseudonymous', actor: 'system' },
} as const satisfies Record<string, EventKind>;

export type EventType = keyof typeof CATALOG;
export const EVENT_TYPES = Object.keys(CATALOG) as EventType[];
export type PayloadOf<T extends EventType> = z.infer<(typeof CATALOG)[T]['payload']>;

export const TERMINAL_TURN_EVENTS = [
  'turn.completed',
  'turn.failed',
  'turn.cancelled',
] as const satisfies readonly EventType[];
export const TERMINAL_TOOL_EVENTS = [
  'tool.completed',
  'tool.failed',
  'tool.input_invalid',
] as const satisfies readonly EventType[];

/** The envelope as it is stored and sent. */
export interface Event<T extends EventType = EventType> {
  readonly id: z.infer<typeof EventIdSchema>;
  readonly timestamp: string;
  /** A session id, or `system`. */
  readonly session_id: string;
  readonly turn_id: z.infer<typeof TurnIdSchema> | null;
  readonly parent_event_id: z.infer<typeof EventIdSchema> | null;
  readonly type: T;
  readonly actor: Actor;
  readonly payload: PayloadOf<T>;
  readonly sensitivity: Sensitivity;
}

/** An event of any type, known to this version or not, as a reader meets it in an older or newer database. */
export const AnyEventSchema = z.object({
  id: EventIdSchema,
  timestamp: TimeSchema,
  session_id: z.string(),
  turn_id: TurnIdSchema.nullable(),
  parent_event_id: EventIdSchema.nullable(),
  type: z.string(),
  actor: ActorSchema,
  payload: z.record(z.string(), z.unknown()),
  sensitivity: SensitivitySchema,
});
export type AnyEvent = z.infer<typeof AnyEventSchema>;

/** An event as a writer supplies it; id and time are assigned inside the commit. */
export interface EventDraft<T extends EventType = EventType> {
  readonly type: T;
  readonly session_id: string;
  readonly turn_id: z.infer<typeof TurnIdSchema> | null;
  /** The id of a stored event, or the index of an earlier event draft in the same batch. */
  readonly parent: z.infer<typeof EventIdSchema> | number | null;
  /** Defaults to the catalog's usual actor. */
  readonly actor?: Actor;
  readonly payload: PayloadOf<T>;
}

/** Types a draft and its payload together. */
export function draft<T extends EventType>(event: EventDraft<T>): EventDraft {
  return event as unknown as EventDraft;
}

/** The event union as one zod schema: validates a stored event of a known type strictly. */
export const EventSchema = z.discriminatedUnion(
  'type',
  EVENT_TYPES.map((type) =>
    AnyEventSchema.extend({
      type: z.literal(type),
      payload: CATALOG[type].payload,
      sensitivity: z.literal(CATALOG[type].sensitivity),
    }),
  ) as unknown as [z.ZodObject<{ type: z.ZodLiteral<EventType> }>],
);
