// Trees whose turn was lost twice without coming to anything: any of them may be what ends its nodes (16 §4.3).
import type { SessionId } from '#protocol/ids.ts';
import type { Engine } from '../state/engine.ts';

/** What shows that a turn does no harm; so does time. */
const MOVES: readonly string[] = [
  'llm.call_completed',
  'llm.call_failed',
  'tool.completed',
  'turn.completed',
  'turn.failed',
  'turn.cancelled',
];
const HARMLESS_AFTER_MS = 5000;

export interface Suspects {
  /** Whether the tree's turn is one: it was taken up before without coming to anything, and lost so again. */
  includes(root: SessionId): Promise<boolean>;
  /** Resumes it when the one before it has come to something: were they at work together, all would be blamed for one. */
  inTurn(root: SessionId, resume: () => Promise<void>): Promise<void>;
}

export function createSuspects(engine: Engine): Suspects {
  let last: Promise<unknown> = Promise.resolve();

  function moved(root: SessionId): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        timer.cancel();
        unsubscribe();
        resolve();
      };
      const timer = engine.clock.after(HARMLESS_AFTER_MS, done);
      const unsubscribe = engine.bus.subscribe('suspects', (items) => {
        for (const item of items) {
          if (item.kind !== 'event' || !MOVES.includes(item.event.type)) continue;
          const { session_id, payload } = item.event;
          if (session_id === root || ('root_session_id' in payload && payload.root_session_id === root)) return done();
        }
      });
    });
  }

  return {
    async includes(root) {
      const turn = await engine.store.turns.open(root);
      return turn !== null && turn.resume_attempts > 0 && turn.interrupted_reason === 'restart';
    },
    inTurn(root, resume) {
      const resumed = last.then(async () => {
        if (!engine.trees.holds(root)) return;
        const over = moved(root);
        await resume();
        await over;
      });
      last = resumed.catch(() => {});
      return resumed;
    },
  };
}
