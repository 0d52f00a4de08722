// Graceful shutdown: running calls and tools may finish, nothing new starts, what is left is cancelled (04 §13).
import { Cancelled } from '#protocol/abort.ts';
import { AppError } from '#protocol/errors.ts';
import { keepSettled } from './closing/close-model-calls.ts';
import { dropAnswers } from './gateway/relay-call.ts';
import type { Engine } from './state/engine.ts';
import { cancelScope } from './state/session-lock.ts';

/**
 * Resolves when no turn and no call of the gateway runs any more, one that was just being admitted included: each has its terminal event, or is put
 * down for the next start.
 */
export async function drain(engine: Engine): Promise<void> {
  engine.draining.value = true;
  dropAnswers(engine);
  for (const approval of [...engine.approvals.values()]) approval.putDown();
  const timer = engine.clock.after(engine.config.shutdown.drain_seconds * 1000, () => {
    for (const turn of engine.locks.active()) cancelScope(turn.scope, new Cancelled('shutdown'));
    for (const call of engine.gateway.calls) cancelScope(call.scope, new Cancelled('shutdown'));
  });
  await Promise.all([engine.locks.idle(), engine.outside.idle()]);
  await engine.locks.idle();
  while (engine.gateway.calls.size > 0) await Promise.all([...engine.gateway.calls].map(({ done }) => done));
  timer.cancel();
  if (engine.trees.several) return;
  await keepSettled(engine).catch((err: unknown) =>
    engine.log.warn({ err }, 'the next start looks through more events'),
  );
}

export function goingDown(): AppError {
  return new AppError('service_shutting_down', 'the server is going down; try again soon');
}
