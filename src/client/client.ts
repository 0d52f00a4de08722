// The typed client: a method an operation, and streams as async iterators. Runs in Node and in a browser (17 §4).
import type * as A from './answers.ts';
import type { SubmittedTurn, Turn } from './answers.ts';
import { type StreamOptions, streamSession } from './event-stream.ts';
import type * as Q from './questions.ts';
import { ApiError, type Parameters, type RequestOptions, request, type ServerAddress } from './request.ts';
import type { StreamEvent, StreamItem } from './stream-items.ts';

// One turn from its submission to its end, as an async iterator of its events (17 §4).

/** What it needs of the client. */
interface TurnCalls {
  /** A stream of the session that begins with a snapshot. */
  readonly stream: () => AsyncIterable<StreamItem>;
  readonly submit: () => Promise<SubmittedTurn>;
  readonly readTurn: (turnId: string) => Promise<Turn>;
  readonly signal: AbortSignal | undefined;
}

const ENDS: readonly string[] = ['turn.completed', 'turn.failed', 'turn.cancelled'];

/**
 * Submits once the stream stands, so that no event is missed, and yields what happens in the session until the turn has
 * ended; its return value is the turn. A server that went away is waited for. An aborted signal is thrown and ends the
 * watching alone, not the turn.
 */
async function* followTurn(calls: TurnCalls): AsyncGenerator<StreamEvent, Turn, undefined> {
  let turnId: string | null = null;
  for await (const item of calls.stream()) {
    if (item.type === 'event') {
      yield item.event;
      const { type, turn_id } = item.event;
      if (turnId !== null && turn_id === turnId && ENDS.includes(type)) return calls.readTurn(turnId);
    } else if (turnId === null) {
      turnId = (await calls.submit()).turn_id;
    } else {
      // A later snapshot means that events between are gone, the turn's end perhaps among them.
      const turn = await calls.readTurn(turnId);
      if (turn.ended_at !== null) return turn;
    }
  }
  calls.signal?.throwIfAborted();
  if (turnId !== null) return calls.readTurn(turnId);
  throw new ApiError(0, 'stream_closed', 'the stream ended before the turn was submitted', {});
}

export type * from './answers.ts';
export type { StreamOptions } from './event-stream.ts';
export type * from './questions.ts';
export { ApiError, type ServerAddress } from './request.ts';
export type * from './stream-items.ts';

interface TurnOptions extends Q.SafeCallOptions {
  /** The events of all workers below the session too. */
  readonly include_worker_sessions?: boolean | undefined;
}

export type MetisClient = ReturnType<typeof createMetisClient>;

/**
 * Methods bear the operation ids of the server's OpenAPI document, but for `stream` (`streamSession`) and `turn`, which
 * submits one and follows it. Every method throws `ApiError` when the server refuses and takes an `AbortSignal`.
 */
