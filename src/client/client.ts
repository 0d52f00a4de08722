// The typed client: one method an endpoint, streams as async iterators. Runs in Node and in a browser (17 §4).
import type { CostRow, CostTotals, Savings } from '../domain/analytics.ts';
import type { Confirmation } from '../domain/confirmation.ts';
import type { Delegation } from '../domain/delegate.ts';
import type { ContentBlock, Message } from '../domain/message.ts';
import type { Model } from '../domain/model.ts';
import type { PolicyEvaluation, Refusal } from '../domain/route.ts';
import type { Session } from '../domain/session.ts';
import type { Turn } from '../domain/turn.ts';
import { type RequestOptions, request, type ServerAddress } from './request.ts';
import { type StreamItem, type StreamOptions, streamSession } from './stream.ts';

export interface NewSession {
  readonly workspace_path: string;
  readonly initial_active_model?: string;
  /** Decimal US dollars. */
  readonly max_cost_usd?: string;
}
export interface NewTurn {
  readonly content: string | readonly ContentBlock[];
  readonly per_message_override?: string | null;
  readonly if_busy?: 'reject' | 'interrupt';
}
export interface SubmittedTurn {
  readonly turn_id: string;
  readonly session_id: string;
  readonly submitted_at: string;
  readonly user_message_id: string;
}
export interface AnalyticsAnswer<T> {
  readonly window: { readonly start: string; readonly end: string };
  readonly current_pricing_version: string;
  readonly data: T;
  readonly warnings: readonly string[];
}
export type CostReport = AnalyticsAnswer<readonly CostRow[]> & {
  readonly totals: CostTotals;
  readonly next_cursor: string | null;
};
export interface Health {
  readonly status: 'ok';
  readonly version: string;
  readonly started_at: string;
  readonly active_turns: number;
}
export interface PolicyCheck {
  readonly valid: boolean;
  readonly errors: readonly string[];
  readonly warnings: readonly string[];
}
export interface RouteQuestion {
  readonly text: string;
  readonly workspace_path: string;
  /** Id or alias, as the model a session was set to. */
  readonly model?: string | undefined;
}
export interface RouteExplanation {
  /** '' when refused. */
  readonly chosen_model: string;
  readonly winner_index: number;
  readonly refused: Refusal | null;
  readonly chain: readonly PolicyEvaluation[];
  readonly estimated_input_tokens: number;
  readonly routing_policy_version: string | null;
}
type Query = NonNullable<RequestOptions['query']>;

export type MetisClient = ReturnType<typeof createMetisClient>;

/** Every method throws `ApiError` when the server refuses and takes an `AbortSignal` last. */
export function createMetisClient(server: ServerAddress) {
  const get = <T>(path: string, query: Query, signal?: AbortSignal) =>
    request<T>(server, 'GET', path, { query, signal });
  const post = <T>(path: string, body: unknown, signal?: AbortSignal) =>
    request<T>(server, 'POST', path, { body, signal });

  return {
    health: (signal?: AbortSignal) => get<Health>('/healthz', {}, signal),
    models: (signal?: AbortSignal) => get<{ models: Model[] }>('/models', {}, signal),

    createSession: (session: NewSession, signal?: AbortSignal) => post<Session>('/sessions', session, signal),
    session: (id: string, signal?: AbortSignal) => get<Session>(`/sessions/${id}`, {}, signal),
    endSession: (id: string, signal?: AbortSignal) =>
      request<{ id: string; ended_at: string }>(server, 'DELETE', `/sessions/${id}`, { signal }),

    submitTurn: (sessionId: string, turn: NewTurn, signal?: AbortSignal) =>
      post<SubmittedTurn>(`/sessions/${sessionId}/turns`, turn, signal),
    turn: (sessionId: string, turnId: string, signal?: AbortSignal) =>
      get<Turn>(`/sessions/${sessionId}/turns/${turnId}`, {}, signal),
    cancelTurn: (sessionId: string, turnId: string, reason?: string, signal?: AbortSignal) =>
      post<{ turn_id: string }>(`/sessions/${sessionId}/turns/${turnId}/cancel`, reason ? { reason } : {}, signal),

    messages: (sessionId: string, query: Query = {}, signal?: AbortSignal) =>
      get<{ messages: Message[] }>(`/sessions/${sessionId}/messages`, query, signal),
    workers: (sessionId: string, query: Query = {}, signal?: AbortSignal) =>
      get<{ workers: Delegation[]; next_cursor: string | null }>(`/sessions/${sessionId}/workers`, query, signal),

    confirmations: (query: Query = {}, signal?: AbortSignal) =>
      get<{ confirmations: Confirmation[]; next_cursor: string | null }>('/confirmations', query, signal),
    answerConfirmation: (
      id: string,
      answer: { decision: 'approve' | 'reject' | 'modify'; scope?: string; reason?: string; modified_input?: object },
      signal?: AbortSignal,
    ) => post<{ applied: boolean; decision: string; scope: string }>(`/confirmations/${id}`, answer, signal),

    checkRouting: (policy: { policy_yaml?: string; workspace_path?: string }, signal?: AbortSignal) =>
      post<PolicyCheck>('/routing/check', policy, signal),
    explainRoute: (question: RouteQuestion, signal?: AbortSignal) =>
      post<RouteExplanation>('/routing/explain', question, signal),

    cost: (query: Query = {}, signal?: AbortSignal) => get<CostReport>('/analytics/cost', query, signal),
    savings: (query: Query = {}, signal?: AbortSignal) =>
      get<AnalyticsAnswer<Savings>>('/analytics/savings', query, signal),

    stream: (sessionId: string, options?: StreamOptions): AsyncGenerator<StreamItem, void, undefined> =>
      streamSession(server, sessionId, options),
  };
}
