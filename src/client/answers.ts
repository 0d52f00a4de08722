// What the operations answer, by the schemas the server sends them with.
import type { z } from 'zod';
import type {
  CostReportSchema,
  CostRow,
  CostTotals,
  QualityReportSchema,
  ReliabilityReportSchema,
  RoutingReportSchema,
  SavingsReportSchema,
} from '../domain/analytics.ts';
import type { AnswerConfirmationReply, ConfirmationListReply } from '../domain/api/confirmations.ts';
import type { DelegationReceiptSchema, DelegationResultSchema } from '../domain/api/delegations.ts';
import type { EventListReply, MessageListReply, WorkerListReply } from '../domain/api/history.ts';
import type {
  CheckRoutingReply,
  ExplainRouteReply,
  ModelListReply,
  PricingReply,
  RoutingPolicyReply,
} from '../domain/api/models.ts';
import type { PatternListReply } from '../domain/api/patterns.ts';
import type { HealthReply, NodeListReply, NodeReply, PruneEventsReply, ReadinessReply } from '../domain/api/server.ts';
import type { EndSessionReply, SessionListReply, UpdateSessionReply } from '../domain/api/sessions.ts';
import type { ToolListReply } from '../domain/api/tools.ts';
import type { TrustReply } from '../domain/api/trust.ts';
import type {
  CancelTurnReply,
  EstimateTurnReply,
  ResumeTurnReply,
  ScoreTurnReply,
  TurnListReply,
  TurnReceipt,
} from '../domain/api/turns.ts';
import type { DefinitionListReply } from '../domain/api/workers.ts';
import type { LoggedEvent } from './events.ts';

export type { Pattern } from '../domain/api/patterns.ts';
export type { TrustedFileInfo } from '../domain/api/trust.ts';
export type { WorkerDetail, WorkerInfo } from '../domain/api/workers.ts';
export type { Confirmation, ConfirmationDetail } from '../domain/confirmation.ts';
export type { Delegation } from '../domain/delegate.ts';
export type { Message } from '../domain/message.ts';
export type { Model } from '../domain/model.ts';
export type { Session } from '../domain/session.ts';
export type { Turn } from '../domain/turn.ts';
export type { CostRow, CostTotals };

export type PatternList = z.infer<typeof PatternListReply>;
export type TrustList = z.infer<typeof TrustReply>;
export type DefinitionList = z.infer<typeof DefinitionListReply>;
export type SessionList = z.infer<typeof SessionListReply>;
export type UpdatedSession = z.infer<typeof UpdateSessionReply>;
export type EndedSession = z.infer<typeof EndSessionReply>;

export type SubmittedTurn = z.infer<typeof TurnReceipt>;
export type TurnList = z.infer<typeof TurnListReply>;
export type TurnEstimate = z.infer<typeof EstimateTurnReply>;
export type TurnCancellation = z.infer<typeof CancelTurnReply>;
export type ScoredTurn = z.infer<typeof ScoreTurnReply>;
export type TurnResumption = z.infer<typeof ResumeTurnReply>;

export type SubmittedDelegation = z.infer<typeof DelegationReceiptSchema>;
export type DelegationResult = z.infer<typeof DelegationResultSchema>;
export type ConfirmationList = z.infer<typeof ConfirmationListReply>;
export type AnsweredConfirmation = z.infer<typeof AnswerConfirmationReply>;

export type MessageList = z.infer<typeof MessageListReply>;
export type EventList = Omit<z.infer<typeof EventListReply>, 'events'> & { readonly events: LoggedEvent[] };
export type ToolList = z.infer<typeof ToolListReply>;
export type WorkerList = z.infer<typeof WorkerListReply>;

export type ModelList = z.infer<typeof ModelListReply>;
export type RoutingPolicy = z.infer<typeof RoutingPolicyReply>;
export type RoutingCheck = z.infer<typeof CheckRoutingReply>;
export type RouteExplanation = z.infer<typeof ExplainRouteReply>;
export type Pricing = z.infer<typeof PricingReply>;

/** Rows, or one object where `group_by` is `none`. */
export type CostReport<G extends string = string> = Omit<z.infer<typeof CostReportSchema>, 'data'> & {
  readonly data: G extends 'none' ? CostTotals : CostRow[];
};
export type SavingsReport = z.infer<typeof SavingsReportSchema>;
export type RoutingReport = z.infer<typeof RoutingReportSchema>;
export type QualityReport = z.infer<typeof QualityReportSchema>;
export type ReliabilityReport = z.infer<typeof ReliabilityReportSchema>;

export type Health = z.infer<typeof HealthReply>;
export type NodeList = z.infer<typeof NodeListReply>;
export type Node = z.infer<typeof NodeReply>;
export type Readiness = z.infer<typeof ReadinessReply>;
export type PrunedEvents = z.infer<typeof PruneEventsReply>;
