// Records the statements of a transaction to send them at once; trees insert their rows together (16 §3.3).
import { type Insertion, readValue, type Tx } from '#store/write/transaction.ts';
import type { Statement } from '../connection/client.ts';

/** Maximum rows of one statement: one for each number of rows stays prepared. */
const MAX_ROWS = 8;

interface Recorder {
  /** Records the statements of a tree, which neither need nor change what the statements of another tree change. */
  beginPart(): Tx;
  /** Records what runs after all trees. */
  readonly afterParts: Tx;
  /** Whether a statement has a check that must pass before the commit. */
  needsAnswer(): boolean;
  /** All of them, those of each part in their order. */
  listStatements(): readonly Statement[];
}

type Recorded = Statement | Inserted;
interface Inserted {
  readonly into: Insertion;
  readonly row: object;
}

export function createRecorder(): Recorder {
  const parts: Recorded[][] = [];
  const after: Recorded[] = [];
  let isNeeded = false;

  const record = (list: Recorded[]): Tx => ({
    run(sql, values, check) {
      if (check !== undefined) isNeeded = true;
      list.push({ sql, values, isChange: false, take: null });
    },
    insert: (into, row) => void list.push({ into, row }),
    change: (sql, values) => void list.push({ sql, values, isChange: true, take: null }),
    read: (sql, values, take) => void list.push({ sql, values, isChange: false, take }),
  });
  return {
    beginPart() {
      const list: Recorded[] = [];
      parts.push(list);
      return record(list);
    },
    afterParts: record(after),
    needsAnswer: () => isNeeded,
    listStatements: () => [...mergeInserts(interleave(parts)), ...mergeInserts(after)],
  };
}

/** The first of each list, then the second of each: what trees do alike stands together. */
function* interleave(lists: readonly (readonly Recorded[])[]): Iterable<Recorded> {
  const longest = Math.max(0, ...lists.map(({ length }) => length));
  for (let i = 0; i < longest; i++)
    for (const list of lists) {
      const one = list[i];
      if (one !== undefined) yield one;
    }
}

/** Rows for one table that follow each other become one statement. */
function mergeInserts(recorded: Iterable<Recorded>): readonly Statement[] {
  const statements: Statement[] = [];
  let into: Insertion | null = null;
  let rows: object[] = [];
  const endInsert = () => {
    if (into !== null) statements.push(insertAll(into, rows));
    into = null;
    rows = [];
  };
  for (const one of recorded) {
    if (!('into' in one)) {
      endInsert();
      statements.push(one);
      continue;
    }
    if (into !== one.into || rows.length === MAX_ROWS) endInsert();
    into = one.into;
    rows.push(one.row);
  }
  endInsert();
  return statements;
}

function insertAll({ columns, sqlFor }: Insertion, rows: readonly object[]): Statement {
  const values = rows.flatMap((row) => columns.map((column) => readValue(row, column)));
  return { sql: sqlFor(rows.length), values, isChange: false, take: null };
}
