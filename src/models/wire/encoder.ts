// How an answer is said to a client, whichever wire it listens on.
import type { TokenUsage } from '#protocol/usage.ts';
import type { AssembledEvent } from './assembly.ts';

/** What the first event of an answer says. */
export interface AnswerHead {
  /** The answer's id on the wire. */
  readonly id: string;
  /** The model's name on the wire. */
  readonly model: string;
  /** Counts of the prompt, where they are known before the answer; else null. */
  readonly usage: TokenUsage | null;
}

/**
 * The server-sent events of one canonical event, each as the text that is written. Estimated counts are not said.
 * A message that ended in an error or was cancelled gets no end: its reader sees that it broke off.
 */
export type EventEncoder = (event: AssembledEvent) => readonly string[];
