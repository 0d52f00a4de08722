// Trees whose turn was lost twice without coming to anything: any of them may be what ends its nodes (16 §4.3).

import type { SessionId } from '#protocol/ids.ts';
import { TreeLost } from '#protocol/journal-batch.ts';
import { forgetLimit } from '../money/budget-limits.ts';
import type { Cluster, Runtime, Storage, TreeEngine } from '../state/engine.ts';
import { dropDecisions, listCallsInTree } from '../state/gateway-memory.ts';

/** What shows that a turn does no harm; so does time. */
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
  /** Whether the tree's turn is one: it was taken up before without coming to anything, and lost so again. */
  includes(root: SessionId): Promise<boolean>;
  /** Resumes it when the one before it has come to something: were they at work together, all would be blamed for one. */
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

// A tree that another node may take: what runs of it here stops and stores nothing, and nothing of it is remembered (16 §4.4).

/**
 * Resolves when nothing of it runs any more.
 * @param patienceMs after which tools that do not end by themselves are killed
 */
export async function loseTree(engine: TreeEngine, root: SessionId, patienceMs: number): Promise<void> {
  const lost = new TreeLost(root, patienceMs);
  const listWork = () => [
    ...engine.locks.activeTurns().filter((turn) => turn.root_session_id === root),
    ...engine.outside.listTree(root),
    ...listCallsInTree(engine.gateway, root),
  ];
  for (let left = listWork(); left.length > 0; left = listWork()) {
    for (const { scope } of left) if (!scope.signal.aborted) scope.abort(lost);
    await Promise.all(left.map(({ done }) => done));
  }
  // What is being admitted, resumed or ended finds that nothing can be stored.
  while (engine.locks.isHeld(root)) await engine.locks.whenDecided(root);
  forgetLimit(engine, 'session', root);
  dropDecisions(engine.gateway, root);
  engine.starts.delete(root);
  engine.files.forget(root);
}
