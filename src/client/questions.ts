// Parameters of the client's operations: bodies, by the schemas of the server, and queries.
import type { z } from 'zod';
import type { WhatIfBody } from '#protocol/api/analytics-bodies.ts';
import type { AnswerConfirmationBody } from '#protocol/api/approval-bodies.ts';
import type { ForkBodySchema } from '#protocol/api/fork-bodies.ts';
import type { CheckRoutingBody, ExplainRouteBody, SetDefaultModelBody } from '#protocol/api/model-bodies.ts';
import type { PruneEventsBody } from '#protocol/api/server-bodies.ts';
import type {
  CreateSessionBody,
  EstimateTurnBody,
  ScoreTurnBody,
  SubmitTurnBody,
  UpdateSessionBody,
} from '#protocol/api/session-bodies.ts';
import type { CreateWorkerBody, ReplaceWorkerBody, SubmitDelegationBody } from '#protocol/api/worker-bodies.ts';
import type { EventType } from '#protocol/event.ts';
import type { NewTokenBody } from '#protocol/people/person.ts';
import type { SessionStatus } from '#protocol/session.ts';

export type NewSession = z.input<typeof CreateSessionBody>;
export type SessionChange = z.input<typeof UpdateSessionBody>;
export type NewFork = Omit<z.input<typeof ForkBodySchema>, 'at_message_id' | 'at_turn_id'> & {
  readonly at_message_id?: string | null;
  readonly at_turn_id?: string | null;
};
export type NewTurn = z.input<typeof SubmitTurnBody>;
export type NewDelegation = z.input<typeof SubmitDelegationBody>;
export type TurnScore = z.input<typeof ScoreTurnBody>;
export type TurnToEstimate = z.input<typeof EstimateTurnBody>;
export type ConfirmationAnswer = z.input<typeof AnswerConfirmationBody>;
export type WhatIfQuestion = z.input<typeof WhatIfBody>;
export type PolicyToCheck = z.input<typeof CheckRoutingBody>;
export type RouteQuestion = z.input<typeof ExplainRouteBody>;
export type NewDefaultModel = z.input<typeof SetDefaultModelBody>;
export type NewWorker = z.input<typeof CreateWorkerBody>;
export type WorkerReplacement = z.input<typeof ReplaceWorkerBody>;
export type NewTokenOrder = z.input<typeof NewTokenBody>;
export type PruneOrder = z.input<typeof PruneEventsBody>;

/** Options of every method. */
export interface CallOptions {
  readonly signal?: AbortSignal | undefined;
}
export interface SafeCallOptions extends CallOptions {
  /** The same key makes a retry safe for 24 hours. */
  readonly idempotencyKey?: string | undefined;
}

export interface WaitingCallOptions extends SafeCallOptions {
  /** Seconds, 1 to 600, that the server waits for the result before it answers. */
  readonly waitSeconds: number;
}

