// The price of a call, computed once: its rounds with their surcharge, and its fees (08 §6, §12).
import { findEntryByName } from '#core/policy/gateway/model-names.ts';
import { type PricedBill, type PricedRound, priceBill } from '#core/policy/pricing/call-bill.ts';
import { dropStandard } from '#core/policy/pricing/fees.ts';
import { type PriceTable, resolveServedModelId, selectPriceRow } from '#core/policy/pricing/price-table.ts';
import type { ModelEntry } from '#protocol/model.ts';
import { fromPusd, type Pusd } from '#protocol/money.ts';
import {
  type CallBill,
  PLAIN_BILL,
  type ReportedBill,
  type ReportedRound,
  type Round,
  STANDARD_TERMS,
  sumUsage,
  type TokenUsage,
  type Usage,
} from '#protocol/usage.ts';
import type { ModelCatalog, Runtime } from '../state/engine.ts';

/** A call's usage with its money, its whole cost, and the parts of its bill that only its event holds. */
export interface Charged {
  readonly usage: Usage;
  readonly cost: Pusd;
  readonly bill: CallBill;
}

interface AnsweredCall {
  /** The model that answered, null for the requested one. */
  readonly served: string | null;
  readonly latency: number;
  /** Goes into a warning. */
  readonly where: object;
  readonly bill: ReportedBill | null;
  /** What the call was reserved with: a newer table could pass the limit. Null = no limit covers it, the active table. */
  readonly prices: PriceTable | null;
}

type Stamping = Pick<Runtime & ModelCatalog, 'unpriced' | 'log' | 'registry' | 'prices'>;

/** Clients and providers may name any model: beyond this many the oldest names are logged again. */
const MAX_UNPRICED = 1000;
const NO_USES: ReadonlyMap<string, number> = new Map();

/**
 * @param tokens of the answer: the sums of the billed rounds, where there are several. The result adds the counts of the
 *   attempts that were lost before it.
 */
export function stampUsage(
  { unpriced: logged, log, registry, prices: active }: Stamping,
  model: ModelEntry,
  tokens: TokenUsage,
  call: AnsweredCall,
): Charged {
  const { bill } = call;
  const engine = { unpriced: logged, log, registry, prices: call.prices ?? active };
  const row = findPriceRow(engine, model, call.served);
  let samplings: readonly Sampling[] = [{ kind: 'message', entry: model, model: row, usage: tokens, billed: true }];
  // Where counts are estimated the call is one round.
  if (bill !== null && bill.rounds.length > 0 && !tokens.usage_estimated)
    samplings = listSamplings(engine, model, bill.rounds, call.served);
  const lost = bill?.lost ?? [];
  if (lost.length > 0) samplings = [...listLost(engine, model, lost), ...samplings];
  const priced = priceBill(engine.prices, {
    model: row,
    rounds: samplings,
    uses: bill?.uses ?? NO_USES,
    terms: bill?.terms ?? STANDARD_TERMS,
  });
  const unpriced = samplings[priced.rounds.findIndex((one) => !one.priced)];
  if (unpriced !== undefined) warnOfUnpriced(engine, unpriced.entry.id, call.where);
  const cost = (priced.tokens + priced.surcharge + priced.fees) as Pusd;
  const all = lost.length === 0 ? tokens : sumUsage([...lost, tokens]);
  const usage: Usage = {
    input_tokens: all.input_tokens,
    cached_input_tokens: all.cached_input_tokens,
    cache_creation_input_tokens: all.cache_creation_input_tokens,
    cache_creation_1h_input_tokens: all.cache_creation_1h_input_tokens,
    output_tokens: all.output_tokens,
    reasoning_tokens: all.reasoning_tokens,
    usage_estimated: all.usage_estimated,
    cost_usd: fromPusd(cost),
    cost_breakdown: {
      tokens: fromPusd(priced.tokens),
      fees: fromPusd(priced.fees),
      surcharge: fromPusd(priced.surcharge),
    },
    pricing_version: engine.prices.version,
    priced: unpriced === undefined,
    fees_unpriced: priced.lines.some((line) => line.cost === null),
    surcharge_unknown: priced.rounds.some((round) => round.surcharge_unknown),
    rounds_unknown: bill?.rounds_unknown ?? false,
    latency_ms: Math.round(call.latency),
  };
  if (bill === null) return { usage, cost, bill: PLAIN_BILL };
  const terms = dropStandard(engine.prices.models[row]?.multipliers, bill.terms);
  const parts = { fees: describeFees(priced), rounds: describeRounds(samplings, priced) };
  return { usage, cost, bill: { ...terms, ...parts, bound: null } };
}

