// Delegations without a turn, requested over the API: their caller, and the ones that run in this process (19 §3.1).

import type { DelegationTerms } from '#core/policy/delegation/delegation-bill.ts';
import type { PlannerView } from '#core/policy/delegation/worker-outcome.ts';
import type { Write } from '#core/ports/journal-writer.ts';
import type { WorkerControl, WorkerSpawner } from '#core/ports/tool-port.ts';
import type { Cancelled } from '#protocol/abort.ts';
import type { DelegationRecord } from '#protocol/delegate.ts';
import type { Issue } from '#protocol/errors.ts';
import type { SessionId, ToolUseId, TurnId } from '#protocol/ids.ts';
import type { StoredMessage, ToolUseBlock } from '#protocol/message.ts';
import type { ModelEntry } from '#protocol/model.ts';
import type { ToolDefinition } from '#protocol/tool.ts';
import type { TurnRecord } from '#protocol/turn.ts';
import type { BillRow } from '#protocol/what-if/cost-ahead.ts';
import { cancelScope, createSlots, type Slots } from './concurrency.ts';
import type { TurnRun } from './turn-run.ts';

/** The caller of a delegation: a running turn, or a session for which the API requested it. */
export type Caller = Pick<
  TurnRun,
  'session' | 'toolset' | 'scope' | 'signal' | 'clocks' | 'tree' | 'caps' | 'call_event_id'
> & {
  readonly turn: Pick<TurnRecord, 'id' | 'tools' | 'submitted_by'> | null;
  /** The model of the calling turn. */
  readonly model: Pick<ModelEntry, 'id'> | null;
  readonly history: readonly StoredMessage[];
  /** Set for a delegation without a turn. */
  readonly outside?: OutsideCall;
  /** Set for a worker that runs beside its turn. */
  readonly background?: BackgroundCall;
};

export interface BackgroundCall {
  /** Aborted to let the worker answer with what it has. */
  readonly conclusion: AbortController;
  /** Called once the delegation is stored. */
  readonly onStored: (delegation: DelegationRecord) => void;
}

export interface OutsideCall {
  /** Id of the token that submitted it. */
  readonly submitted_by: string | null;
  /** Tools that a planner of this session may have. */
  readonly tools: readonly string[];
  /** Stored together with the delegation. */
  readonly claim: (delegation: DelegationRecord) => readonly Write[];
  /** Called once the delegation is stored. */
  readonly onStored: (delegation: DelegationRecord) => void;
}

/** A delegation without a turn that waits for its slot or runs in this process. */
interface OutsideRun {
  readonly session_id: SessionId;
  readonly root_session_id: SessionId;
  readonly tool_use_id: ToolUseId;
  /** Aborted with a `Cancelled`. */
  readonly scope: AbortController;
  /** Resolves when the delegation is closed or interrupted and none of its work runs. Never rejects. */
  readonly done: Promise<void>;
}

export interface OutsideRuns {
  /** Slots of one session for its delegations, as many as a turn has for its tool calls (09 §9.1). */
  getSlots(session: SessionId): Slots;
  add(run: OutsideRun): void;
  get(toolUseId: string): OutsideRun | null;
  /** The runs of a tree. */
  listTree(root: SessionId): readonly OutsideRun[];
  /** Sessions with a delegation that waits or runs. */
  listSessions(): readonly SessionId[];
  /** Aborts the runs of one session and resolves when they have settled. */
  stop(session: SessionId, reason: Cancelled): Promise<void>;
  /** Resolves when nothing runs. */
  whenIdle(): Promise<void>;
}

export function createOutsideRuns(places: number): OutsideRuns {
  const runs = new Map<string, OutsideRun>();
  const slots = new Map<SessionId, Slots>();
  const listRuns = (session: SessionId) => [...runs.values()].filter((run) => run.session_id === session);
  return {
    getSlots(session) {
      const known = slots.get(session) ?? createSlots(places);
      slots.set(session, known);
      return known;
    },
    add(run) {
      runs.set(run.tool_use_id, run);
      void run.done.then(() => {
        runs.delete(run.tool_use_id);
        if (listRuns(run.session_id).length === 0) slots.delete(run.session_id);
      });
    },
    get: (toolUseId) => runs.get(toolUseId) ?? null,
    listTree: (root) => [...runs.values()].filter((run) => run.root_session_id === root),
    listSessions: () => [...new Set([...runs.values()].map(({ session_id }) => session_id))],
    async stop(session, reason) {
      const open = listRuns(session);
      for (const { scope } of open) cancelScope(scope, reason);
      await Promise.all(open.map(({ done }) => done));
    },
    async whenIdle() {
      while (runs.size > 0) await Promise.all([...runs.values()].map(({ done }) => done));
    },
  };
}

// The interface by which lower folders spawn workers and close delegations; `worker-spawner.ts` implements it.

export type Entry = NonNullable<ToolDefinition['spawns']>;

export interface Workers {
  /** The spawner of one tool call, by the kind of its tool; null where the session is too deep to delegate (04 §11). */
  spawner(run: TurnRun, call: ToolUseBlock, entry: Entry): WorkerSpawner | null;
  /**
   * Ends the workers of a turn that have no running loop, and closes their delegations. Doing it twice changes nothing.
   * @param only closes this tool call's delegation; the others stay open
   */
  closeUnder(turnId: TurnId, reason: Cancelled, only?: ToolUseId): Promise<void>;
  /** Resumes the background workers of a resumed turn (20 §9). Each runs beside the turn; none is waited for. */
  resumeBackground(run: TurnRun): Promise<void>;
  /** The control of the turn's background workers, for one call. */
  control(run: TurnRun, call: ToolUseBlock): WorkerControl;
  /** The result of a closed delegation, as the planner's model reads it. */
  describeResult(delegation: DelegationRecord): Promise<Pick<PlannerView, 'texts' | 'notes'>>;
  /** What a delegation will cost; null for a call that opens no worker: an invalid one, or a message to a running worker. Nothing is stored. */
  price(run: TurnRun, call: ToolUseBlock, entry: Entry): Promise<BillRow | null>;
  /** Why these terms cannot be had for the delegations of a bill. */
  checkTerms(run: TurnRun, rows: readonly BillRow[], terms: DelegationTerms): Promise<readonly Issue[]>;
  /** Resumes the interrupted delegations of a tree that no turn will resume. */
  resumeOutside(root: SessionId, only?: ToolUseId): Promise<void>;
}
