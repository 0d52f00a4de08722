// How long a stream waits before it connects anew (06 §11): the less a server brings, the more rarely it is asked.

const FIRST_DELAY_MS = 100;
export const LONGEST_DELAY_MS = 5000;

export interface Backoff {
  /** Something came that was not known before, or the connection has stood for longer than the longest wait. */
  good(): void;
  /** A connection is gone: milliseconds until the next one. */
  lost(): number;
}

/**
 * Twice the last wait after each connection that brought nothing: one that was taken and closed at once counts as one
 * that was refused. One that stood longer than the longest wait asks nobody too often, however quiet it was.
 */
export function createBackoff(): Backoff {
  let failures = 0;
  return {
    good() {
      failures = 0;
    },
    lost: () => Math.min(FIRST_DELAY_MS * 2 ** failures++, LONGEST_DELAY_MS),
  };
}
