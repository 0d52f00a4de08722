// What a provider's export reports that it billed: recognised by its fields, as sums by day, model and class (22 §6).
import { err, ok, type Result } from '#protocol/result.ts';
import { isMapping, toList, toMapping } from '../parsing/yaml.ts';
import { parseAmount, parseCount, readCsv, readExactJson } from './export-text.ts';

/** A class of what is billed, as an export and the ledger both have it. */
export type BilledClass =
  | 'input'
  | 'input and writes'
  | 'cached input'
  | 'cache write'
  | 'cache write 1 h'
  | 'prompt'
  | 'output'
  | 'cost of tokens'
  | 'fees'
  | 'cost';

/** What one export reports: tokens or money of one provider. */
export type ExportKind = 'Anthropic usage' | 'Anthropic cost' | 'OpenAI usage' | 'OpenAI cost' | 'OpenRouter activity';

export interface BilledSum {
  /** `YYYY-MM-DD`, UTC. */
  readonly day: string;
  /** Null = all models of the provider. */
  readonly model: string | null;
  readonly class: BilledClass;
  /** Tokens, or picodollars. */
  readonly amount: bigint;
  /** By how much the export may have rounded it. */
  readonly rounding: bigint;
}

export interface Export {
  readonly kind: ExportKind;
  readonly provider: string;
  readonly sums: readonly BilledSum[];
  /** Every day that it covers, also without a sum. */
  readonly days: readonly string[];
  /** It is one page of several. */
  readonly hasMore: boolean;
}

/** The rows of one export have one form. */
interface Form {
  readonly kind: ExportKind;
  readonly provider: string;
  /** Throws `Unreadable`. */
  readRow(row: Row): readonly BilledSum[];
}

class Unreadable extends Error {}

/** One row: its fields as texts, and where it stands, for messages. */
interface Row {
  readonly place: string;
  readonly day: string;
  /** Null where the field is not there or empty. */
  get(name: string): string | null;
}

function readTokens(row: Row, name: string): bigint {
  const text = row.get(name);
  if (text === null) return 0n;
  const count = parseCount(text);
  if (count === null) throw new Unreadable(`${row.place}: ${name} must be a whole number of tokens`);
  return count;
}

function readMoney(row: Row, name: string, shift = 0): bigint {
  const text = row.get(name);
  if (text === null) return 0n;
  const amount = parseAmount(text, shift);
  if (amount === null) throw new Unreadable(`${row.place}: ${name} must be a decimal amount`);
  return amount;
}

/** Sums of one row, one for each class that its form has. */
function buildSums(
  { day }: Row,
  model: string | null,
  amounts: Readonly<Partial<Record<BilledClass, bigint>>>,
  rounding = 0n,
): readonly BilledSum[] {
  return Object.entries(amounts).map(([name, amount]) => ({
    day,
    model,
    class: name as BilledClass,
    amount,
    rounding,
  }));
}

function requireDollars(row: Row, currency: string | null): void {
  if (currency !== null && currency.toUpperCase() !== 'USD')
    throw new Unreadable(`${row.place}: amounts must be in US dollars`);
}

const ANTHROPIC_USAGE: Form = {
  kind: 'Anthropic usage',
  provider: 'anthropic',
  readRow: (row) =>
    buildSums(row, row.get('model'), {
      input: readTokens(row, 'uncached_input_tokens'),
      'cached input': readTokens(row, 'cache_read_input_tokens'),
      'cache write': readTokens(row, 'cache_creation.ephemeral_5m_input_tokens'),
      'cache write 1 h': readTokens(row, 'cache_creation.ephemeral_1h_input_tokens'),
      output: readTokens(row, 'output_tokens'),
    }),
};
const ANTHROPIC_USAGE_CSV: Form = {
  ...ANTHROPIC_USAGE,
  readRow: (row) =>
    buildSums(row, row.get('model_version'), {
      input: readTokens(row, 'usage_input_tokens_no_cache'),
      'cached input': readTokens(row, 'usage_input_tokens_cache_read'),
      'cache write': readTokens(row, 'usage_input_tokens_cache_write_5m'),
      'cache write 1 h': readTokens(row, 'usage_input_tokens_cache_write_1h'),
      output: readTokens(row, 'usage_output_tokens'),
    }),
};

/** Cents. */
const CENTS = 2;
const ANTHROPIC_COST: Form = {
  kind: 'Anthropic cost',
  provider: 'anthropic',
  readRow(row) {
    requireDollars(row, row.get('currency'));
    return buildCost(row, readMoney(row, 'amount', CENTS));
  },
};
/** The Console writes dollars, rounded to cents. */
const ANTHROPIC_COST_CSV: Form = {
  ...ANTHROPIC_COST,
  readRow(row) {
    const isRounded = /^-?\d+(\.\d{1,2})?$/.test(row.get('cost_usd') ?? '');
    return buildCost(row, readMoney(row, 'cost_usd'), isRounded ? HALF_CENT : 0n);
  },
};
const HALF_CENT = 5_000_000_000n;

