// Notices that receivers outside have not got yet, where several nodes could send them (16 §9).
import type { AnyEvent } from '#protocol/event.ts';

export interface Notices {
  /**
   * Runs `work` while no other node sends notices: waits for the node that does, and runs it again when it ends, until `closing`.
   * @param work ends soon after its signal: another node may send from then on
   */
  alone(closing: AbortSignal, work: (ending: AbortSignal) => Promise<void>): Promise<void>;
  /** Oldest first of each session. */
  next(receiver: string, most: number): Promise<readonly AnyEvent[]>;
  markSent(receiver: string, eventId: string): Promise<void>;
}
