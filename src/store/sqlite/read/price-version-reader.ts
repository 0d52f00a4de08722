// Reads stored price versions.
import type Database from 'better-sqlite3';
import type { PriceVersionRecord, PriceVersions } from '../../../ports/price-versions.ts';

export function createPriceVersionReader(db: Database.Database): PriceVersions {
  const one = db.prepare<[string], PriceVersionRecord>(
    'SELECT version, content_hash, source, models_json, created_at FROM price_versions WHERE version = ?',
  );
  const all = db.prepare<[], Omit<PriceVersionRecord, 'models_json'>>(
    'SELECT version, content_hash, source, created_at FROM price_versions ORDER BY created_at DESC, version DESC',
  );
  return {
    get: async (version) => one.get(version) ?? null,
    list: async () => all.all(),
  };
}
