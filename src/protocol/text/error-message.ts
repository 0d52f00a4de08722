// The message of what was thrown.

/** The message of what was thrown, whatever it is: `String(thrown)` for a value that is no error. */
export function readErrorMessage(thrown: unknown): string {
  if (thrown instanceof Error) return thrown.message;
  return String(thrown);
}
