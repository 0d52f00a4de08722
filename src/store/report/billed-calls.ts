// Calls priced again: in groups, and those with rounds, fees or a surcharge one by one, whose sums no rate set prices (08 §7, §12).
import { priceBill } from '#core/policy/pricing/call-bill.ts';
import type { CallPricer } from '#core/ports/report-reader.ts';
import type { TimeWindow } from '#protocol/analytics.ts';
import { type Fee, STANDARD_TERMS, type Terms, type TokenUsage } from '#protocol/usage.ts';
import { BILL_MEASURES, CALL_MEASURES, IS_BILLED_APART, MEASURES, TOKEN_COUNTS } from '../schema/rollups.ts';
import type { Column, Where } from './cost-sql.ts';
import {
  type CostParts,
  findNewest,
  missCache,
  type RateGroup,
  type RateQuery,
  type Read,
  readPlainGroups,
  timeSlices,
  toTime,
} from './slices.ts';

type Counts = Readonly<Record<(typeof TOKEN_COUNTS)[number], bigint>>;
type Row = RateGroup['sums'] &
  Readonly<Record<`k${number}`, bigint | string>> & {
    readonly event_id: string;
    readonly own_model: string;
    readonly bill_json: string;
  };
type RoundRow = Counts & { readonly event_id: string; readonly model: string; readonly billed: bigint };

/** The columns of `bill_json`: what differs from a call of one sampling at the standard rates. */
interface StoredBill extends Partial<Terms> {
  readonly fees?: readonly Fee[];
  readonly bound?: 'none';
}

interface BilledQuery {
  readonly columns: readonly Pick<Column, 'calls'>[];
  readonly where: Where;
  readonly pricer: CallPricer;
  /** Calls up to this row of the ledger. */
  readonly through: bigint;
}

const IN_SLICE = `${IS_BILLED_APART} AND ts_ms >= ? AND ts_ms < ? AND seq <= ?`;
const ROUNDS = `SELECT event_id, model, billed, ${TOKEN_COUNTS.join(', ')} FROM llm_call_rounds
  WHERE event_id IN (SELECT event_id FROM ledger_calls WHERE ${IN_SLICE}) ORDER BY event_id, seq`;
/** The time at which the next slice of such calls begins. */
const NEXT_BILLED = `SELECT ts_ms AS time FROM ledger_calls WHERE ${IS_BILLED_APART} AND ts_ms >= ? AND ts_ms < ?
  ORDER BY ts_ms LIMIT 1 OFFSET ?`;

const SLICE_ROWS = 2000;

/** Calls in groups that one rate set prices, and those one by one that none does. */
export async function* rateGroups(read: Read, query: RateQuery): AsyncGenerator<RateGroup> {
  yield* readPlainGroups(read, query);
  const through = await findNewest(read);
  if (through === null) return;
  const { window, ...rest } = query;
  const boundary = async ({ from, to }: TimeWindow) => toTime(await read(NEXT_BILLED, from, to, SLICE_ROWS));
  for await (const slice of timeSlices(window, boundary))
    for (const call of await readBilledCalls(read, slice, { ...rest, through })) yield call;
}

/** One group a call of the window. */
async function readBilledCalls(read: Read, { from, to }: TimeWindow, query: BilledQuery): Promise<RateGroup[]> {
  const { columns, where, pricer, through } = query;
  const measures = [...MEASURES, ...BILL_MEASURES].map((name) => `${CALL_MEASURES[name]} AS ${name}`);
  const select = [...columns.map(({ calls }, i) => `${calls} AS k${i}`), ...measures];
  const rows = await read<Row>(
    `SELECT ${select.join(', ')}, event_id, model AS own_model, bill_json FROM llm_calls WHERE ${IN_SLICE}${where.sql}`,
    from,
    to,
    through,
    ...where.values,
  );
  if (rows.length === 0) return [];
  const rounds = groupRounds(await read<RoundRow>(ROUNDS, from, to, through));
  return rows.map((row) => ({
    values: columns.map((_, i) => row[`k${i}`]!),
    sums: row,
    cost(model, cache) {
      const own = rounds.get(row.event_id) ?? [];
      if (cache !== 'missed') return priceAgain(pricer, row, own, model);
      return priceAgain(pricer, missCache(row), own.map(missCache), model);
    },
  }));
}

function groupRounds(rows: readonly RoundRow[]): ReadonlyMap<string, readonly RoundRow[]> {
  const groups = new Map<string, RoundRow[]>();
  for (const round of rows) {
    const group = groups.get(round.event_id);
    if (group === undefined) groups.set(round.event_id, [round]);
    else group.push(round);
  }
  return groups;
}

/**
 * The call with `model` in place of its own; rounds of other models keep theirs. Null where the version lacks a rate, a
 * fee or a multiplier of the call.
 */
function priceAgain(pricer: CallPricer, row: Row, rounds: readonly RoundRow[], model: string): CostParts | null {
  const { fees = [], bound: _, ...terms } = JSON.parse(row.bill_json) as StoredBill;
  const sum: RoundRow = { ...row, model: row.own_model, billed: 1n };
  const billed = [...rounds, sum].slice(0, Math.max(rounds.length, 1)).map((round) => ({
    model: renameModel(round.model, row.own_model, model),
    usage: toTokenUsage(round),
    billed: round.billed === 1n,
  }));
  const uses = new Map(fees.map((fee) => [fee.tool, fee.uses]));
  const priced = priceBill(pricer, { model, rounds: billed, uses, terms: { ...STANDARD_TERMS, ...terms } });
  if (priced.rounds.some((round) => !round.priced || round.surcharge_unknown)) return null;
  if (priced.lines.some((line) => line.cost === null)) return null;
  return priced;
}

function renameModel(model: string, own: string, asked: string): string {
  if (model === own) return asked;
  return model;
}

function toTokenUsage(counts: Counts): TokenUsage {
  return {
    input_tokens: Number(counts.input_tokens),
    cached_input_tokens: Number(counts.cached_input_tokens),
    cache_creation_input_tokens: Number(counts.cache_creation_input_tokens),
    cache_creation_1h_input_tokens: Number(counts.cache_creation_1h_input_tokens),
    output_tokens: Number(counts.output_tokens),
    reasoning_tokens: Number(counts.reasoning_tokens),
    usage_estimated: false,
  };
}
