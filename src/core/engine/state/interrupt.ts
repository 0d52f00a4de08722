// Interrupting a turn so that it can be taken up again: who says so, and when (04 §13).

import { Cancelled } from '#protocol/abort.ts';
import { TreeLost } from '#protocol/batch.ts';
import type { Engine } from './engine.ts';

/** Why something is ended over a fault of the journal. */
export const FAULT = new Cancelled('shutdown', 'internal error');

export type InterruptReason = 'restart' | 'budget';

/** Thrown through a delegation whose worker was interrupted: the planner's call stays open and its turn is interrupted too. */
export class Interrupted extends Error {
  readonly reason: InterruptReason;
  constructor(reason: InterruptReason) {
    super(`interrupted: ${reason}`);
    this.name = 'Interrupted';
    this.reason = reason;
  }
}

/** Throws where the tree is another node's now: nothing of it is run or stored here any more (16 §4.4). */
export function throwIfLost(signal: AbortSignal, thrown?: unknown): void {
  if (thrown instanceof TreeLost) throw thrown;
  if (signal.reason instanceof TreeLost) throw signal.reason;
}

/** Whether the process stops in a way that lets its turns go on after the next start. */
export function isHandOver(engine: Engine, signal: AbortSignal): boolean {
  if (!engine.draining.value || engine.config.recovery.on_start === 'cancel') return false;
  return !signal.aborted || (signal.reason instanceof Cancelled && signal.reason.reason === 'shutdown');
}
