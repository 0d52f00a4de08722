// Pages: one row more than asked tells whether there are others.
import type { Page } from '#core/ports/store.ts';

/** `rows` were read with `limit + 1`; `key` is what the next page starts after. */
export function pageOf<Row, T>(
  rows: readonly Row[],
  limit: number,
  key: (row: Row) => string,
  decode: (row: Row) => T,
): Page<T> {
  const shown = rows.slice(0, limit);
  const last = shown.at(-1);
  return {
    rows: shown.map(decode),
    next: rows.length > limit && last !== undefined ? key(last) : null,
  };
}
