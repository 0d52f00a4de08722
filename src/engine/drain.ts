// Graceful shutdown: running calls and tools may finish, nothing new starts, what is left is cancelled (04 §13).
import { Cancelled } from '../kernel/abort.ts';
import type { Engine } from './context.ts';
import { cancelScope } from './session-lock.ts';

/** Resolves when no turn runs any more: each has its terminal event, or is put down for the next start. */
export async function drain(engine: Engine): Promise<void> {
  engine.draining.value = true;
  const turns = engine.locks.active();
  if (turns.length === 0) return;
  const timer = engine.clock.after(engine.config.shutdown.drain_seconds * 1000, () => {
    for (const turn of engine.locks.active()) cancelScope(turn.scope, new Cancelled('shutdown'));
  });
  await Promise.all(turns.map((turn) => turn.done));
  // A worker that was being admitted when the drain began appears only now.
  while (engine.locks.active().length > 0) await Promise.all(engine.locks.active().map((turn) => turn.done));
  timer.cancel();
}
