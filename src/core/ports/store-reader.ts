// Reads of durable state: records for the engine, wire objects for clients. What every turn reads is `Awaitable`.

import type { ListedCall } from '#protocol/api/session-bodies.ts';
import type { Awaitable } from '#protocol/async/awaitable.ts';
import type { AttemptRecord } from '#protocol/check.ts';
import type { Confirmation, ConfirmationDetail } from '#protocol/confirmation.ts';
import type { Delegation, DelegationRecord, DeliveryRecord } from '#protocol/delegate.ts';
import type { AnyEvent } from '#protocol/event.ts';
import type { CallChanges, WorktreeRecord } from '#protocol/file-change.ts';
import type { ConfirmationId, EventId, MessageId, SessionId, ToolUseId, TurnId } from '#protocol/ids.ts';
import type { Message, StoredMessage, ToolResultBlock } from '#protocol/message.ts';
import type { Pusd } from '#protocol/money.ts';
import type { AuditEntry, Reader, TokenRecord } from '#protocol/people/person.ts';
import type { Checkpoint } from '#protocol/prompt-parts.ts';
import type { Door, OnReached } from '#protocol/scalars.ts';
import type { ExperimentPart, Session, SessionRecord, SessionStatus } from '#protocol/session.ts';
import type { ToolCallStatus } from '#protocol/tool.ts';
import type { Turn, TurnInputRecord, TurnRecord } from '#protocol/turn.ts';
import type { CaseApproval, CaseCallRecord, CaseStart } from '#protocol/what-if/case.ts';
import type { SessionWorker, TrustedFile, TrustedText } from '#protocol/worker-definition.ts';
import type { ConfirmationRow, IdempotencyRow } from './journal-writer.ts';
import type { PatternReader, TreeCostReader } from './learned-turns.ts';

/** A page of rows; `next` is the sort key of the last row when there are more. */
export interface Page<T> {
  readonly rows: readonly T[];
  readonly next: string | null;
}

/** Tokens of a session's own calls, as the ledger has them. */
export type SessionTokens = Pick<
  TurnTotals,
  'input_tokens' | 'cached_input_tokens' | 'cache_creation_input_tokens' | 'output_tokens'
> & { readonly session_id: SessionId };

export interface SessionQuery {
  readonly workspace_path: string | null;
  /** Id of a token whose sessions they are. */
  readonly owner: string | null;
  readonly reader: Reader;
  readonly include_workers: boolean;
  readonly status: readonly SessionStatus[] | null;
  readonly parent_session_id: string | null;
  /** Sessions of this named worker. */
  readonly worker_name: string | null;
  readonly door: Door | null;
  /** Part of the id, workspace, worker's name, client or first message; the case of A to Z does not matter. */
  readonly search: string | null;
  /** Open sessions whose newest turn failed, and no others. */
  readonly failed: boolean;
  /** Sessions that run without a turn: they have an open gateway call or a delegation of their own. */
  readonly running_without_turn: readonly SessionId[];
  /** Sessions with an id below this one. */
  readonly before: string | null;
  readonly limit: number;
}

export interface SessionReader {
  record(id: string): Awaitable<SessionRecord | null>;
  view(id: string): Promise<Session | null>;
  /** The top-level session that a caller's client knows by this name. */
  findByClientRef(caller: string, clientRef: string): Promise<SessionRecord | null>;
  /** The worker of a tree that its client knows by this name. */
  findWorkerInTree(rootSessionId: SessionId, clientRef: string): Promise<SessionRecord | null>;
  /** The newest worker that a caller's client knows by this name, in any of the caller's trees. */
  findWorkerByCaller(caller: string, clientRef: string): Promise<SessionRecord | null>;
  /** The cost limit of a root session and the limit of its last warning; null when there is no such session. */
  limit(rootSessionId: SessionId): Awaitable<{
    readonly max_cost_pusd: Pusd | null;
    readonly on_reached: OnReached;
    readonly experiment: ExperimentPart | null;
    readonly warned_pusd: Pusd | null;
  } | null>;
  /** Newest first. */
  list(query: SessionQuery): Promise<Page<Session>>;
  /** Open forks of a session by other owners, and the open forks of those: its purge takes their beginning. */
  foreignForks(id: SessionId): Promise<readonly SessionId[]>;
  /** Ids of a session's descendants, deepest first. */
  descendants(id: SessionId): Promise<readonly SessionId[]>;
  /** The session itself and its ancestors up to the root. */
  lineage(id: string): Promise<readonly SessionId[]>;
  /** Counts over the whole server: top-level sessions not ended, worker sessions not ended, open turns that run. */
  counts(): Promise<{
    readonly active_sessions: number;
    readonly active_workers: number;
    readonly active_turns: number;
  }>;
}

