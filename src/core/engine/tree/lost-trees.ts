// Tracks trees whose turn was lost twice without progress: one of them may crash its nodes (16 §4.3).

import type { SessionId } from '#protocol/ids.ts';
import { TreeLost } from '#protocol/journal-batch.ts';
import { forgetLimit } from '../money/budget-limits.ts';
import type { Cluster, Runtime, Storage, TreeEngine } from '../state/engine.ts';
import { dropDecisions, listCallsInTree } from '../state/gateway-memory.ts';

/** Events that show a turn's progress; a long running time shows it too. */
const PROGRESS_EVENTS: readonly string[] = [
  'llm.call_completed',
  'llm.call_failed',
  'tool.completed',
  'turn.completed',
  'turn.failed',
  'turn.cancelled',
];
const HARMLESS_AFTER_MS = 5000;

interface Suspects {
  /** Whether the tree is suspect: its turn was resumed before, made no progress, and was lost again. */
  includes(root: SessionId): Promise<boolean>;
  /** Resumes one suspect at a time, after the previous one made progress: in parallel, a crash could not be attributed to one. */
  resumeInTurn(root: SessionId, resume: () => Promise<void>): Promise<void>;
}

export function createSuspects(engine: Runtime & Storage & Cluster): Suspects {
  let last: Promise<unknown> = Promise.resolve();

  function awaitProgress(root: SessionId): Promise<void> {
    return new Promise((resolve) => {
      const finishWaiting = () => {
        timer.cancel();
        unsubscribe();
        resolve();
      };
      const timer = engine.clock.after(HARMLESS_AFTER_MS, finishWaiting);
      const unsubscribe = engine.bus.subscribe('suspects', (items) => {
        for (const item of items) {
          if (item.kind !== 'event' || !PROGRESS_EVENTS.includes(item.event.type)) continue;
          const { session_id, payload } = item.event;
          if (session_id === root || ('root_session_id' in payload && payload.root_session_id === root))
            return finishWaiting();
        }
      });
    });
  }

  return {
    async includes(root) {
      const turn = await engine.store.turns.open(root);
      return turn !== null && turn.resume_attempts > 0 && turn.interrupted_reason === 'restart';
    },
    resumeInTurn(root, resume) {
      const resumed = last.then(async () => {
        if (!engine.trees.holds(root)) return;
        const over = awaitProgress(root);
        await resume();
        await over;
      });
      last = resumed.catch(() => {});
      return resumed;
    },
  };
}

// Drops a tree that another node may take: its work here stops and stores nothing, and its memory is dropped (16 §4.4).

/**
 * Resolves when nothing of the tree runs any more.
 * @param patienceMs after this time, tools that do not end by themselves are killed
 */
export async function loseTree(engine: TreeEngine, root: SessionId, patienceMs: number): Promise<void> {
  const lost = new TreeLost(root, patienceMs);
  const listWork = () => [
    ...engine.locks.activeTurns().filter((turn) => turn.root_session_id === root),
    ...engine.outside.listTree(root),
    ...listCallsInTree(engine.gateway, root),
  ];
  for (;;) {
    const left = listWork();
    for (const { scope } of left) if (!scope.signal.aborted) scope.abort(lost);
    if (left.length > 0) await Promise.all(left.map(({ done }) => done));
    // A turn that is being admitted, resumed or ended finds that nothing can be stored, unless its commit was on its way: then it starts.
    else if (engine.locks.isHeld(root)) await engine.locks.whenDecided(root);
    else break;
  }
  forgetLimit(engine, 'session', root);
  dropDecisions(engine.gateway, root);
  engine.starts.delete(root);
  engine.files.forget(root);
}
