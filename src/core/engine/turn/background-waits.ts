// The waits of a turn for its background workers, and their end with it (20 §9). No timer runs but for the grace of a conclusion.
import { Cancelled, cancelledBy } from '#protocol/abort.ts';
import type { BackgroundGroup } from '../state/background-groups.ts';
import { type ActiveTurn, cancelScope, type InterruptReason } from '../state/concurrency.ts';
import type { Delegations, Runtime } from '../state/engine.ts';
import type { TurnBase } from '../state/turn-run.ts';

/** The group of the turn, while it has workers that run. */
export function findRunningGroup(engine: Delegations, { turn }: Pick<TurnBase, 'turn'>): BackgroundGroup | null {
  const group = engine.background.get(turn.id);
  if (group === null || group.runs.size === 0) return null;
  return group;
}

/** Throws the fault that left a delegation of the turn open: the turn cannot end by itself. */
export function throwIfFaulty(engine: Delegations, { turn }: Pick<TurnBase, 'turn'>): void {
  const fault = engine.background.get(turn.id)?.fault ?? null;
  if (fault !== null) throw fault.error;
}

/** Why the turn has to be interrupted in place of its end: one of its workers was. */
export function findInterruption(engine: Delegations, { turn }: Pick<TurnBase, 'turn'>): InterruptReason | null {
  return engine.background.get(turn.id)?.interrupted ?? null;
}

/**
 * Lets the turn's workers answer with what they have, and ends those that have not done so in time. Resolves when none
 * runs. A cancellation of the turn itself, other than its timeout, ends them at once.
 */
export async function concludeWorkers(engine: Runtime & Delegations, run: Pick<TurnBase, 'turn'>): Promise<void> {
  const group = findRunningGroup(engine, run);
  if (group === null) return;
  for (const { conclusion } of group.runs.values()) conclusion.abort();
  const seconds = engine.config.delegation.grace_seconds;
  const reason = new Cancelled('timeout', `its planner's turn has ended, and it did not conclude within ${seconds} s`);
  const timer = engine.clock.after(seconds * 1000, () => cancelScope(group.scope, reason));
  await group.whenIdle();
  timer.cancel();
}

/** Ends the turn's workers at once. Resolves when none runs. */
export async function cancelWorkers(
  engine: Delegations,
  run: Pick<TurnBase, 'turn'>,
  reason: Cancelled,
): Promise<void> {
  const group = findRunningGroup(engine, run);
  if (group === null) return;
  cancelScope(group.scope, reason);
  await group.whenIdle();
}

/** Resolves when the workers of a turn that is interrupted have stopped too, each by itself. */
export async function settleWorkers(engine: Delegations, run: Pick<TurnBase, 'turn'>): Promise<void> {
  await findRunningGroup(engine, run)?.whenIdle();
}

/** Cancels a running turn. One that is out of time waits for its workers to conclude: they are ended at once. */
export function cancelRunning(
  engine: Delegations,
  { turn_id, scope }: Pick<ActiveTurn, 'turn_id' | 'scope'>,
  reason: Cancelled,
): void {
  const isLate = scope.signal.aborted && cancelledBy(scope.signal).reason === 'timeout';
  cancelScope(scope, reason);
  const group = engine.background.get(turn_id);
  if (isLate && group !== null) cancelScope(group.scope, reason);
}