/** A tool call of a turn, for recovery and for context references. */
export interface ToolCallState {
  readonly id: ToolUseId;
  readonly session_id: SessionId;
  readonly message_id: MessageId;
  readonly name: string;
  readonly status: ToolCallStatus;
  readonly result: ToolResultBlock | null;
  /** Whether its tool message is stored. */
  readonly answered: boolean;
}

export interface TurnReader {
  record(sessionId: string, turnId: string): Promise<TurnRecord | null>;
  /** The session's turn that is not terminal. */
  open(sessionId: SessionId): Awaitable<TurnRecord | null>;
  /** The session's last turn, whatever its status. */
  newest(sessionId: SessionId): Promise<TurnRecord | null>;
  view(sessionId: string, turnId: string): Promise<Turn | null>;
  /** Newest first; `before` is a turn id. */
  list(sessionId: string, before: string | null, limit: number): Promise<Page<Turn>>;
  /** Number of turns of the session, any status. */
  count(sessionId: SessionId): Promise<number>;
  /**
   * Turns that are not terminal, deepest session first.
   * @param root of this tree; absent = of all, which recovery at the start goes through once (04 §13)
   */
  allOpen(root?: SessionId): Promise<readonly TurnRecord[]>;
  /** Messages that the turn has not read, in the order they came (20 §4). */
  inputs(turnId: TurnId): Promise<readonly TurnInputRecord[]>;
  /** Calls of a turn in block order. */
  toolCalls(turnId: TurnId): Promise<readonly ToolCallState[]>;
  toolCall(id: string): Promise<ToolCallState | null>;
  /** Sums of the ledger for one turn. */
  totals(turnId: TurnId): Promise<TurnTotals>;
  /** The session's first turn. */
  first(sessionId: SessionId): Promise<TurnRecord | null>;
  /** Money of the workers that the turn opened, and of those below them. */
  workersCost(sessionId: SessionId, turnId: TurnId): Promise<Pusd>;
}

export interface TurnTotals {
  readonly calls: number;
  readonly input_tokens: number;
  readonly output_tokens: number;
  readonly cached_input_tokens: number;
  readonly cache_creation_input_tokens: number;
  readonly cost_pusd: Pusd;
}

export interface MessageReader {
  /** Every stored message of the session, oldest first. */
  history(sessionId: SessionId): Awaitable<readonly StoredMessage[]>;
  /** The checkpoints of a session's view, oldest first (10 §7). */
  checkpoints(sessionId: SessionId): Awaitable<readonly Checkpoint[]>;
  /** What a fork begins with, oldest first: messages of other sessions, up to its fork point (21 §4). */
  prefix(forkId: SessionId): Promise<readonly StoredMessage[]>;
  prefixCheckpoints(forkId: SessionId): Promise<readonly Checkpoint[]>;
  get(messageId: string): Promise<Message | null>;
  /** Ascending; see 05 §3.4 for the boundaries. */
  page(
    sessionId: string,
    query: { readonly before: string | null; readonly after: string | null; readonly limit: number },
  ): Promise<{
    readonly messages: readonly Message[];
    readonly has_more_before: boolean;
    readonly has_more_after: boolean;
  }>;
}

export interface EventQuery {
  /** Null = every session. */
  readonly session_id: string | null;
  /** Also events of the session's descendants. */
  readonly include_workers: boolean;
  /** Types of descendants that are included even when `include_workers` is false (06 §7). */
  readonly worker_types?: readonly string[];
  readonly types: readonly string[] | null;
  /** Exclusive. */
  readonly after: string | null;
  /** Inclusive. */
  readonly until: string | null;
  readonly limit: number;
}

export interface EventReader {
  /** Ascending by id. */
  list(query: EventQuery): Promise<Page<AnyEvent>>;
  /** The stored payload text beside each event, so that a replay need not serialise again. */
  listRaw(query: EventQuery): Promise<readonly { readonly event: AnyEvent; readonly payload_json: string }[]>;
  /**
   * Where a cursor of the tree's sessions may stand; embedded, ids of the whole database are in one order (02 §3).
   * @param root absent = of the whole database
   */
  newestId(root?: SessionId): Promise<EventId | null>;
  /** The greatest id that pruning took; embedded, it goes by age through all sessions. */
  prunedThrough(root: SessionId): Promise<EventId | null>;
  /**
   * `llm.call_started` events without an outcome (01 §11.5).
   * @param turnId absent = of every open turn, as recovery at the start asks; those of a tree are those of its open turns
   */
  openCalls(turnId?: TurnId): Promise<readonly AnyEvent[]>;
  /**
   * The same of calls that belong to no turn, begun since this event id.
   * @param root of this tree; absent = of every session that has not ended
   */
  openGatewayCalls(since: string, root?: SessionId): Promise<readonly AnyEvent[]>;
  /** Number of model calls that the session has begun. */
  callCount(sessionId: SessionId): Promise<number>;
  /** The newest event of a turn of this type, or null. */
  findNewestOfTurn(turnId: TurnId, types: readonly string[]): Promise<AnyEvent | null>;
  /** Every event of a turn of these types, ascending. */
  listOfTurn(turnId: TurnId, types: readonly string[]): Promise<readonly AnyEvent[]>;
}

