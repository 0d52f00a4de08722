// Questions to a person that wait for an answer in this process. The row in the store is the truth; this is only who wakes up.
import type { Answer } from '#protocol/confirmation.ts';
import type { Issue } from '#protocol/errors.ts';
import type { ConfirmationId, EventId } from '#protocol/ids.ts';

export interface OpenApproval {
  /** The answer that is being stored, until it is known whether it was; whoever comes meanwhile waits for that. */
  claim: Promise<void> | null;
  /** The `tool.confirmation_requested` event: parent of its resolution. */
  readonly request_event: EventId;
  /** Checks an edited input as the original was checked. */
  recheck(input: Readonly<Record<string, unknown>>): Promise<readonly Issue[]>;
  settle(answer: Answer): void;
  /** Not even its end could be stored. */
  fail(error: unknown): void;
  /** The server stops: nobody can answer any more, and the next start asks again. */
  putDown(): void;
  /** No answer came of a claim: a deadline or a cancellation that fell into it still counts. */
  unclaimed(): void;
}

/** Holds an approval that nobody holds, from this very moment, until `store` has settled. */
export async function claim<T>(open: OpenApproval, store: () => Promise<T>): Promise<T> {
  let over = () => {};
  open.claim = new Promise((resolve) => {
    over = resolve;
  });
  try {
    return await store();
  } finally {
    open.claim = null;
    over();
  }
}

export type OpenApprovals = Map<ConfirmationId, OpenApproval>;

export function createOpenApprovals(): OpenApprovals {
  return new Map();
}
