// The calls of a session as the ledger has them, with the rounds of those that have several (08 §12).
import type { CallReader } from '#core/ports/store-reader.ts';
import type { ListedCall } from '#protocol/api/session-bodies.ts';
import { isoTime } from '#protocol/clock.ts';
import { fromPusd } from '#protocol/money.ts';
import { type Fee, type Round, STANDARD_TERMS, type Terms, type TokenUsage } from '#protocol/usage.ts';
import { TOKEN_COUNTS } from '../schema/rollups.ts';
import { type Reads, toPage } from './read-database.ts';

const PAGE = 'SELECT * FROM llm_calls WHERE session_id = ? AND event_id > ? ORDER BY event_id LIMIT ?';
const ROUNDS = 'SELECT * FROM llm_call_rounds WHERE event_id >= ? AND event_id <= ? ORDER BY event_id, seq';

type Counts = Readonly<Record<(typeof TOKEN_COUNTS)[number], bigint>>;
type Tokens = Omit<TokenUsage, 'usage_estimated'>;
interface CallRow extends Counts {
  readonly event_id: string;
  readonly ts_ms: bigint;
  readonly turn_id: ListedCall['turn_id'];
  readonly model: string;
  readonly provider: string;
  /** '' = none. */
  readonly effort: NonNullable<ListedCall['effort']> | '';
  readonly purpose: ListedCall['purpose'];
  readonly pricing_version: string;
  readonly usage_estimated: bigint;
  readonly priced: bigint;
  readonly cancelled: bigint;
  readonly latency_ms: bigint | null;
  readonly cost_pusd: bigint;
  readonly fees_pusd: bigint;
  readonly surcharge_pusd: bigint;
  readonly fees_unpriced: bigint;
  readonly surcharge_unknown: bigint;
  readonly rounds_unknown: bigint;
  readonly bill_json: string | null;
}
interface RoundRow extends Counts {
  readonly event_id: string;
  readonly kind: string;
  readonly model: string;
  readonly cost_pusd: bigint;
  readonly priced: bigint;
  readonly billed: bigint;
}
interface StoredBill extends Partial<Terms> {
  readonly fees?: Fee[];
  readonly rounds?: number;
  readonly bound?: 'none' | null;
}

export function createCallReader({ allExact }: Reads): CallReader {
  return {
    async list(sessionId, { after, limit }) {
      const rows = await allExact<CallRow>(PAGE, sessionId, after ?? '', limit + 1);
      const shown = rows.slice(0, limit);
      const bills = shown.map(readBill);
      let rounds: readonly RoundRow[] = [];
      if (bills.some((bill) => bill.rounds !== undefined))
        rounds = await allExact<RoundRow>(ROUNDS, shown[0]!.event_id, shown.at(-1)!.event_id);
      const ofCall = (id: string) => rounds.filter((round) => round.event_id === id).map(toRound);
      const calls = new Map(shown.map((row, at) => [row, toCall(row, bills[at]!, ofCall(row.event_id))]));
      return toPage(
        rows,
        limit,
        (row) => row.event_id,
        (row) => calls.get(row)!,
      );
    },
  };
}

function readBill({ bill_json }: CallRow): StoredBill {
  if (bill_json === null) return {};
  return JSON.parse(bill_json) as StoredBill;
}

function toTokens(row: Counts): Tokens {
  return Object.fromEntries(TOKEN_COUNTS.map((name) => [name, Number(row[name])])) as Tokens;
}

function toRound({ kind, model, cost_pusd, priced, billed, ...row }: RoundRow): Round {
  return { kind, model, ...toTokens(row), cost_usd: fromPusd(cost_pusd), priced: priced === 1n, billed: billed === 1n };
}

function toLatency({ latency_ms }: CallRow): number | null {
  if (latency_ms === null) return null;
  return Number(latency_ms);
}

function toCall(
  row: CallRow,
  { fees = [], bound = null, rounds: _, ...terms }: StoredBill,
  rounds: Round[],
): ListedCall {
  const { fees_pusd, surcharge_pusd, cost_pusd } = row;
  return {
    id: row.event_id,
    timestamp: isoTime(Number(row.ts_ms)),
    turn_id: row.turn_id,
    model: row.model,
    provider: row.provider,
    effort: row.effort || null,
    purpose: row.purpose,
    ...toTokens(row),
    usage_estimated: row.usage_estimated === 1n,
    cost_usd: fromPusd(cost_pusd),
    cost_breakdown: {
      tokens: fromPusd(cost_pusd - fees_pusd - surcharge_pusd),
      fees: fromPusd(fees_pusd),
      surcharge: fromPusd(surcharge_pusd),
    },
    pricing_version: row.pricing_version,
    priced: row.priced === 1n,
    fees_unpriced: row.fees_unpriced === 1n,
    surcharge_unknown: row.surcharge_unknown === 1n,
    rounds_unknown: row.rounds_unknown === 1n,
    cancelled: row.cancelled === 1n,
    latency_ms: toLatency(row),
    ...STANDARD_TERMS,
    ...terms,
    fees,
    rounds,
    bound,
  };
}
