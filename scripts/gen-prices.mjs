// Writes config/prices.json: for every model of config/registry.yaml the rates of its provider's page, else of the public
// price collection.
// Opens no network connection. Writes nothing when the rates are unchanged.
import fs from 'node:fs';
import { createRequire } from 'node:module';
import { calcPrice, findProvider } from '@pydantic/genai-prices';
import { parse } from 'yaml';
import { importPrices } from '#core/policy/pricing/import-prices.ts';
import { formatPriceTable, parsePriceTable } from '#core/policy/pricing/price-file.ts';
import { buildPriceTable } from '#core/policy/pricing/price-table.ts';

const root = new URL('..', import.meta.url);
const target = new URL('config/prices.json', root);
const registry = parse(fs.readFileSync(new URL('config/registry.yaml', root), 'utf8'));
const collection = '@pydantic/genai-prices';
const entryPoint = createRequire(import.meta.url).resolve(collection);
const { version } = JSON.parse(fs.readFileSync(new URL('../package.json', `file://${entryPoint}`), 'utf8'));

const now = new Date();
const { table, notes } = importPrices({
  ids: Object.entries(registry.models).map(([id, model]) => model.pricing_id ?? id),
  lookup: (providerId, name) =>
    findProvider({ providerId })
      ? calcPrice({ input_tokens: 0, output_tokens: 0 }, name, { providerId, timestamp: now })
      : null,
  date: now.toISOString().slice(0, 10),
  source: `${collection}@${version}`,
  page: `https://github.com/pydantic/genai-prices/releases/tag/v${version}`,
});
for (const note of notes) console.warn(note);

const describeContent = (text) => {
  const parsed = parsePriceTable(text, 'config/prices.json');
  if (!parsed.ok) throw new Error(parsed.error.join('\n'));
  const { models } = parsed.value;
  // The day on which unchanged rates of the collection were read is no reason for a new version.
  const sources = Object.keys(models).map((id) => [id, models[id].source?.url]);
  return JSON.stringify([buildPriceTable(parsed.value, [], { freeProviders: [] }).contentHash, sources]);
};
const text = formatPriceTable(table);
const unchanged = fs.existsSync(target) && describeContent(fs.readFileSync(target, 'utf8')) === describeContent(text);
if (unchanged) console.log('config/prices.json is up to date');
else {
  fs.writeFileSync(target, text);
  console.log(`config/prices.json: ${Object.keys(table.models).length} models, version ${table.pricing_version}`);
}
