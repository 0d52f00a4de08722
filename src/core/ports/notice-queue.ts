// What receivers outside are still to be told, where several nodes could tell it (16 §9).
import type { AnyEvent } from '#protocol/event.ts';

export interface Notices {
  /**
   * Runs `work` when no other node tells anybody, waiting for whoever does, and again where it ended, until `closing`.
   * @param work ends soon after its signal: another node may tell from then on
   */
  alone(closing: AbortSignal, work: (ending: AbortSignal) => Promise<void>): Promise<void>;
  /** Oldest first of each session. */
  next(receiver: string, most: number): Promise<readonly AnyEvent[]>;
  told(receiver: string, eventId: string): Promise<void>;
}
