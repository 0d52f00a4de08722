// SQL that SQLite and PostgreSQL spell differently: shared statements contain it as a fragment in braces.

/** Each function returns the spelling of one fragment. A statement names it as `{fragment}` or `{fragment(a, b)}`. */
export interface Dialect {
  /** Reads a table through this index; a hint for SQLite's planner, which has no statistics. */
  index(name: string): string;
  /** Keeps a column from being looked up in an index; likewise a hint. Written before the column. */
  no_index(): string;
  /** Joins two tables in the order in which they are written; likewise a hint. `ON` follows. */
  join_in_order(): string;
  /** Whether the value before it is in a list, which is bound as one JSON text of strings. */
  in_list(): string;
  /** A field of a column that holds a JSON object. */
  json_field(column: string, field: string): string;
  /** Text at a path into a column that holds JSON, such as `0, text`; null where PostgreSQL cannot hold it as text. */
  text_at(column: string, ...path: readonly string[]): string;
  /** The greater, or the lesser, of two values; the parentheses follow. `max` and `min` aggregate a column. */
  greatest(): string;
  least(): string;
  /** Ends a SELECT whose rows no other transaction deletes, or changes and reads for deletion, before this one ends. */
  keep_rows(): string;
  lock_rows(): string;
  /** A bound id in the first term of a recursion, sorted like the ids in the second term. */
  first_id(): string;
}

const FRAGMENT = /\{(\w+)(?:\(([^)]*)\))?\}/g;

/** Throws for a fragment that no dialect has. */
export function expandFragments(dialect: Dialect, sql: string): string {
  return sql.replaceAll(FRAGMENT, (_, name: string, args: string | undefined) => {
    if (!Object.hasOwn(dialect, name)) throw new RangeError(`no dialect has the fragment ${name}`);
    const spell: (...args: readonly string[]) => string = dialect[name as keyof Dialect];
    return spell(...(args?.split(', ') ?? []));
  });
}
