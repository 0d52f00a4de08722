// Prompts that wait for an answer in this process. The row in the store is the truth; this is only who wakes up.
import type { Answer } from '../domain/confirmation.ts';
import type { Issue } from '../kernel/errors.ts';
import type { ConfirmationId, EventId } from '../kernel/ids.ts';

export interface OpenPrompt {
  /** Set by the first answer, synchronously, so that a second one cannot overtake its file write. */
  claimed: boolean;
  /** The `tool.confirmation_requested` event: parent of its resolution. */
  readonly request_event: EventId;
  /** Checks an edited input as the original was checked. */
  recheck(input: Readonly<Record<string, unknown>>): Promise<readonly Issue[]>;
  settle(answer: Answer): void;
  /** The first answer could not be stored: another one may come, and a deadline or cancellation meanwhile still counts. */
  unclaim(): void;
}

export type OpenPrompts = Map<ConfirmationId, OpenPrompt>;

export function createOpenPrompts(): OpenPrompts {
  return new Map();
}
