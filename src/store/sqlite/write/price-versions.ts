// Price versions: stored once, so that a past call can be priced again (08 §3).
import type Database from 'better-sqlite3';
import type { Journal } from '#core/ports/journal-writer.ts';
import type { Clock } from '#protocol/clock.ts';
import { PRICE_COLUMNS, PRICE_HASH, ratesChanged } from '#store/write/others.ts';
import { insertInto } from '../connection/named.ts';

type PriceVersion = Parameters<Journal['savePriceVersion']>[0];

export function createPriceVersions(db: Database.Database, clock: Clock): (row: PriceVersion) => void {
  const insert = insertInto(db, 'price_versions', PRICE_COLUMNS, 'ON CONFLICT (version) DO NOTHING');
  const hashOf = db.prepare<[string], { content_hash: string }>(PRICE_HASH);
  return (row) => {
    if (insert({ ...row, created_at: clock.now() }).changes === 1) return;
    if (hashOf.get(row.version)?.content_hash === row.content_hash) return;
    throw ratesChanged(row.version);
  };
}
