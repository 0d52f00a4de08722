// Prepared statements of queries whose conditions vary: few texts, each prepared once.
import type Database from 'better-sqlite3';

/** Texts come from code, never from a request; the reports combine their parts to more texts than are worth keeping. */
const MAX_STATEMENTS = 256;

export function createStatementCache<Row>(db: Database.Database): (sql: string) => Database.Statement<unknown[], Row> {
  const prepared = new Map<string, Database.Statement<unknown[], Row>>();
  return (sql) => {
    const known = prepared.get(sql);
    if (known !== undefined) return known;
    if (prepared.size >= MAX_STATEMENTS) prepared.clear();
    const statement = db.prepare<unknown[], Row>(sql);
    prepared.set(sql, statement);
    return statement;
  };
}