export interface DelegationReader {
  get(toolUseId: string): Promise<DelegationRecord | null>;
  /** As it is sent. */
  view(toolUseId: string): Promise<Delegation | null>;
  findByWorker(sessionId: SessionId): Promise<DelegationRecord | null>;
  /** Ascending by creation. `after` is a tool use id. */
  list(
    sessionId: string,
    query: { readonly recursive: boolean; readonly after: string | null; readonly limit: number },
  ): Promise<Page<Delegation>>;
  /** Usage of the worker session so far. */
  usage(workerSessionId: SessionId): Promise<WorkerUsage>;
  /** Changes of the workspace by calls of the session and of its workers, in the order in which the calls settled. */
  changes(workerSessionId: SessionId): Promise<readonly CallChanges[]>;
  /** Delegations of a turn's calls that are not terminal. */
  open(parentTurnId: TurnId): Promise<readonly DelegationRecord[]>;
  /** Delegations of a turn's calls, ascending by creation. */
  ofTurn(parentSessionId: SessionId, parentTurnId: TurnId): Promise<readonly DelegationRecord[]>;
  /** Results of the turn's background workers that are not in its history, in the order in which the workers closed. */
  deliveries(turnId: TurnId): Promise<readonly DeliveryRecord[]>;
  /**
   * The same of all turns.
   * @param root of this tree; absent = of every tree, as above
   */
  allOpen(root?: SessionId): Promise<readonly DelegationRecord[]>;
}

export interface WorkerUsage {
  /** Model of its last call, '' when it made none. */
  readonly model: string;
  /** Price version stamped on its last call, '' when it made none. */
  readonly pricing_version: string;
  /** However they ended. */
  readonly turn_count: number;
  readonly completed_turn_count: number;
  readonly llm_call_count: number;
  readonly tool_call_count: number;
  readonly input_tokens: number;
  readonly output_tokens: number;
  readonly cost_pusd: Pusd;
}

export interface ConfirmationReader {
  view(id: string): Promise<ConfirmationDetail | null>;
  record(id: ConfirmationId): Promise<ConfirmationRow | null>;
  /** Oldest first; `session_id` includes its descendants; `after` is a confirmation id. */
  list(query: {
    readonly session_id: string | null;
    readonly reader: Reader;
    readonly status: 'pending' | 'resolved' | 'all';
    readonly after: string | null;
    readonly limit: number;
  }): Promise<Page<Confirmation>>;
  /**
   * Unanswered confirmations, oldest first.
   * @param root of this tree; absent = of every tree: few are open at a time
   */
  allOpen(root?: SessionId): Promise<readonly ConfirmationRow[]>;
  /** Whether an `identical` answer of this tree covers the key. */
  isGranted(rootSessionId: SessionId, keyHash: string): Promise<boolean>;
}

/** Money as the ledger has it. */
export interface SpendReader {
  /** Own calls of the session. */
  sumSession(sessionId: SessionId): Promise<Pusd>;
  /** The root and all its descendants. */
  sumTree(rootSessionId: SessionId): Promise<Pusd>;
  /** All trees of an experiment, those that were purged too (21 §5). */
  sumExperiment(id: string): Promise<Pusd>;
  /** The session and all its descendants, at any depth of its tree. */
  sumSubtree(sessionId: SessionId): Promise<Pusd>;
  /** All sessions since this moment (Unix ms). */
  since(from: number): Promise<Pusd>;
  /** Sessions of a caller since this full hour (Unix ms). */
  sumCaller(caller: string, from: number): Promise<Pusd>;
  /** Sessions that a person owns and turns that the person submitted, since this full day (Unix ms). */
  sumOwner(owner: string, from: number): Promise<Pusd>;
}

/** Tokens made at run time, and what was done with the rights that tokens give (23 §2, §4). */
export interface PeopleReader {
  /** All that were ever made, by name. */
  tokens(): Promise<readonly TokenRecord[]>;
  /** Newest first; `before` is the id of an entry. */
  audit(query: { readonly before: string | null; readonly limit: number }): Promise<Page<AuditEntry>>;
  /** Ascending, those above an id. */
  auditSince(after: string, limit: number): Promise<readonly AuditEntry[]>;
  /** Sessions of each owner that have not ended. */
  openSessions(): Promise<ReadonlyMap<string, number>>;
}

