// Price versions: stored once, so that a past call can be priced again (08 §3).
import type Database from 'better-sqlite3';
import type { Clock } from '../../../kernel/clock.ts';
import type { Journal } from '../../../ports/journal.ts';
import { insertInto } from '../connection/named.ts';

type PriceVersion = Parameters<Journal['savePriceVersion']>[0];

export function createPriceVersions(db: Database.Database, clock: Clock): (row: PriceVersion) => void {
  const columns = ['version', 'content_hash', 'source', 'models_json', 'created_at'] as const;
  const insert = insertInto(db, 'price_versions', columns, 'ON CONFLICT (version) DO NOTHING');
  const hashOf = db.prepare<[string], { content_hash: string }>(
    'SELECT content_hash FROM price_versions WHERE version = ?',
  );
  return (row) => {
    if (insert({ ...row, created_at: clock.now() }).changes === 1) return;
    if (hashOf.get(row.version)?.content_hash === row.content_hash) return;
    throw new Error(
      `price table version ${row.version} was used before with other rates; give the changed table a new pricing_version`,
    );
  };
}
