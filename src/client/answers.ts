// Replies of the operations, by the schemas of the server.
import type { z } from 'zod';
import type {
  CostReportSchema,
  CostRow,
  CostTotals,
  LedgerReportSchema,
  QualityReportSchema,
  ReliabilityReportSchema,
  RoutingReportSchema,
  SavingsReportSchema,
  SimulatedPart,
  VerifiedReportSchema,
  WhatIfReportSchema,
} from '#protocol/analytics.ts';
import type { AnswerConfirmationReply, ConfirmationListReply, TrustReply } from '#protocol/api/approval-bodies.ts';
import type { CompareReplySchema, ForkReplySchema } from '#protocol/api/fork-bodies.ts';
import type {
  CheckRoutingReply,
  ExplainRouteReply,
  ModelListReply,
  PatternListReply,
  PricingReply,
  RoutingDefaultReply,
  RoutingPolicyReply,
} from '#protocol/api/model-bodies.ts';
import type {
  HealthReply,
  NodeListReply,
  NodeReply,
  PruneEventsReply,
  ReadinessReply,
  SettingsReply,
  ToolListReply,
} from '#protocol/api/server-bodies.ts';
import type {
  CallListReply,
  CancelTurnReply,
  ConcludeTurnReply,
  EndSessionReply,
  EstimateTurnReply,
  EventListReply,
  MessageListReply,
  ResumeTurnReply,
  ScoreTurnReply,
  SessionListReply,
  TurnListReply,
  TurnReceipt,
  UpdateSessionReply,
  WorkerListReply,
} from '#protocol/api/session-bodies.ts';
import type {
  AppliedChangesSchema,
  ChangedTextsSchema,
  ChangesDiffSchema,
  DefinitionListReply,
  DelegationReceiptSchema,
  DelegationResultSchema,
  KeptWorktreesReply,
  PrunedWorktreesSchema,
} from '#protocol/api/worker-bodies.ts';
import type {
  AuditListReply,
  MadeTokenReply,
  OwnTokenReply,
  TokenListReply,
  TokenSchema,
} from '#protocol/people/person.ts';
import type { CaseReplySchema } from '#protocol/what-if/case.ts';
import type { ForecastCheckSchema } from '#protocol/what-if/cost-ahead.ts';
import type { LoggedEvent } from './stream-items.ts';

export type { TrustedFileInfo } from '#protocol/api/approval-bodies.ts';
export type { Pattern } from '#protocol/api/model-bodies.ts';
export type { WorkerDetail, WorkerInfo } from '#protocol/api/worker-bodies.ts';
export type { Confirmation, ConfirmationDetail } from '#protocol/confirmation.ts';
export type { Delegation } from '#protocol/delegate.ts';
export type { Message } from '#protocol/message.ts';
export type { Model } from '#protocol/model.ts';
export type { Session } from '#protocol/session.ts';
export type { Turn } from '#protocol/turn.ts';
export type { CostRow, CostTotals, SimulatedPart };

export type PatternList = z.infer<typeof PatternListReply>;
export type TrustList = z.infer<typeof TrustReply>;
export type DefinitionList = z.infer<typeof DefinitionListReply>;
export type SessionList = z.infer<typeof SessionListReply>;
export type UpdatedSession = z.infer<typeof UpdateSessionReply>;
export type RecordedCase = z.infer<typeof CaseReplySchema>;
export type ForkedSession = z.infer<typeof ForkReplySchema>;
export type SessionComparison = z.infer<typeof CompareReplySchema>;
export type EndedSession = z.infer<typeof EndSessionReply>;

export type SubmittedTurn = z.infer<typeof TurnReceipt>;
export type TurnList = z.infer<typeof TurnListReply>;
export type TurnEstimate = z.infer<typeof EstimateTurnReply>;
export type TurnCancellation = z.infer<typeof CancelTurnReply>;
export type TurnConclusion = z.infer<typeof ConcludeTurnReply>;
export type ScoredTurn = z.infer<typeof ScoreTurnReply>;
export type TurnResumption = z.infer<typeof ResumeTurnReply>;

export type AppliedChanges = z.infer<typeof AppliedChangesSchema>;
export type ChangedTexts = z.infer<typeof ChangedTextsSchema>;
export type ChangesDiff = z.infer<typeof ChangesDiffSchema>;
export type KeptWorktrees = z.infer<typeof KeptWorktreesReply>;
export type PrunedWorktrees = z.infer<typeof PrunedWorktreesSchema>;
export type SubmittedDelegation = z.infer<typeof DelegationReceiptSchema>;
export type DelegationResult = z.infer<typeof DelegationResultSchema>;
export type ConfirmationList = z.infer<typeof ConfirmationListReply>;
export type AnsweredConfirmation = z.infer<typeof AnswerConfirmationReply>;

export type MessageList = z.infer<typeof MessageListReply>;
export type EventList = Omit<z.infer<typeof EventListReply>, 'events'> & { readonly events: LoggedEvent[] };
export type ToolList = z.infer<typeof ToolListReply>;
export type CallList = z.infer<typeof CallListReply>;
export type WorkerList = z.infer<typeof WorkerListReply>;

export type ModelList = z.infer<typeof ModelListReply>;
export type RoutingPolicy = z.infer<typeof RoutingPolicyReply>;
export type RoutingCheck = z.infer<typeof CheckRoutingReply>;
export type RoutingDefault = z.infer<typeof RoutingDefaultReply>;
export type RouteExplanation = z.infer<typeof ExplainRouteReply>;
export type Pricing = z.infer<typeof PricingReply>;

/** Rows, or one object where `group_by` is `none`. */
export type CostReport<G extends string = string> = Omit<z.infer<typeof CostReportSchema>, 'data'> & {
  readonly data: G extends 'none' ? CostTotals : CostRow[];
};
export type SavingsReport = z.infer<typeof SavingsReportSchema>;
export type RoutingReport = z.infer<typeof RoutingReportSchema>;
export type ForecastCheck = z.infer<typeof ForecastCheckSchema>;
export type QualityReport = z.infer<typeof QualityReportSchema>;
export type WhatIfReport = z.infer<typeof WhatIfReportSchema>;
export type VerifiedReport = z.infer<typeof VerifiedReportSchema>;
export type LedgerReport = z.infer<typeof LedgerReportSchema>;
export type ReliabilityReport = z.infer<typeof ReliabilityReportSchema>;

export type Health = z.infer<typeof HealthReply>;
export type NodeList = z.infer<typeof NodeListReply>;
export type SettingsReport = z.infer<typeof SettingsReply>;
export type Node = z.infer<typeof NodeReply>;
export type Readiness = z.infer<typeof ReadinessReply>;
export type PrunedEvents = z.infer<typeof PruneEventsReply>;

export type Token = z.infer<typeof TokenSchema>;
export type OwnToken = z.infer<typeof OwnTokenReply>;
export type TokenList = z.infer<typeof TokenListReply>;
export type MadeToken = z.infer<typeof MadeTokenReply>;
export type AuditList = z.infer<typeof AuditListReply>;
