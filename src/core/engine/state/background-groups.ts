// The background workers of the turns that run in this process, and what wakes a turn that waits for them (20 §9).
import { Cancelled, createScope } from '#protocol/abort.ts';
import type { SessionId, ToolUseId, TurnId } from '#protocol/ids.ts';
import { createChildScope, type InterruptReason } from './concurrency.ts';
import type { TurnPlan } from './turn-run.ts';

/** A background worker whose work runs in this process. */
export interface BackgroundRun {
  readonly tool_use_id: ToolUseId;
  /** Null until it is stored. */
  worker_session_id: SessionId | null;
  /** Aborted with the group's scope, or alone. */
  readonly scope: AbortController;
  /** Aborted to let the worker answer with what it has. */
  readonly conclusion: AbortController;
}

/** The background workers of one turn. The stored delegations are the truth: a group is the part of them that runs. */
export interface BackgroundGroup {
  /** Aborted to end all workers. */
  readonly scope: AbortController;
  readonly runs: ReadonlyMap<ToolUseId, BackgroundRun>;
  /** Why a worker was interrupted: its turn cannot end before it has resumed. */
  readonly interrupted: InterruptReason | null;
  /** The fault that left a delegation open; thrown in the turn's loop. */
  readonly fault: { readonly error: unknown } | null;
  /** Results that a call has taken and not stored yet: no other call takes them. */
  readonly taken: Set<string>;
  /** Workers that run, are interrupted or are about to be stored. */
  countOpen(): number;
  /** Adds a worker at once; its session is null until it is stored. `settle` is called once, when none of its work runs any more. */
  add(toolUseId: ToolUseId, worker: SessionId | null): { readonly run: BackgroundRun; settle(end: RunEnd): void };
  /** Takes a number that changes with whatever the turn may wait for; read before the state is. */
  mark(): number;
  /** Resolves at once if anything changed since the mark, else at the next change. Holds no timer. */
  whenChanged(mark: number): Promise<void>;
  wake(): void;
  /** Resolves when no work runs. */
  whenIdle(): Promise<void>;
}

/** How the work of a background worker ended; null = its delegation is closed, or was never stored. */
export type RunEnd =
  | null
  | { readonly interrupted: InterruptReason }
  | { readonly error: unknown }
  /** Its tree is another node's. */
  | 'lost';

export interface BackgroundGroups {
  /** Null where the turn started none in this process. */
  get(turnId: TurnId): BackgroundGroup | null;
  /** The group of a running turn, made where there is none. @param isHandOver whether the process stops and the turn resumes later */
  open(run: Pick<TurnPlan, 'turn' | 'signal' | 'conclusion'>, isHandOver: () => boolean): BackgroundGroup;
  /** A message came for the turn. */
  wake(turnId: TurnId): void;
  /** The process stops. */
  wakeAll(): void;
  /** Forgets the group of a turn that has stopped. */
  close(turnId: TurnId): void;
}

export function createBackgroundGroups(): BackgroundGroups {
  const groups = new Map<TurnId, BackgroundGroup & { detach(): void }>();
  return {
    get: (turnId) => groups.get(turnId) ?? null,
    open({ turn, signal, conclusion }, isHandOver) {
      const known = groups.get(turn.id);
      if (known !== undefined) return known;
      const group = createGroup();
      const onAbort = () => {
        // Workers of a turn that is handed over stop by themselves; those of a turn out of time get time to conclude.
        const isLate = signal.reason instanceof Cancelled && signal.reason.reason === 'timeout';
        if (!isLate && !isHandOver() && !group.scope.signal.aborted) group.scope.abort(signal.reason);
        group.wake();
      };
      const onConclude = () => group.wake();
      signal.addEventListener('abort', onAbort, { once: true });
      conclusion.signal.addEventListener('abort', onConclude, { once: true });
      if (signal.aborted) onAbort();
      const detach = () => {
        signal.removeEventListener('abort', onAbort);
        conclusion.signal.removeEventListener('abort', onConclude);
      };
      groups.set(turn.id, Object.assign(group, { detach }));
      return group;
    },
    wake: (turnId) => groups.get(turnId)?.wake(),
    wakeAll: () => {
      for (const group of groups.values()) group.wake();
    },
    close(turnId) {
      groups.get(turnId)?.detach();
      groups.delete(turnId);
    },
  };
}

function createGroup(): BackgroundGroup {
  const scope = createScope();
  const runs = new Map<ToolUseId, BackgroundRun>();
  let changes = 0;
  let waiting: (() => void)[] = [];
  let interruptedRuns = 0;
  let interrupted: InterruptReason | null = null;
  let fault: BackgroundGroup['fault'] = null;

  function wake(): void {
    changes += 1;
    const resolvers = waiting;
    waiting = [];
    for (const resolve of resolvers) resolve();
  }
  const whenChanged = (mark: number): Promise<void> =>
    changes === mark ? new Promise((resolve) => waiting.push(resolve)) : Promise.resolve();

  return {
    scope,
    runs,
    taken: new Set(),
    get interrupted() {
      return interrupted;
    },
    get fault() {
      return fault;
    },
    countOpen: () => runs.size + interruptedRuns,
    add(toolUseId, worker) {
      const child = createChildScope(scope.signal);
      const run: BackgroundRun = {
        tool_use_id: toolUseId,
        worker_session_id: worker,
        scope: child.scope,
        conclusion: createScope(),
      };
      runs.set(toolUseId, run);
      return {
        run,
        settle(end) {
          child.detach();
          runs.delete(toolUseId);
          if (end !== null && end !== 'lost') {
            interruptedRuns += 1;
            if ('interrupted' in end) interrupted ??= end.interrupted;
            else fault ??= end;
          }
          wake();
        },
      };
    },
    mark: () => changes,
    whenChanged,
    wake,
    async whenIdle() {
      while (runs.size > 0) await whenChanged(changes);
    },
  };
}
