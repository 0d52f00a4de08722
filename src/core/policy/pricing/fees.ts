// Fees of a provider's tools and multipliers of its terms, as a price table holds them (08 §12).
import { z } from 'zod';
import { fromPusd, type Pusd, toPusd } from '#protocol/money.ts';
import { TERMS, type Term, type Terms } from '#protocol/usage.ts';

/** Tools whose uses an answer shows. A fee for any other name could never be charged. */
export const FEE_TOOLS = [
  'web_search',
  'web_fetch',
  'code_execution',
  'tool_search',
  'mcp',
  'web_search_call',
  'file_search_call',
  'code_interpreter_container',
  'image_generation_call',
  'mcp_call',
  'tool_search_call',
  'program',
] as const;
export type FeeTool = (typeof FEE_TOOLS)[number];

const FORM = /^(0|[1-9]\d*)(\.\d{1,6})?$/;
/** Maximum values of one term: all combinations are checked. */
const MAX_VALUES = 16;
const DECIMALS = 1_000_000n;
const PER_FEE = 1000n;

const FEE_RULE = 'must be a decimal of US dollars per thousand uses, from 0 to 1000000, at most 6 fraction digits';
const MULTIPLIER_RULE = 'must be a decimal from 0.000001 to 1000, at most 6 fraction digits';

function numberText(value: unknown): unknown {
  if (typeof value === 'number') return String(value);
  return value;
}

function decimal(rule: string, isAllowed: (text: string) => boolean) {
  return z.preprocess(
    numberText,
    z.string({ error: rule }).refine((text) => FORM.test(text) && isAllowed(text), rule),
  );
}

export const FeesSchema = z.partialRecord(
  z.enum(FEE_TOOLS),
  decimal(FEE_RULE, (text) => toPusd(text) <= toPusd('1000000')),
);
export type Fees = z.infer<typeof FeesSchema>;

const ValuesSchema = z
  .record(
    z.string().regex(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/, 'must be a name of letters, digits, _ . -'),
    decimal(MULTIPLIER_RULE, (text) => toPusd(text) > 0n && toPusd(text) <= toPusd('1000')),
  )
  .refine((values) => Object.keys(values).length <= MAX_VALUES, `must have at most ${MAX_VALUES} values`);
export const MultipliersSchema = z.strictObject({
  service_tier: ValuesSchema.optional(),
  speed: ValuesSchema.optional(),
  inference_geo: ValuesSchema.optional(),
});
export type Multipliers = Readonly<Partial<Record<Term, Readonly<Record<string, string>> | undefined>>>;

/** Values that mean the standard rate on every wire. */
const STANDARD: ReadonlySet<string> = new Set(['standard', 'default', 'auto', 'on_demand', 'global', 'not_available']);

/** A whole number divided by a power of a million. */
export interface Multiplier {
  readonly by: bigint;
  readonly over: bigint;
}
const ONCE: Multiplier = { by: 1n, over: 1n };

export function multiplyBy(a: Multiplier, decimal: string): Multiplier {
  return { by: a.by * (toPusd(decimal) / DECIMALS), over: a.over * DECIMALS };
}

/** The multiplier of the tokens; `unknown` when the table has none for a value other than the standard. */
export function findMultiplier(
  multipliers: Multipliers | undefined,
  terms: Terms,
): Multiplier & { readonly unknown: boolean } {
  let product = ONCE;
  let unknown = false;
  for (const term of TERMS) {
    const value = terms[term];
    if (value === null) continue;
    const listed = multipliers?.[term];
    if (listed !== undefined && Object.hasOwn(listed, value)) product = multiplyBy(product, listed[value]!);
    else if (!STANDARD.has(value)) unknown = true;
  }
  return { ...product, unknown };
}

/** Values that a request names to be served at the standard rate, and at no other. */
const NOTHING_ELSE: ReadonlySet<string> = new Set(['standard', 'standard_only', 'default', 'on_demand', 'global']);