export function createMetisClient(server: ServerAddress) {
  type Options = Q.CallOptions | undefined;
  const get = <T>(path: string, options: Options, query?: Parameters) =>
    request<T>(server, 'GET', path, { query, signal: options?.signal });
  const text = (path: string, options: Options) =>
    request<string>(server, 'GET', path, { signal: options?.signal, answer: 'text' });
  const send = <T>(method: string, path: string, options: Options, body?: unknown) =>
    request<T>(server, method, path, { body, signal: options?.signal, headers: makeHeaders(options) });
  const session = (id: string) => `/sessions/${encodeURIComponent(id)}`;
  const turn = (sessionId: string, id: string) => `${session(sessionId)}/turns/${encodeURIComponent(id)}`;
  const worker = (id: string) => `/delegations/${encodeURIComponent(id)}`;
  const confirmation = (id: string) => `/confirmations/${encodeURIComponent(id)}`;

  const client = {
    getHealth: (options?: Q.CallOptions) => get<A.Health>('/healthz', options),
    getReadiness: (options?: Q.CallOptions) => get<A.Readiness>('/readyz', options),
    listNodes: (options?: Q.CallOptions) => get<A.NodeList>('/nodes', options),
    getNode: (options?: Q.CallOptions) => get<A.Node>('/nodes/self', options),
    getSettings: (options?: Q.CallOptions) => get<A.SettingsReport>('/settings', options),
    /** Text for Prometheus. */
    getMetrics: (options?: Q.CallOptions) => text('/metrics', options),
    /** A page for people, in HTML. */
    getDocs: (options?: Q.CallOptions) => text('/docs', options),
    getOpenApi: (options?: Q.CallOptions) => get<Record<string, unknown>>('/openapi.json', options),
    getEventSchema: (options?: Q.CallOptions) => get<Record<string, unknown>>('/events.schema.json', options),

    createSession: (body: Q.NewSession, options?: Q.SafeCallOptions) =>
      send<A.Session>('POST', '/sessions', options, body),
    listSessions: (query: Q.SessionsQuery = {}, options?: Q.CallOptions) =>
      get<A.SessionList>('/sessions', options, query),
    getSession: (id: string, options?: Q.CallOptions) => get<A.Session>(session(id), options),
    updateSession: (id: string, body: Q.SessionChange, options?: Q.CallOptions) =>
      send<A.UpdatedSession>('PATCH', session(id), options, body),
    endSession: (id: string, query: { readonly purge?: boolean } = {}, options?: Q.CallOptions) =>
      request<A.EndedSession>(server, 'DELETE', session(id), { query, signal: options?.signal }),

    /** With `dry_run` nothing is made: the answer is what the fork's first call will cost. */
    forkSession: (sessionId: string, body: Q.NewFork, options?: Q.SafeCallOptions) =>
      send<A.ForkedSession>('POST', `${session(sessionId)}/fork`, options, body),
    compareSessions: (sessionId: string, query: Q.ComparisonQuery, options?: Q.CallOptions) =>
      get<A.SessionComparison>(`${session(sessionId)}/compare`, options, query),

    estimateTurn: (sessionId: string, body: Q.TurnToEstimate, options?: Q.CallOptions) =>
      send<A.TurnEstimate>('POST', `${session(sessionId)}/estimate`, options, body),
    submitTurn: (sessionId: string, body: Q.NewTurn, options?: Q.SafeCallOptions) =>
      send<A.SubmittedTurn>('POST', `${session(sessionId)}/turns`, options, body),
    listTurns: (sessionId: string, query: Q.TurnsQuery = {}, options?: Q.CallOptions) =>
      get<A.TurnList>(`${session(sessionId)}/turns`, options, query),
    getTurn: (sessionId: string, id: string, options?: Q.CallOptions) => get<A.Turn>(turn(sessionId, id), options),
    cancelTurn: (
      sessionId: string,
      id: string,
      body: { readonly reason?: string | null } = {},
      options?: Q.CallOptions,
    ) => send<A.TurnCancellation>('POST', `${turn(sessionId, id)}/cancel`, options, body),
    /** Lets the turn answer with what it has: no further tool starts, and one last model call is made. */
    concludeTurn: (sessionId: string, id: string, options?: Q.CallOptions) =>
      send<A.TurnConclusion>('POST', `${turn(sessionId, id)}/conclude`, options, {}),
    resumeTurn: (sessionId: string, id: string, options?: Q.CallOptions) =>
      send<A.TurnResumption>('POST', `${turn(sessionId, id)}/resume`, options, {}),
    /** How good an ended turn was, as a person sees it: 0 to 1, or a word. */
    scoreTurn: (sessionId: string, id: string, body: Q.TurnScore, options?: Q.CallOptions) =>
      send<A.ScoredTurn>('PUT', `${turn(sessionId, id)}/score`, options, body),

    /** With `waitSeconds` the result is the answer where the worker has ended by then. */
    submitDelegation: (<T>(sessionId: string, body: Q.NewDelegation, options?: Q.SafeCallOptions) =>
      send<T>('POST', `${session(sessionId)}/delegations`, options, body)) as SubmitDelegation,

    applyChanges: (workerSessionId: string, options?: Q.CallOptions) =>
      send<A.AppliedChanges>('POST', `${worker(workerSessionId)}/apply`, options, {}),
    getChangesDiff: (workerSessionId: string, options?: Q.CallOptions) =>
      get<A.ChangesDiff>(`${worker(workerSessionId)}/diff`, options),
    getChangedFiles: (workerSessionId: string, options?: Q.CallOptions) =>
      get<A.ChangedTexts>(`${worker(workerSessionId)}/files`, options),

    listConfirmations: (query: Q.ConfirmationsQuery = {}, options?: Q.CallOptions) =>
      get<A.ConfirmationList>('/confirmations', options, query),
    getConfirmation: (id: string, options?: Q.CallOptions) => get<A.ConfirmationDetail>(confirmation(id), options),
    answerConfirmation: (id: string, body: Q.ConfirmationAnswer, options?: Q.CallOptions) =>
      send<A.AnsweredConfirmation>('POST', confirmation(id), options, body),

    /** Of a session that was opened with `record_case`. */
    getCase: (sessionId: string, query: Q.CaseQuery = {}, options?: Q.CallOptions) =>
      get<A.RecordedCase>(`${session(sessionId)}/case`, options, query),
    listMessages: (sessionId: string, query: Q.MessagesQuery = {}, options?: Q.CallOptions) =>
      get<A.MessageList>(`${session(sessionId)}/messages`, options, query),
    /** Stored events, page by page; `stream` yields new ones. */
    listEvents: (sessionId: string, query: Q.EventsQuery = {}, options?: Q.CallOptions) =>
      get<A.EventList>(`${session(sessionId)}/events`, options, query),
    /** Model calls of the session, each with its cost and its rounds. */
    listCalls: (sessionId: string, query: Q.CallsQuery = {}, options?: Q.CallOptions) =>
      get<A.CallList>(`${session(sessionId)}/calls`, options, query),
    listWorkers: (sessionId: string, query: Q.WorkersQuery = {}, options?: Q.CallOptions) =>
      get<A.WorkerList>(`${session(sessionId)}/workers`, options, query),

    listModels: (options?: Q.CallOptions) => get<A.ModelList>('/models', options),
    getRoutingPolicy: (query: { readonly workspace_path?: string } = {}, options?: Q.CallOptions) =>
      get<A.RoutingPolicy>('/routing/policy', options, query),
    checkRoutingPolicy: (body: Q.PolicyToCheck, options?: Q.CallOptions) =>
      send<A.RoutingCheck>('POST', '/routing/check', options, body),
    explainRoute: (body: Q.RouteQuestion, options?: Q.CallOptions) =>
      send<A.RouteExplanation>('POST', '/routing/explain', options, body),
    /** With `dry_run` shows the change; without it writes what that showed, by its `previous_sha256`. */
    setDefaultModel: (body: Q.NewDefaultModel, options?: Q.CallOptions) =>
      send<A.RoutingDefault>('PUT', '/routing/default', options, body),
    /** How each model did with turns of a shape. */
    listPatterns: (query: Q.PatternsQuery, options?: Q.CallOptions) => get<A.PatternList>('/patterns', options, query),
    getPricing: (query: { readonly version?: string } = {}, options?: Q.CallOptions) =>
      get<A.Pricing>('/pricing', options, query),

    /** As the server knows them: no MCP server is started for it. */
    listTools: (query: { readonly workspace_path: string }, options?: Q.CallOptions) =>
      get<A.ToolList>('/tools', options, query),
    listWorkerDefinitions: (query: Q.DefinitionsQuery, options?: Q.CallOptions) =>
      get<A.DefinitionList>('/workers', options, query),
    createWorkerDefinition: (body: Q.NewWorker, options?: Q.CallOptions) =>
      send<A.WorkerDetail>('POST', '/workers', options, body),
    replaceWorkerDefinition: (name: string, body: Q.WorkerReplacement, options?: Q.CallOptions) =>
      send<A.WorkerDetail>('PUT', `/workers/${encodeURIComponent(name)}`, options, body),
    deleteWorkerDefinition: (
      name: string,
      query: Q.DefinitionQuery & { readonly force?: boolean | undefined },
      options?: Q.CallOptions,
    ) => request<null>(server, 'DELETE', `/workers/${encodeURIComponent(name)}`, { query, signal: options?.signal }),
    getWorkerDefinition: (name: string, query: Q.DefinitionQuery, options?: Q.CallOptions) =>
      get<A.WorkerDetail>(`/workers/${encodeURIComponent(name)}`, options, query),

    /** What is kept of worktrees, with sizes. */
    listWorktrees: (options?: Q.CallOptions) => get<A.KeptWorktrees>('/worktrees', options),
    /** Frees it; with `all` changes that were not applied too. */
    pruneWorktrees: (body: { readonly all?: boolean | undefined } = {}, options?: Q.CallOptions) =>
      send<A.PrunedWorktrees>('POST', '/worktrees/prune', options, body),

    /** Files that are trusted or wait for it; with `path` that file alone, with its content. */
    listTrustedFiles: (query: Q.TrustQuery, options?: Q.CallOptions) =>
      get<A.TrustList>('/workspaces/trust', options, query),
    /** Trusts the bytes that have this SHA-256. */
    trustFile: (body: Q.TrustFile, options?: Q.CallOptions) =>
      send<A.TrustedFileInfo>('POST', '/workspaces/trust', options, body),
    untrustFile: (query: Q.TrustQuery & { readonly path: string }, options?: Q.CallOptions) =>
      request<null>(server, 'DELETE', '/workspaces/trust', { query, signal: options?.signal }),

    getCost: <const G extends string = 'model'>(query: Q.CostQuery<G> = {}, options?: Q.CallOptions) =>
      get<A.CostReport<G>>('/analytics/cost', options, query),
    getSavings: (query: Q.SavingsQuery = {}, options?: Q.CallOptions) =>
      get<A.SavingsReport>('/analytics/savings', options, query),
    getRoutingStats: (query: Q.TraceReportQuery = {}, options?: Q.CallOptions) =>
      get<A.RoutingReport>('/analytics/routing', options, query),
    getReliability: (query: Q.TraceReportQuery = {}, options?: Q.CallOptions) =>
      get<A.ReliabilityReport>('/analytics/reliability', options, query),
    /** The ledger by day and model, to set it beside a provider's bill. */
    getVerifiedResults: (query: Q.VerifiedReportQuery = {}, options?: Q.CallOptions) =>
      get<A.VerifiedReport>('/analytics/verified', options, query),
    getLedgerDays: (query: Q.LedgerReportQuery = {}, options?: Q.CallOptions) =>
      get<A.LedgerReport>('/analytics/ledger', options, query),
    /** Shapes of task that a cheaper model does as well. */
    getForecastCheck: (options?: Q.CallOptions) => get<A.ForecastCheck>('/analytics/forecast', options),
    getQuality: (query: { readonly workspace_path: string }, options?: Q.CallOptions) =>
      get<A.QualityReport>('/analytics/quality', options, query),
    /** What the same work would have cost under other rules, tiers or models. */
    askWhatIf: (body: Q.WhatIfQuestion, options?: Q.CallOptions) =>
      send<A.WhatIfReport>('POST', '/analytics/what-if', options, body),

    pruneEvents: (body: Q.PruneOrder = {}, options?: Q.CallOptions) =>
      send<A.PrunedEvents>('POST', '/maintenance/prune', options, body),

    /** The token of these requests and its role. */
    getOwnToken: (options?: Q.CallOptions) => get<A.OwnToken>('/tokens/self', options),
    listTokens: (options?: Q.CallOptions) => get<A.TokenList>('/tokens', options),
    /** The answer holds the secret, once. */
    createToken: (body: Q.NewTokenOrder, options?: Q.CallOptions) =>
      send<A.MadeToken>('POST', '/tokens', options, body),
    revokeToken: (nameOrId: string, options?: Q.CallOptions) =>
      request<A.Token>(server, 'DELETE', `/tokens/${encodeURIComponent(nameOrId)}`, { signal: options?.signal }),
    listAudit: (query: Q.AuditQuery = {}, options?: Q.CallOptions) => get<A.AuditList>('/audit', options, query),

    stream: (sessionId: string, options?: StreamOptions) => streamSession(server, sessionId, options),

    turn: (sessionId: string, body: Q.NewTurn, options: TurnOptions = {}) => {
      const { signal, include_worker_sessions = false } = options;
      return followTurn({
        stream: () =>
          streamSession(server, sessionId, { snapshot: true, include_worker_sessions, ...(signal ? { signal } : {}) }),
        submit: () => client.submitTurn(sessionId, body, options),
        readTurn: (turnId) => client.getTurn(sessionId, turnId, { signal }),
        signal,
      });
    },
  };
  return client;
}

interface SubmitDelegation {
  (
    sessionId: string,
    body: Q.NewDelegation,
    options: Q.WaitingCallOptions,
  ): Promise<A.SubmittedDelegation | A.DelegationResult>;
  (sessionId: string, body: Q.NewDelegation, options?: Q.SafeCallOptions): Promise<A.SubmittedDelegation>;
}

function makeHeaders(options: Partial<Q.WaitingCallOptions> = {}): NonNullable<RequestOptions['headers']> {
  const { idempotencyKey, waitSeconds } = options;
  return {
    ...(idempotencyKey !== undefined && { 'idempotency-key': idempotencyKey }),
    ...(waitSeconds !== undefined && { prefer: `wait=${waitSeconds}` }),
  };
}
