// Loads the price tables of the configuration: the first is the base, the others lie over it (08 §2, §3).
import fs from 'node:fs';
import path from 'node:path';
import { parsePriceTable, type RawTable } from '#core/policy/pricing/price-file.ts';
import { buildPriceTable, type PriceTable } from '#core/policy/pricing/price-table.ts';
import type { Journal } from '#core/ports/journal.ts';
import type { Config } from '#protocol/config.ts';
import { StartupError } from '#protocol/errors.ts';

/** Throws `StartupError('pricing_invalid')` with one line per fault of every file. */
export function loadPrices(config: Config['pricing'], packageDir: string): PriceTable {
  const problems: string[] = [];
  const tables: RawTable[] = [];
  for (const name of config.tables) {
    const file = name === 'builtin' ? path.join(packageDir, 'config', 'prices.json') : name;
    const parsed = readTable(file);
    if (parsed.ok) tables.push(parsed.value);
    else problems.push(...parsed.error);
  }
  const [base, ...overlays] = tables;
  if (problems.length > 0 || base === undefined) {
    throw new StartupError(
      'pricing_invalid',
      problems.map((line) => `pricing_invalid: ${line}`),
    );
  }
  return buildPriceTable(base, overlays, { freeProviders: config.free_providers });
}

function readTable(file: string): ReturnType<typeof parsePriceTable> {
  try {
    return parsePriceTable(fs.readFileSync(file, 'utf8'), file);
  } catch (cause) {
    return { ok: false, error: [`${file}: cannot be read: ${(cause as NodeJS.ErrnoException).code}`] };
  }
}

/** Stores the active table's rates, so that its calls can be explained for ever. Throws `StartupError('pricing_version_conflict')`. */
export async function storePrices(journal: Journal, prices: PriceTable): Promise<void> {
  try {
    await journal.savePriceVersion({
      version: prices.version,
      content_hash: prices.contentHash,
      source: prices.source,
      models_json: JSON.stringify(prices.models),
    });
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new StartupError('pricing_version_conflict', [`pricing_version_conflict: ${reason}`]);
  }
}