interface Page {
  /** `next_cursor` of the page before, with the same other parameters. */
  readonly cursor?: string | undefined;
  readonly limit?: number | undefined;
}
export interface ComparisonQuery {
  /** The other session. */
  readonly with: string;
}
export type AuditQuery = Page;
export interface SessionsQuery extends Page {
  /** Sessions of this token, by name or id; `me` = of the caller. */
  readonly owner?: string | undefined;
  readonly workspace_path?: string | undefined;
  readonly include_workers?: boolean | undefined;
  readonly status?: readonly SessionStatus[] | undefined;
  readonly parent_session_id?: string | undefined;
  /** Sessions of this named worker, which `include_workers` need not be given for. */
  readonly worker_name?: string | undefined;
  /** The door that opened the sessions. */
  readonly door?: 'api' | 'gateway' | 'mcp' | 'acp' | undefined;
  /** Open sessions whose newest turn failed, and no others. */
  readonly failed?: boolean | undefined;
  /** Part of the id, the workspace, the worker's name, the client or the first message; at most 200 characters. */
  readonly q?: string | undefined;
}
export interface TurnsQuery extends Page {}
export interface ConfirmationsQuery extends Page {
  readonly session_id?: string | undefined;
  /** Default: `pending`. */
  readonly status?: 'pending' | 'resolved' | 'all' | undefined;
}
export type CaseQuery = Page;
export interface MessagesQuery {
  /** Messages before this id. */
  readonly before?: string | undefined;
  /** Messages after this id. */
  readonly after?: string | undefined;
  readonly limit?: number | undefined;
  /** The messages that a fork begins with, in place of its own. */
  readonly prefix?: boolean | undefined;
}
export interface EventsQuery extends Page {
  readonly types?: readonly EventType[] | undefined;
  /** Events above this id. */
  readonly since?: string | undefined;
  /** Events up to this id. */
  readonly until?: string | undefined;
  readonly include_worker_sessions?: boolean | undefined;
}
export interface CallsQuery extends Page {}
export interface WorkersQuery extends Page {
  /** Workers of workers too. */
  readonly recursive?: boolean | undefined;
  /** The delegation of this call alone. */
  readonly tool_use_id?: string | undefined;
}
export interface PatternsQuery extends Page {
  readonly workspace_path: string;
}
/** The workspace of the workers. */
export interface DefinitionQuery {
  readonly workspace_path: string;
  /** The workers that this session's tree has made too. */
  readonly session_id?: string | undefined;
}
export interface DefinitionsQuery extends DefinitionQuery, Page {
  readonly origin?: 'project' | 'session' | undefined;
  /** Only those that the session, or a new one, may call. */
  readonly callable?: boolean | undefined;
}

export interface TrustQuery {
  readonly workspace_path: string;
  /** Relative to the workspace. */
  readonly path?: string | undefined;
}
export type { TrustFileBody as TrustFile } from '#protocol/api/approval-bodies.ts';

export interface TraceReportQuery {
  /** RFC 3339 with offset, inclusive, or `all`. Default: 7 days ago. */
  readonly from?: string | undefined;
  /** RFC 3339 with offset, exclusive. Default: now. */
  readonly to?: string | undefined;
  readonly session?: string | undefined;
  readonly model?: string | undefined;
  readonly provider?: string | undefined;
}
export type VerifiedReportQuery = Pick<TraceReportQuery, 'from' | 'to'> & {
  readonly group_by?: 'model' | 'tier' | 'worker_name' | 'check';
};
export type LedgerReportQuery = Pick<TraceReportQuery, 'from' | 'to' | 'provider'>;
interface CallReportQuery extends TraceReportQuery {
  /** A planner's session; a top-level session is its own parent. */
  readonly parent_session?: string | undefined;
  readonly workspace_hash?: string | undefined;
  readonly delegation_tier?: 'fast' | 'balanced' | 'deep' | undefined;
  readonly worker_name?: string | undefined;
  readonly door?: 'api' | 'gateway' | 'mcp' | 'acp' | undefined;
  /** Name of a key of the gateway; '' = without one. */
  readonly caller?: string | undefined;
  /** Owner of the sessions, by name or id; `me` = of the caller, '' = no token. */
  readonly owner?: string | undefined;
  /** True folds workers into their parent session, false leaves their calls out. */
  readonly include_workers?: boolean | undefined;
}
export interface CostQuery<G extends string = string> extends CallReportQuery {
  /** `none`, or one or two dimensions separated by a comma; `model` by default. */
  readonly group_by?: G | undefined;
  readonly order?: 'cost' | 'calls' | 'tokens' | 'key' | undefined;
  readonly dir?: 'asc' | 'desc' | undefined;
  readonly limit?: number | undefined;
  readonly cursor?: string | undefined;
  /** `stamped` by default, `current`, or a known pricing version. */
  readonly pricing?: string | undefined;
}
export interface SavingsQuery extends CallReportQuery {
  /** Model id or alias, or `planner`. */
  readonly baseline?: string | undefined;
}