/** What a session and its workers did and cost, in the order of ids (21 §4). A bound of null is none. */
export interface ComparisonReader {
  /** Id of the call that wrote an answer, from the ledger, which a purge leaves alone; null = no call is stored. */
  callOfMessage(sessionId: SessionId, messageId: MessageId): Promise<string | null>;
  /** @param after, until ids of calls, the first exclusive */
  sumCalls(rootSessionId: SessionId, after: string | null, until: string | null): Promise<TurnTotals>;
  /** Tool calls and workers of the tree, and seconds of the session's own turns. */
  countWork(
    rootSessionId: SessionId,
    after: string | null,
  ): Promise<{ readonly tool_calls: number; readonly workers: number; readonly wall_time_seconds: number }>;
  /** Changes of the workspace, in the order in which the tool calls settled. */
  changes(rootSessionId: SessionId, after: string | null): Promise<readonly CallChanges[]>;
}

/** Calls of one session as the ledger has them, ascending by id. */
export interface CallReader {
  list(
    sessionId: SessionId,
    page: { readonly after: string | null; readonly limit: number },
  ): Promise<Page<ListedCall>>;
}

/** The workers that a session tree made for itself. */
export interface SessionWorkerReader {
  get(root: SessionId, name: string): Promise<SessionWorker | null>;
  /** By name. */
  list(root: SessionId): Promise<readonly SessionWorker[]>;
}

/** Files of workspaces whose bytes a person has trusted (20 §11). */
export interface TrustedFileReader {
  /** SHA-256 of the bytes that are trusted; null where the file is not trusted. `path` is relative to the workspace. */
  digest(workspace: string, path: string): Promise<string | null>;
  /** By path, without their texts. */
  list(workspace: string): Promise<readonly TrustedFile[]>;
  /** With its text; null where the file is not trusted. */
  find(workspace: string, path: string): Promise<TrustedText | null>;
}

/** What a recorded session needs to run again (21 §3). */
export interface CaseReader {
  /** Null for a session that was not recorded. */
  start(sessionId: SessionId): Promise<CaseStart | null>;
  /** What a person answered in the tree, in the order in which it was asked. */
  approvals(rootSessionId: SessionId): Promise<readonly CaseApproval[]>;
  /** Of the tree, in the order in which the calls began. `after` is a request id. */
  calls(root: SessionId, after: string | null, limit: number): Promise<Page<Omit<CaseCallRecord, 'root_session_id'>>>;
}

/** Worktrees of workers (20 §2). */
export interface WorktreeReader {
  /** Null for a worker without one. */
  get(session: SessionId): Promise<WorktreeRecord | null>;
  /** Of the sessions of a tree; without one of all, newest first. */
  list(root?: SessionId): Promise<readonly WorktreeRecord[]>;
}

/** Runs of checks (20 §10). */
export interface AttemptReader {
  /** Of a delegation, ascending. */
  list(toolUseId: string): Promise<readonly AttemptRecord[]>;
  /** Those without an end, of a session tree; absent = of all. Few are open at a time. */
  allOpen(root?: SessionId): Promise<readonly AttemptRecord[]>;
}

export interface Store {
  readonly people: PeopleReader;
  readonly attempts: AttemptReader;
  readonly worktrees: WorktreeReader;
  readonly cases: CaseReader;
  readonly workers: SessionWorkerReader;
  readonly trustedFiles: TrustedFileReader;
  readonly sessions: SessionReader;
  readonly turns: TurnReader;
  readonly messages: MessageReader;
  readonly events: EventReader;
  readonly delegations: DelegationReader;
  readonly confirmations: ConfirmationReader;
  readonly spend: SpendReader;
  readonly calls: CallReader;
  readonly comparisons: ComparisonReader;
  readonly patterns: PatternReader;
  readonly treeCosts: TreeCostReader;
  idempotency(method: string, path: string, tokenHash: string, key: string): Promise<IdempotencyRow | null>;
  /** Session, messages, open approvals and workers of one moment (06 §4.1). */
  snapshot(
    sessionId: string,
    includeWorkers: boolean,
  ): Promise<{
    readonly session: Session;
    readonly messages: readonly Message[];
    readonly snapshot_at_event_id: EventId | null;
    readonly pending_confirmations: readonly Confirmation[];
    readonly workers: readonly Delegation[] | null;
    /** Of the session, and of each of `workers`. */
    readonly tokens: readonly SessionTokens[];
  } | null>;
  /** A value of the `meta` table. */
  meta(key: string): Promise<string | null>;
  /** Why a write would not succeed; null when it would (readiness). */
  writeFault(): Promise<string | null>;
}
