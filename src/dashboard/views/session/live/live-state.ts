// What is known of a session with its workers while one watches it.
import type { Confirmation, Delegation, Message, Session, StoredEvent } from '#client/client.ts';
import type { LiveNode } from './live-node.ts';
import type { OpenMessage } from './open-message.ts';

export type Route = Extract<StoredEvent, { type: 'route.decided' }>['payload'];

/** A limit that refused a call. */
export type Refusal = Extract<StoredEvent, { type: 'budget.exceeded' }>['payload'];

export interface ToolState {
  status: 'running' | 'waiting' | 'done' | 'failed';
  detail: string;
}

/** What a delegation is known by: its record, and before that is read what its start said. */
export interface WorkerCall {
  readonly tool_use_id: string;
  readonly worker_session_id: string | null;
  readonly tier: string | null;
  readonly model: string | null;
  readonly dropped_tools: readonly string[];
  readonly record: Delegation | null;
}

export interface LiveSession {
  readonly id: string;
  session: Session | null;
  /** Ascending, without holes. */
  messages: Message[];
  hasOlder: boolean;
  /** The newest message before the connection broke: behind it some may be missing. Null: none is. */
  wholeUpTo: string | null;
  readonly open: Map<string, OpenMessage>;
  /** The session first, each worker behind its planner. */
  nodes: LiveNode[];
  readonly calls: Map<string, WorkerCall>;
  readonly confirmations: Map<string, Confirmation>;
  readonly tools: Map<string, ToolState>;
  /** Calls that ran with arguments of a person. */
  readonly edits: Set<string>;
  /** By turn, as far as they were decided while one watched. */
  readonly routes: Map<string, Route>;
  /** The newest one of the session, as far as one came while one watched. */
  refusal: Refusal | null;
  /** Bumped with every change of what is stored. */
  version: number;
  /** Grows with each beginning, end and score of a turn of the session itself, and with each snapshot: some may be behind it. */
  turnsSeen: number;
  /** A message was missed, or a turn ended: the newest ones are asked for again. */
  wantsMessages: boolean;
  /** A delegation closed: its record holds the output. */
  wantsWorkers: boolean;
  /** A result says that its call was edited: the approvals know whether it was. */
  wantsEdits: boolean;
  /** A turn or a delegation ended, or one has just come: the ledger knows the tokens. */
  wantsTokens: boolean;
}

export function liveSession(id: string): LiveSession {
  return {
    id,
    session: null,
    messages: [],
    hasOlder: false,
    wholeUpTo: null,
    open: new Map(),
    nodes: [],
    calls: new Map(),
    confirmations: new Map(),
    tools: new Map(),
    edits: new Set(),
    routes: new Map(),
    refusal: null,
    version: 0,
    turnsSeen: 0,
    wantsMessages: false,
    wantsWorkers: false,
    wantsEdits: false,
    wantsTokens: false,
  };
}
