// Shared texts of the store as PostgreSQL spells them. They are written for SQLite, whose hints it has no need of.

/** A statement with its values bound by position; `names` says which of an object's fields go where. */
export interface Translated {
  readonly text: string;
  readonly names: readonly string[];
}

/** In order: what the one spells otherwise than the other, each with why. */
const RULES: readonly (readonly [RegExp, string])[] = [
  // Hints for SQLite's planner.
  [/ INDEXED BY \w+/g, ''],
  [/CROSS JOIN (\w+(?: \w+)?) ON/g, 'JOIN $1 ON'],
  [/(?<=[\s(,])\+(?=[a-z])/g, ''],
  // A list of ids comes as one JSON text. As an array it is looked up in an index; as a sub-select, the table is read.
  [/IN \(SELECT value FROM json_each\(\?\)\)/g, '= ANY (ARRAY(SELECT json_array_elements_text(CAST(? AS json))))'],
  // Fields of JSON texts.
  [/json_extract\(([\w.]+), '\$\.(\w+)'\)/g, "(CAST($1 AS json) ->> '$2')"],
  [/([\w.]+_json) ->> '\$\.(\w+)'/g, "(CAST($1 AS json) ->> '$2')"],
  // Of two values, not of a column.
  [/\bmax\((?=\d)/g, 'greatest('],
  [/\bmin\((?=\d)/g, 'least('],
  // Both terms of the recursion must be sorted alike.
  [/SELECT \?, 0 UNION ALL/g, 'SELECT CAST(? AS text) COLLATE "C", 0 UNION ALL'],
];

const known = new Map<string, Translated>();
/** Texts come from code, never from a request; the reports combine their parts to more texts than are worth keeping. */
const MAX_KNOWN = 1024;

/** `?` or `@name` for values. */
export function translateSql(sql: string): Translated {
  const found = known.get(sql);
  if (found !== undefined) return found;
  if (known.size >= MAX_KNOWN) known.clear();
  let text = RULES.reduce((left, [from, to]) => left.replace(from, to), sql);
  const names: string[] = [];
  let placed = 0;
  text = text.replaceAll(/\?|@(\w+)/g, (_, name: string | undefined) => {
    if (name === undefined) return `$${++placed}`;
    const at = names.indexOf(name);
    if (at >= 0) return `$${at + 1}`;
    names.push(name);
    return `$${names.length}`;
  });
  const result = { text, names };
  known.set(sql, result);
  return result;
}
