// Prepared statements of queries whose conditions vary: few texts, each prepared once.
import type Database from 'better-sqlite3';

/** Texts come from code, never from a request, so their number is bounded. */
export function createStatementCache<Row>(db: Database.Database): (sql: string) => Database.Statement<unknown[], Row> {
  const prepared = new Map<string, Database.Statement<unknown[], Row>>();
  return (sql) => {
    const known = prepared.get(sql);
    if (known !== undefined) return known;
    const statement = db.prepare<unknown[], Row>(sql);
    prepared.set(sql, statement);
    return statement;
  };
}
