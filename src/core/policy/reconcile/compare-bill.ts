// Sets what providers billed beside the ledger, by day, model and class, with the likely reason of each difference (22 §6).
import type { LedgerDay } from '#protocol/analytics.ts';
import { getProvider } from '#protocol/model.ts';
import { toPusd } from '#protocol/money.ts';
import { compareText } from '#protocol/text/compare-text.ts';
import type { BilledClass, BilledSum, Export, ExportKind } from './read-export.ts';

export type Reason =
  | 'day border'
  | 'unpriced'
  | 'fee unknown'
  | 'surcharge unknown'
  | 'several agents in one sum'
  | 'estimated usage'
  | 'calls outside this server'
  | 'not in the export'
  | 'no known reason';

export interface Difference {
  readonly kind: ExportKind;
  readonly day: string;
  /** Null = all models of the provider. */
  readonly model: string | null;
  readonly class: BilledClass;
  readonly unit: 'tokens' | 'usd';
  /** Tokens, or picodollars. */
  readonly billed: bigint;
  readonly counted: bigint;
  readonly reasons: readonly Reason[];
}

export interface Comparison {
  /** By day, model and class. */
  readonly differences: readonly Difference[];
  /** Sums that agree within the tolerance. */
  readonly agreed: number;
  readonly totals: readonly {
    readonly kind: ExportKind;
    readonly unit: 'tokens' | 'usd';
    readonly billed: bigint;
    readonly counted: bigint;
  }[];
}

interface ClassRule {
  readonly unit: 'tokens' | 'usd';
  read(day: LedgerDay): bigint;
}

const tokens = (read: (day: LedgerDay) => number): ClassRule => ({ unit: 'tokens', read: (day) => BigInt(read(day)) });
const CLASSES: Readonly<Record<BilledClass, ClassRule>> = {
  input: tokens((day) => day.input_tokens),
  'input and writes': tokens((day) => day.input_tokens + day.cache_creation_input_tokens),
  'cached input': tokens((day) => day.cached_input_tokens),
  'cache write': tokens((day) => day.cache_creation_input_tokens - day.cache_creation_1h_input_tokens),
  'cache write 1 h': tokens((day) => day.cache_creation_1h_input_tokens),
  prompt: tokens((day) => day.input_tokens + day.cached_input_tokens + day.cache_creation_input_tokens),
  output: tokens((day) => day.output_tokens),
  'cost of tokens': { unit: 'usd', read: (day) => toPusd(day.tokens_usd) },
  fees: { unit: 'usd', read: (day) => toPusd(day.fees_usd) },
  cost: { unit: 'usd', read: (day) => toPusd(day.tokens_usd) + toPusd(day.fees_usd) },
};

/** Parts of a million. */
export type Tolerance = bigint;
const WHOLE = 1_000_000n;
const DAY_MS = 86_400_000;

/** The days that the ledger is needed of: those of the exports from `since` on, and one on each side. Null = none. */
export function findDays(
  exports: readonly Export[],
  since: string | null,
): { readonly from: number; readonly to: number } | null {
  const days = exports.flatMap((one) => one.days).sort();
  const [first, last] = [days[0], days.at(-1)];
  if (first === undefined || last === undefined || (since !== null && since > last)) return null;
  return { from: Date.parse(since ?? first) - DAY_MS, to: Date.parse(last) + 2 * DAY_MS };
}

/**
 * @param ledger the days of `findDays`
 * @param since the first day (UTC), also where no export has it; null = the first of each kind of export
 */
export function compareBills(
  exports: readonly Export[],
  ledger: readonly LedgerDay[],
  { since, tolerance }: { readonly since: string | null; readonly tolerance: Tolerance },
): Comparison {
  const kinds = [...new Set(exports.map(({ kind }) => kind))];
  const bills = kinds.map((kind) => {
    const ours = exports.filter((one) => one.kind === kind);
    return compareKind(kind, ours, ledger, { since, tolerance });
  });
  return {
    differences: bills
      .flatMap(({ differences }) => differences)
      .sort((a, b) => compareText(a.day, b.day) || compareText(a.model ?? '', b.model ?? '')),
    agreed: bills.reduce((sum, { agreed }) => sum + agreed, 0),
    totals: bills.flatMap(({ totals }) => totals),
  };
}