/**
 * The most that the tokens of a call can be multiplied by. A provider may serve it at the standard rate instead of a
 * cheaper one, and where the request names no value, an account's default counts, which may be any.
 * @param terms as requested; null = not named
 */
export function largestMultiplier(multipliers: Multipliers | undefined, terms: Terms): Multiplier {
  let product = ONCE;
  for (const term of TERMS) {
    const listed = multipliers?.[term];
    if (listed === undefined) continue;
    const value = terms[term] ?? (term === 'speed' ? 'standard' : null);
    let values = Object.values(listed);
    if (value !== null && Object.hasOwn(listed, value)) values = [listed[value]!];
    else if (value !== null && NOTHING_ELSE.has(value)) values = [];
    const most = values.reduce((best, one) => (toPusd(one) > toPusd(best) ? one : best), '1');
    product = multiplyBy(product, most);
  }
  return product;
}

/** The terms without those that mean the standard rate and have no multiplier. */
export function dropStandard(multipliers: Multipliers | undefined, terms: Terms): Terms {
  const keep = (term: Term) => {
    const value = terms[term];
    const listed = multipliers?.[term];
    if (value === null || !STANDARD.has(value)) return value;
    if (listed !== undefined && Object.hasOwn(listed, value)) return value;
    return null;
  };
  return { service_tier: keep('service_tier'), speed: keep('speed'), inference_geo: keep('inference_geo') };
}

/** Picodollars of one use; null for a tool without a fee. */
export function findFee(fees: Readonly<Record<string, string | undefined>> | undefined, tool: string): Pusd | null {
  if (fees === undefined || !Object.hasOwn(fees, tool)) return null;
  return (toPusd(fees[tool]!) / PER_FEE) as Pusd;
}

/**
 * The first rate that some multipliers which may meet turn into a fraction of a picodollar per token, as
 * `0.5 × 0.000001`; null when all products are whole.
 */
export function findFraction(multipliers: Multipliers, rates: readonly string[]): string | null {
  for (const { text, by, over } of listProducts(multipliers)) {
    const rate = rates.find((one) => ((toPusd(one) / DECIMALS) * by) % over !== 0n);
    if (rate !== undefined) return `${text} × ${rate}`;
  }
  return null;
}

interface Product extends Multiplier {
  readonly text: string;
}

/** One product for each choice of at most one value a term. */
function listProducts(multipliers: Multipliers): readonly Product[] {
  let products: readonly Product[] = [{ ...ONCE, text: '' }];
  for (const term of TERMS) {
    const values = Object.values(multipliers[term] ?? {});
    products = products.concat(products.flatMap((product) => values.map((value) => extendProduct(product, value))));
  }
  return products;
}

function extendProduct(product: Product, decimal: string): Product {
  const text = [product.text, decimal].filter((part) => part !== '').join(' × ');
  return { ...multiplyBy(product, decimal), text };
}

/** In shortest form and sorted by name; undefined for none, so that tables without them keep their hash. */
export function resolveFees(fees: Fees | undefined): Fees | undefined {
  return shortenAll(fees);
}

export function resolveMultipliers(multipliers: Multipliers | undefined): Multipliers | undefined {
  const terms = TERMS.flatMap((term) => {
    const values = shortenAll(multipliers?.[term]);
    if (values === undefined) return [];
    return [[term, values] as const];
  });
  if (terms.length === 0) return undefined;
  return Object.fromEntries(terms);
}

function shortenAll<T extends Readonly<Record<string, string | undefined>>>(values: T | undefined): T | undefined {
  const entries = Object.entries(values ?? {}).map(([name, text]) => [name, fromPusd(toPusd(text!))] as const);
  if (entries.length === 0) return undefined;
  return Object.fromEntries(entries.sort(([a], [b]) => Number(a > b) - Number(a < b))) as T;
}
