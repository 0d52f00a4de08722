// A price table that updates the shipped one: named by its content, laid over it, and compared with what was active (22 §5).
import { getProvider } from '#protocol/model.ts';
import { toPusd } from '#protocol/money.ts';
import { canonicalJson, sha256Hex } from '#protocol/text/canonical-json.ts';
import type { RawTable, ResolvedEntry } from './price-file.ts';

const HASH_LENGTH = 8;
/** So that the name with its hash keeps to 64 characters. */
const NAME_LENGTH = 64 - HASH_LENGTH - 1;

/**
 * The table under a name that only this content has: a publisher who corrects a rate may keep the version.
 * @param today `YYYY-MM-DD`, for a table without a date
 */
export function nameUpdate(table: RawTable, today: string): RawTable {
  const hash = sha256Hex(canonicalJson(table.models)).slice(0, HASH_LENGTH);
  const pricing_version = `${table.pricing_version.slice(0, NAME_LENGTH)}-${hash}`;
  return { ...table, pricing_version, imported_on: table.imported_on ?? today };
}

/** What of an update applies over a base: all of a newer one, of an older one only the models that the base lacks. */
export function selectUpdate(base: RawTable, update: RawTable): RawTable {
  if (!isOlder(update, base)) return update;
  const models = Object.fromEntries(Object.entries(update.models).filter(([id]) => !Object.hasOwn(base.models, id)));
  return { ...update, models };
}

export function isOlder(a: Pick<RawTable, 'imported_on'>, b: Pick<RawTable, 'imported_on'>): boolean {
  return a.imported_on !== null && b.imported_on !== null && a.imported_on < b.imported_on;
}

type Entries = Readonly<Record<string, ResolvedEntry>>;

export interface PriceDifference {
  readonly added: readonly string[];
  readonly removed: readonly string[];
  /** Some rate rose, and none fell. */
  readonly costlier: readonly string[];
  readonly cheaper: readonly string[];
  /** Some rates rose and others fell, or something else than a rate changed. */
  readonly changed: readonly string[];
}

export function comparePrices(before: Entries, after: Entries): PriceDifference {
  const common = Object.keys(after).filter((id) => Object.hasOwn(before, id));
  const trends = new Map(common.map((id) => [id, compareEntries(before[id]!, after[id]!)]));
  const select = (trend: Trend) => common.filter((id) => trends.get(id) === trend).sort();
  return {
    added: Object.keys(after)
      .filter((id) => !Object.hasOwn(before, id))
      .sort(),
    removed: Object.keys(before)
      .filter((id) => !Object.hasOwn(after, id))
      .sort(),
    costlier: select('costlier'),
    cheaper: select('cheaper'),
    changed: select('changed'),
  };
}

type Trend = 'equal' | 'costlier' | 'cheaper' | 'changed';

/** How the second entry's rates compare with those of the first. */
export function compareEntries(a: ResolvedEntry, b: ResolvedEntry): Trend {
  if (canonicalJson(a) === canonicalJson(b)) return 'equal';
  if (canonicalJson({ ...a, ...RATES_LEFT_OUT }) !== canonicalJson({ ...b, ...RATES_LEFT_OUT })) return 'changed';
  const steps = [...new Set([a, b].flatMap((entry) => entry.long_context.map((step) => step.above_prompt_tokens)))];
  let [rises, falls] = [false, false];
  for (const prompt of [0, ...steps.map((step) => step + 1)]) {
    const [before, after] = [selectStep(a, prompt), selectStep(b, prompt)];
    for (const field of FIELDS) {
      const change = toPusd(after[field]) - toPusd(before[field]);
      rises ||= change > 0n;
      falls ||= change < 0n;
    }
  }
  if (rises && falls) return 'changed';
  if (rises) return 'costlier';
  if (falls) return 'cheaper';
  return 'equal';
}

const FIELDS = [
  'input_per_mtok_usd',
  'output_per_mtok_usd',
  'cached_read_per_mtok_usd',
  'cache_write_per_mtok_usd',
  'cache_write_1h_per_mtok_usd',
] as const;
type Rates = Readonly<Record<(typeof FIELDS)[number], string>>;
const RATES_LEFT_OUT = { ...Object.fromEntries(FIELDS.map((field) => [field, ''])), long_context: [] };

function selectStep(entry: ResolvedEntry, prompt: number): Rates {
  return entry.long_context.findLast((step) => step.above_prompt_tokens < prompt) ?? entry;
}

/** Whether the second model costs less for tokens of some class at some length of a prompt, and never more. */
export function isCheaper(entries: Entries, than: string, id: string): boolean {
  if (!Object.hasOwn(entries, than) || !Object.hasOwn(entries, id) || getProvider(than) !== getProvider(id))
    return false;
  return compareEntries({ ...entries[than]!, ...PLAIN }, { ...entries[id]!, ...PLAIN }) === 'cheaper';
}

const PLAIN = { fees: {}, multipliers: {} };