/** What one class of one model, or of all models, is on one day. */
interface Cell {
  readonly billed: bigint;
  readonly rounding: bigint;
  readonly isBilled: boolean;
  readonly counted: bigint;
  readonly calls: readonly LedgerDay[];
}

function compareKind(
  kind: ExportKind,
  exports: readonly Export[],
  ledger: readonly LedgerDay[],
  { since, tolerance }: { readonly since: string | null; readonly tolerance: Tolerance },
): Comparison {
  const { provider } = exports[0]!;
  const sums = exports.flatMap((one) => one.sums).filter(({ day }) => since === null || day >= since);
  const covered = exports.flatMap((one) => one.days).sort();
  const days = listDays(since ?? covered[0]!, covered.at(-1)!);
  const sheet = createSheet(
    sums,
    ledger.filter((day) => day.provider === provider),
  );
  const differences: Difference[] = [];
  const totals = new Map<'tokens' | 'usd', { billed: bigint; counted: bigint }>();
  let agreed = 0;
  for (const line of sheet.lines) {
    const { unit } = CLASSES[line.class];
    for (const day of days) {
      const cell = sheet.find(line, day);
      const { billed, counted, rounding, isBilled, calls } = cell;
      const total = totals.get(unit) ?? { billed: 0n, counted: 0n };
      totals.set(unit, { billed: total.billed + billed, counted: total.counted + counted });
      if (billed === 0n && counted === 0n) continue;
      if (isWithin(billed, counted, { tolerance, rounding })) {
        agreed++;
        continue;
      }
      const isMoved = [-1, 1].some((by) => {
        const other = moveDay(day, by);
        return hasMoved(cell, sheet.find(line, other), { tolerance, isCovered: days.has(other) });
      });
      const reasons = isMoved ? (['day border'] as const) : findReasons({ unit, billed, counted, isBilled }, calls);
      differences.push({ kind, day, model: line.name, class: line.class, unit, billed, counted, reasons });
    }
  }
  return { differences, agreed, totals: [...totals].map(([unit, total]) => ({ kind, unit, ...total })) };
}

/** Whether what one day has too much the other one has too little. */
function hasMoved(
  cell: Cell,
  other: Cell,
  { tolerance, isCovered }: { readonly tolerance: Tolerance; readonly isCovered: boolean },
): boolean {
  if (isCovered && isWithin(other.billed, other.counted, { tolerance, rounding: other.rounding })) return false;
  if (cell.billed > cell.counted === other.billed > other.counted) return false;
  const rounding = cell.rounding + other.rounding;
  return isWithin(cell.billed + other.billed, cell.counted + other.counted, { tolerance, rounding });
}

function isWithin(
  a: bigint,
  b: bigint,
  { tolerance, rounding }: { readonly tolerance: Tolerance; readonly rounding: bigint },
): boolean {
  const difference = size(a - b) - rounding;
  return difference * WHOLE <= tolerance * (size(a) > size(b) ? size(a) : size(b));
}

function size(value: bigint): bigint {
  return value < 0n ? -value : value;
}

/** Calls of the ledger whose part of the bill is not known, or only estimated. */
const FLAGS = [
  ['unpriced', 'unpriced_call_count'],
  ['fee unknown', 'fees_unpriced_call_count'],
  ['surcharge unknown', 'surcharge_unknown_call_count'],
  ['several agents in one sum', 'rounds_unknown_call_count'],
] as const satisfies readonly (readonly [Reason, keyof LedgerDay])[];

function findReasons(
  {
    unit,
    billed,
    counted,
    isBilled,
  }: { readonly unit: 'tokens' | 'usd'; readonly billed: bigint; readonly counted: bigint; readonly isBilled: boolean },
  calls: readonly LedgerDay[],
): readonly Reason[] {
  const reasons: Reason[] = [];
  if (unit === 'usd' && (billed > counted || isFlagged(calls, 'surcharge_unknown_call_count')))
    for (const [reason, field] of FLAGS) if (isFlagged(calls, field)) reasons.push(reason);
  if (isFlagged(calls, 'usage_estimated_call_count')) reasons.push('estimated usage');
  if (reasons.length > 0) return reasons;
  if (billed > counted) return ['calls outside this server'];
  if (!isBilled) return ['not in the export'];
  return ['no known reason'];
}

