// Reads stored price versions.
import type Database from 'better-sqlite3';
import type { PriceVersionRecord, PriceVersions } from '#core/ports/price-versions.ts';
import { PRICE_VERSION, PRICE_VERSIONS } from '#store/read/meta.ts';

export function createPriceVersionReader(db: Database.Database): PriceVersions {
  const one = db.prepare<[string], PriceVersionRecord>(PRICE_VERSION);
  const all = db.prepare<[], Omit<PriceVersionRecord, 'models_json'>>(PRICE_VERSIONS);
  return {
    get: async (version) => one.get(version) ?? null,
    list: async () => all.all(),
  };
}
