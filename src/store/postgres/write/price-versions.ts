// Price versions: stored once, so that a past call can be priced again (08 §3).

import type { Journal } from '#core/ports/journal-writer.ts';
import type { Clock } from '#protocol/clock.ts';
import { PRICE_COLUMNS, PRICE_HASH, ratesChanged } from '#store/write/others.ts';
import type { Pool } from '../connection/pool.ts';

const INSERT = `INSERT INTO price_versions (${PRICE_COLUMNS.join(', ')})
  VALUES (${PRICE_COLUMNS.map((column) => `@${column}`).join(', ')}) ON CONFLICT (version) DO NOTHING`;

export async function savePriceVersion(
  pool: Pool,
  clock: Clock,
  row: Parameters<Journal['savePriceVersion']>[0],
): Promise<void> {
  const { changes } = await pool.send(INSERT, { ...row, created_at: clock.now() });
  if (changes === 1) return;
  const { rows } = await pool.send<{ content_hash: string }>(PRICE_HASH, [row.version]);
  if (rows[0]?.content_hash !== row.content_hash) throw ratesChanged(row.version);
}