function isFlagged(
  calls: readonly LedgerDay[],
  field: (typeof FLAGS)[number][1] | 'usage_estimated_call_count',
): boolean {
  return calls.some((call) => call[field] > 0);
}

/** One class of one model, or of all models. */
interface Line {
  /** Null = all models; else simplified. */
  readonly model: string | null;
  /** As people know it here, else as the export has it. */
  readonly name: string | null;
  readonly class: BilledClass;
}

interface Sheet {
  readonly lines: readonly Line[];
  find(line: Line, day: string): Cell;
}

/** A line for each model and class that an export or, where exports name models, the ledger has. */
function createSheet(sums: readonly BilledSum[], ledger: readonly LedgerDay[]): Sheet {
  const simplify = createCache(simplifyName);
  const names = new Map<string, string>();
  const billed = new Map<string, { amount: bigint; rounding: bigint }>();
  for (const sum of sums) {
    if (sum.model !== null) names.set(simplify(sum.model), sum.model);
    const key = joinKey(sum.day, sum.class, sum.model && simplify(sum.model));
    const known = billed.get(key) ?? { amount: 0n, rounding: 0n };
    billed.set(key, { amount: known.amount + sum.amount, rounding: known.rounding + sum.rounding });
  }
  const counted = new Map<string, LedgerDay[]>();
  for (const day of ledger) {
    const model = simplify(day.model.slice(getProvider(day.model).length + 1));
    names.set(model, day.model);
    for (const key of [joinKey(day.day, '', model), joinKey(day.day, '', null)]) {
      const known = counted.get(key);
      if (known === undefined) counted.set(key, [day]);
      else known.push(day);
    }
  }
  const byModel = new Set(sums.filter(({ model }) => model !== null).map((sum) => sum.class));
  const ofAll = new Set(sums.filter(({ model }) => model === null).map((sum) => sum.class));
  // A bill of tokens has its fees apart, also where there were none.
  if (byModel.has('cost of tokens')) ofAll.add('fees');
  const models = [...names].sort(([, a], [, b]) => compareText(a, b));
  return {
    lines: [
      ...models.flatMap(([model, name]) => [...byModel].map((one) => ({ model, name, class: one }))),
      ...[...ofAll].map((one) => ({ model: null, name: null, class: one })),
    ],
    find(line, day) {
      const sum = billed.get(joinKey(day, line.class, line.model));
      const calls = counted.get(joinKey(day, '', line.model)) ?? [];
      return {
        billed: sum?.amount ?? 0n,
        rounding: sum?.rounding ?? 0n,
        isBilled: sum !== undefined,
        counted: calls.reduce((total, one) => total + CLASSES[line.class].read(one), 0n),
        calls,
      };
    },
  };
}

/** Names of models hold no line break here: they are simplified. */
function joinKey(day: string, name: string, model: string | null): string {
  return `${day}\n${name}\n${model ?? '*'}`;
}

function createCache(compute: (text: string) => string): (text: string) => string {
  const known = new Map<string, string>();
  return (text) => {
    const found = known.get(text) ?? compute(text);
    known.set(text, found);
    return found;
  };
}

/** `Claude Haiku 4.5`, `claude-haiku-4-5` and `claude-haiku-4-5-20251001` are one model. */
function simplifyName(model: string): string {
  return model
    .trim()
    .toLowerCase()
    .replace(/[^a-z0-9/]+/g, '-')
    .replace(/-(?:20\d{6}|20\d\d-\d\d-\d\d)(?=-|$)/, '');
}

function listDays(first: string, last: string): ReadonlySet<string> {
  const days = new Set<string>();
  for (let day = first; day <= last; day = moveDay(day, 1)) days.add(day);
  return days;
}

function moveDay(day: string, by: number): string {
  return new Date(Date.parse(day) + by * DAY_MS).toISOString().slice(0, 10);
}
