// Which models a database has calls of, read without a server (22 §5).
import fs from 'node:fs';
import { databaseFault, openReader } from './open.ts';

const DAY_MS = 86_400_000;

/**
 * Ids of the models that were called since a moment, in whole days (UTC); none where there is no database.
 * @param since Unix milliseconds
 */
export function listUsedModels(path: string, since: number): readonly string[] {
  if (!fs.existsSync(path)) return [];
  try {
    const reader = openReader(path);
    try {
      const rows = reader
        .prepare('SELECT DISTINCT model FROM rollup_day WHERE day >= ? AND calls > 0 ORDER BY model')
        .all(Math.floor(since / DAY_MS));
      return (rows as readonly { readonly model: string }[]).map(({ model }) => model);
    } finally {
      reader.close();
    }
  } catch (cause) {
    throw databaseFault(path, cause);
  }
}