/** Tokens are billed for a model; what has no model and is no tokens is a fee; a row without either is everything. */
function buildCost(row: Row, amount: bigint, rounding = 0n): readonly BilledSum[] {
  const [model, type] = [row.get('model'), row.get('cost_type')];
  if (type !== null && !/^tokens?$/.test(type)) return buildSums(row, null, { fees: amount }, rounding);
  if (model === null) return buildSums(row, null, { cost: amount }, rounding);
  return buildSums(row, model, { 'cost of tokens': amount }, rounding);
}

const OPENAI_USAGE: Form = {
  kind: 'OpenAI usage',
  provider: 'openai',
  readRow(row) {
    // The export of a console has a row for a day without calls.
    if (row.get('input_tokens') === null) return [];
    const cached = readTokens(row, 'input_cached_tokens');
    const input = readTokens(row, 'input_tokens');
    if (cached > input) throw new Unreadable(`${row.place}: input_cached_tokens must be part of input_tokens`);
    return buildSums(row, row.get('model'), {
      'input and writes': input - cached,
      'cached input': cached,
      output: readTokens(row, 'output_tokens'),
    });
  },
};

const OPENAI_COST: Form = {
  kind: 'OpenAI cost',
  provider: 'openai',
  readRow(row) {
    requireDollars(row, row.get('amount.currency'));
    return buildLineItem(row, readMoney(row, 'amount.value'));
  },
};
const OPENAI_COST_CSV: Form = {
  ...OPENAI_COST,
  readRow(row) {
    requireDollars(row, row.get('amount_currency'));
    if (row.get('amount_value') === null) return [];
    return buildLineItem(row, readMoney(row, 'amount_value'));
  },
};

/** `<model>, input`; an item without a class of tokens is a fee. */
function buildLineItem(row: Row, amount: bigint): readonly BilledSum[] {
  const item = row.get('line_item');
  if (item === null) return buildSums(row, null, { cost: amount });
  const [, model] = /^([^,]+), *(?:cached )?(?:input|output)\b/.exec(item) ?? [];
  if (model === undefined) return buildSums(row, null, { fees: amount });
  return buildSums(row, model, { 'cost of tokens': amount });
}

/** What an own key paid its provider is part of the cost of a call. */
const OPENROUTER: Form = {
  kind: 'OpenRouter activity',
  provider: 'openrouter',
  readRow: (row) =>
    buildSums(row, row.get('model_permaslug') ?? row.get('model'), {
      prompt: readTokens(row, 'prompt_tokens'),
      output: readTokens(row, 'completion_tokens'),
      cost: readMoney(row, 'usage') + readMoney(row, 'byok_usage_inference'),
    }),
};
const OPENROUTER_CALLS: Form = {
  ...OPENROUTER,
  readRow: (row) =>
    buildSums(row, row.get('model_permaslug'), {
      prompt: readTokens(row, 'tokens_prompt'),
      output: readTokens(row, 'tokens_completion'),
      cost: readMoney(row, 'cost_total') + readMoney(row, 'byok_usage_inference'),
    }),
};

/** A form of CSV is known by columns that it alone has; the first is the one of its days. */
const CSV_FORMS: readonly (readonly [Form, readonly [day: string, ...others: string[]]])[] = [
  [ANTHROPIC_USAGE_CSV, ['usage_date_utc', 'model_version', 'usage_input_tokens_no_cache', 'usage_output_tokens']],
  [ANTHROPIC_COST_CSV, ['usage_date_utc', 'model', 'cost_usd']],
  [OPENAI_USAGE, ['start_time', 'model', 'input_tokens', 'input_cached_tokens', 'output_tokens']],
  [OPENAI_COST_CSV, ['start_time', 'amount_value', 'line_item']],
  [OPENROUTER_CALLS, ['created_at', 'model_permaslug', 'tokens_prompt', 'tokens_completion', 'cost_total']],
  [OPENROUTER, ['date', 'model', 'usage', 'prompt_tokens', 'completion_tokens']],
];

const UNKNOWN =
  'is no export that is known: Anthropic usage or cost report, OpenAI usage or costs, OpenRouter activity, as JSON or CSV';

