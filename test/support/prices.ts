// The two fixture price tables of 08 §11. Tests use these, never the imported rates, which change.
import { parsePriceTable } from '#core/policy/pricing/price-file.ts';
import { buildPriceTable, type PriceTable } from '#core/policy/pricing/price-table.ts';

/** Input, output, cached read, cache write, 1 h write; US dollars per million tokens. */
type Row = readonly [string, string, string?, string?, string?];

const ROWS_A: Readonly<Record<string, Row>> = {
  'anthropic:claude-opus-4-7': ['15', '75', '1.5', '18.75', '30'],
  'anthropic:claude-sonnet-4-6': ['3', '15', '0.3', '3.75', '6'],
  'anthropic:claude-haiku-4-5': ['1', '5', '0.1', '1.25', '2'],
  'openai:gpt-5': ['2.5', '10', '0.25'],
  'openai:gpt-5-mini': ['0.5', '2', '0.05'],
  'ollama:llama-3.3-70b': ['0', '0', '0', '0', '0'],
};
const ROWS_B: Readonly<Record<string, Row>> = {
  ...ROWS_A,
  'anthropic:claude-opus-4-7': ['5', '25', '0.5', '6.25', '10'],
  'anthropic:claude-haiku-4-5': ['0.8', '4', '0.08', '1', '1.6'],
  'openai:gpt-5': ['1.25', '10', '0.125'],
  'openai:gpt-5-mini': ['0.25', '2', '0.025'],
};
const FIELDS = ['input', 'output', 'cached_read', 'cache_write', 'cache_write_1h'] as const;

/** Table A: opus is dear. Version `A`, provider `ollama` is free. */
export function priceTableA(): PriceTable {
  return tableOf(priceFileA());
}
/** Table B: opus, haiku and GPT are cheaper than in A. Version `B`. */
export function priceTableB(): PriceTable {
  return tableOf(priceFileB());
}

/** The tables as files, for a server that loads its prices by path. */
export function priceFileA(): string {
  return priceFile('A', ROWS_A);
}
export function priceFileB(): string {
  return priceFile('B', ROWS_B);
}

/** A table from a file's text and overlays' texts; throws what is wrong with them. */
export function tableOf(text: string, ...overlays: string[]): PriceTable {
  const [base, ...rest] = [text, ...overlays].map((file) => {
    const parsed = parsePriceTable(file, 'prices.json');
    if (!parsed.ok) throw new Error(parsed.error.join('\n'));
    return parsed.value;
  });
  return buildPriceTable(base!, rest, { freeProviders: ['ollama'] });
}

function priceFile(version: string, rows: Readonly<Record<string, Row>>): string {
  const models = Object.fromEntries(
    Object.entries(rows).map(([id, row]) => [
      id,
      Object.fromEntries(
        FIELDS.map((field, i) => [`${field}_per_mtok_usd`, row[i]]).filter(([, rate]) => rate !== undefined),
      ),
    ]),
  );
  return JSON.stringify({ pricing_version: version, models });
}
