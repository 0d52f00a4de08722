// Values as the columns hold them.

/** Truth values are 0 and 1, as SQLite has no others. */
export function bit(value: boolean): 0 | 1;
export function bit(value: boolean | null): 0 | 1 | null;
export function bit(value: boolean | null): 0 | 1 | null {
  return value === null ? null : value ? 1 : 0;
}

/** Of a delegation without a time limit: a limit is above 0, and the column holds no null. */
export const NO_TIMEOUT = 0;

/** JSON text of a value, NULL of null. */
export function json(value: unknown): string | null {
  return value === null || value === undefined ? null : JSON.stringify(value);
}