/** The error is one line that goes after the name of the file. */
export function readExport(text: string): Result<Export, string> {
  try {
    if (/^\uFEFF?\s*[[{]/.test(text)) return readJsonExport(text.replace(/^\uFEFF/, ''));
    return readCsvExport(text);
  } catch (error) {
    if (error instanceof Unreadable) return err(error.message);
    throw error;
  }
}

function readCsvExport(text: string): Result<Export, string> {
  const csv = readCsv(text);
  if (!csv.ok) return csv;
  const [first] = csv.value;
  if (first === undefined) return err('has no row');
  const [form, [dayColumn] = ['']] = CSV_FORMS.find(([, names]) => names.every((name) => first.cells.has(name))) ?? [];
  if (form === undefined) return err(UNKNOWN);
  const rows = csv.value.map(({ line, cells }): Row => {
    const place = `line ${line}`;
    const get = (name: string) => cells.get(name)?.trim() || null;
    return { place, get, day: readDay(get(dayColumn) ?? '', get('end_time'), place) };
  });
  return ok(buildExport(form, rows, false));
}

function readJsonExport(text: string): Result<Export, string> {
  const json = readExactJson(text);
  if (!json.ok) return json;
  const pages = Array.isArray(json.value) ? json.value : [json.value];
  const buckets = pages.flatMap((page) => toList(toMapping(page).data));
  const results = buckets.flatMap((bucket) => listResults(bucket));
  const [first] = results;
  if (first === undefined) return err(buckets.some((bucket) => isBucket(bucket)) ? 'has no result in it' : UNKNOWN);
  const form = findJsonForm(buckets[0], first);
  if (form === null) return err(UNKNOWN);
  const days: string[] = [];
  const rows = buckets.flatMap((bucket, i) => {
    const place = `data[${i}]`;
    const { starting_at, ending_at, start_time, end_time, date } = toMapping(bucket);
    const day = readDay(
      readPlainText(starting_at ?? start_time ?? date) ?? '',
      readPlainText(ending_at ?? end_time),
      place,
    );
    days.push(day);
    return listResults(bucket).map((result, at): Row => {
      if (findJsonForm(bucket, result) !== form) throw new Unreadable(`${place}: results[${at}] is of another form`);
      return { place: `${place}.results[${at}]`, day, get: (name) => readPath(result, name) };
    });
  });
  const hasMore = toMapping(pages.at(-1)).has_more === true;
  const found = buildExport(form, rows, hasMore);
  return ok({ ...found, days: [...new Set([...days, ...found.days])].sort() });
}

function isBucket(value: unknown): boolean {
  const { starting_at, start_time } = toMapping(value);
  return starting_at !== undefined || start_time !== undefined;
}

/** OpenRouter's data are rows; those of the others are buckets with results. */
function listResults(bucket: unknown): readonly unknown[] {
  const { results, result, date } = toMapping(bucket);
  if (typeof date === 'string') return [bucket];
  return toList(results ?? result);
}

function findJsonForm(bucket: unknown, result: unknown): Form | null {
  if (!isMapping(bucket) || !isMapping(result)) return null;
  const has = (value: object, ...names: readonly string[]) => names.every((name) => Object.hasOwn(value, name));
  if (has(bucket, 'starting_at') && has(result, 'uncached_input_tokens', 'output_tokens')) return ANTHROPIC_USAGE;
  if (has(bucket, 'starting_at') && has(result, 'amount', 'currency')) return ANTHROPIC_COST;
  if (has(bucket, 'start_time') && has(result, 'input_tokens', 'output_tokens')) return OPENAI_USAGE;
  if (has(bucket, 'start_time') && has(result, 'amount')) return OPENAI_COST;
  if (has(bucket, 'date') && has(result, 'usage', 'prompt_tokens', 'completion_tokens')) return OPENROUTER;
  return null;
}

/** @param path names separated by dots */
function readPath(value: unknown, path: string): string | null {
  let found: unknown = value;
  for (const name of path.split('.')) {
    if (!isMapping(found) || !Object.hasOwn(found, name)) return null;
    found = found[name];
  }
  return readPlainText(found);
}

function readPlainText(value: unknown): string | null {
  if (value === null || value === undefined || value === '') return null;
  if (typeof value === 'string') return value;
  return JSON.stringify(value);
}

function buildExport(form: Form, rows: readonly Row[], hasMore: boolean): Export {
  const { kind, provider } = form;
  const days = [...new Set(rows.map(({ day }) => day))].sort();
  return { kind, provider, sums: rows.flatMap((row) => form.readRow(row)), days, hasMore };
}

const TIME = /^(\d{4}-\d\d-\d\d)(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?: ?UTC|Z|[+-]00(?::?00)?)?)?$/;
const SECONDS = /^\d{9,11}$/;
const DAY_MS = 86_400_000;

/**
 * The day (UTC) of a day, a time in UTC or Unix seconds.
 * @param end where the bucket ends, which may be no longer than its day
 */
function readDay(text: string, end: string | null, place: string): string {
  const start = readTime(text);
  if (start === null) throw new Unreadable(`${place}: must have a day or a time in UTC`);
  const day = formatDay(start);
  const last = end === null ? start : (readTime(end) ?? start);
  if (last > Date.parse(day) + DAY_MS) throw new Unreadable(`${place}: is longer than one day (UTC); export by day`);
  return day;
}

/** Unix milliseconds; null for what is no time. */
function readTime(text: string): number | null {
  if (SECONDS.test(text)) return Number(text) * 1000;
  const [, day] = TIME.exec(text) ?? [];
  if (day === undefined || Number.isNaN(Date.parse(day)) || formatDay(Date.parse(day)) !== day) return null;
  const [hours = '0', minutes = '0'] = /[T ](\d\d):(\d\d)/.exec(text)?.slice(1) ?? [];
  return Date.parse(day) + Number(hours) * 3_600_000 + Number(minutes) * 60_000;
}

function formatDay(ms: number): string {
  return new Date(ms).toISOString().slice(0, 10);
}