/** One sampling of a call; `model` is the row of the price table. */
interface Sampling {
  readonly kind: string;
  readonly entry: ModelEntry;
  readonly model: string;
  readonly usage: TokenUsage;
  readonly billed: boolean;
}

/** Attempts that broke off before the answer began: each is billed by itself, for the model that was asked. */
function listLost(
  engine: Pick<ModelCatalog, 'registry' | 'prices'>,
  model: ModelEntry,
  lost: readonly TokenUsage[],
): readonly Sampling[] {
  const row = findPriceRow(engine, model, null);
  return lost.map((usage) => ({ kind: 'lost_attempt', entry: model, model: row, usage, billed: true }));
}

/** A round without a model belongs to the call's model; after fallbacks the last model is the one that served. */
function listSamplings(
  engine: Pick<ModelCatalog, 'registry' | 'prices'>,
  model: ModelEntry,
  rounds: readonly ReportedRound[],
  served: string | null,
): readonly Sampling[] {
  const isNamed = rounds.some((round) => round.model !== null);
  return rounds.map(({ kind, model: name, billed, usage }) => {
    let entry = model;
    let answered = name;
    if (name !== null) entry = findEntryByName(engine.registry, model, name);
    else if (!isNamed) answered = served;
    return { kind, entry, model: findPriceRow(engine, entry, answered), usage: toTokens(usage), billed };
  });
}

/** Whether every round is one of the asked model: counts over several models are no evidence about one. */
export function isOfOneModel({ registry }: ModelCatalog, model: ModelEntry, bill: ReportedBill | null): boolean {
  const names = bill?.rounds.flatMap((round) => round.model ?? []) ?? [];
  return names.every((name) => findEntryByName(registry, model, name).id === model.id);
}

function findPriceRow({ prices }: Pick<ModelCatalog, 'prices'>, model: ModelEntry, served: string | null): string {
  const servedModelId = resolveServedModelId(model, served);
  return selectPriceRow(prices, { servedModelId, pricingId: model.pricing_id, modelId: model.id });
}

function toTokens(usage: ReportedRound['usage']): TokenUsage {
  const creation = toCount(usage.creation);
  return {
    input_tokens: toCount(usage.input),
    cached_input_tokens: toCount(usage.cached),
    cache_creation_input_tokens: creation,
    cache_creation_1h_input_tokens: Math.min(toCount(usage.creation1h), creation),
    output_tokens: toCount(usage.output),
    reasoning_tokens: toCount(usage.reasoning),
    usage_estimated: false,
  };
}

/** A round that is not billed may report anything. */
function toCount(count: number | null): number {
  if (count === null || !Number.isSafeInteger(count)) return 0;
  return count;
}

function describeFees({ lines }: PricedBill): CallBill['fees'] {
  return lines.map(({ tool, uses, cost }) => {
    if (cost === null) return { tool, uses, cost_usd: null };
    return { tool, uses, cost_usd: fromPusd(cost) };
  });
}

/** Empty for a call of one sampling: the call itself is the round. */
function describeRounds(samplings: readonly Sampling[], { rounds }: PricedBill): Round[] {
  if (samplings.length < 2) return [];
  return samplings.map(({ kind, entry, usage, billed }, at) => {
    const { usage_estimated: _, ...tokens } = usage;
    return { kind, model: entry.id, ...tokens, ...describePrice(rounds[at]!), billed };
  });
}

function describePrice({ tokens, surcharge, priced }: PricedRound): Pick<Round, 'cost_usd' | 'priced'> {
  return { cost_usd: fromPusd(tokens + surcharge), priced };
}

/** Logs one line per model. */
function warnOfUnpriced({ unpriced, prices, log }: Stamping, model: string, where: object): void {
  if (unpriced.has(model)) return;
  unpriced.add(model);
  if (unpriced.size > MAX_UNPRICED) unpriced.delete(unpriced.values().next().value!);
  log.warn({ ...where, model, pricing_version: prices.version }, 'no price for this model');
}
