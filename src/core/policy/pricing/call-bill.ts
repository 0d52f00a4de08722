// The bill of one call: its rounds with their surcharge, and its fees (08 §12). Shared by stamping and repricing.
import { type Pusd, sumPusd, ZERO_PUSD } from '#protocol/money.ts';
import { promptTokens, type Terms, type TokenUsage } from '#protocol/usage.ts';
import { findFee, findMultiplier, type Multipliers } from './fees.ts';
import { priceUsage, type RateSet } from './price-file.ts';

/** The part of a price table that a bill needs. */
export interface BillRates {
  readonly models: Readonly<
    Record<string, { readonly fees?: Readonly<Record<string, string | undefined>>; readonly multipliers?: Multipliers }>
  >;
  ratesFor(model: string, promptTokens: number): RateSet | null;
}

interface BilledRound {
  /** Row of the price table. */
  readonly model: string;
  readonly usage: TokenUsage;
  readonly billed: boolean;
}

export interface Billed {
  /** Row of the price table that names the fees. */
  readonly model: string;
  readonly rounds: readonly BilledRound[];
  readonly uses: ReadonlyMap<string, number>;
  readonly terms: Terms;
}

export interface PricedRound {
  /** The tokens at the standard rates, and what the terms add. */
  readonly tokens: Pusd;
  readonly surcharge: Pusd;
  readonly priced: boolean;
  readonly surcharge_unknown: boolean;
}

export interface PricedBill {
  readonly tokens: Pusd;
  readonly surcharge: Pusd;
  readonly fees: Pusd;
  readonly rounds: readonly PricedRound[];
  /** Null = no fee in the table. */
  readonly lines: readonly { readonly tool: string; readonly uses: number; readonly cost: Pusd | null }[];
}

export function priceBill(rates: BillRates, bill: Billed): PricedBill {
  const rounds = bill.rounds.map((round) => priceRound(rates, round, bill.terms));
  const lines = [...bill.uses].map(([tool, uses]) => {
    const fee = findFee(findEntry(rates, bill.model)?.fees, tool);
    return { tool, uses, cost: fee && ((fee * BigInt(uses)) as Pusd) };
  });
  return {
    tokens: sumPusd(rounds.map(({ tokens }) => tokens)),
    surcharge: sumPusd(rounds.map(({ surcharge }) => surcharge)),
    fees: sumPusd(lines.map(({ cost }) => cost ?? 0n)),
    rounds,
    lines,
  };
}

function findEntry({ models }: BillRates, model: string) {
  if (Object.hasOwn(models, model)) return models[model];
  return undefined;
}

const FREE: PricedRound = { tokens: ZERO_PUSD, surcharge: ZERO_PUSD, priced: true, surcharge_unknown: false };

function priceRound(rates: BillRates, { model, usage, billed }: BilledRound, terms: Terms): PricedRound {
  if (!billed) return FREE;
  const set = rates.ratesFor(model, promptTokens(usage));
  if (set === null) return { ...FREE, priced: false };
  const tokens = priceUsage(set, usage);
  const { by, over, unknown } = findMultiplier(findEntry(rates, model)?.multipliers, terms);
  // Every product of a rate and its multipliers is a whole number (checked when the table is loaded), and so is each sum.
  const surcharge = ((tokens * by) / over - tokens) as Pusd;
  return { tokens, surcharge, priced: true, surcharge_unknown: unknown && tokens > 0n };
}
