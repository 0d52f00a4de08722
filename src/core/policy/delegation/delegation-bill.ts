// Adds up the bill of the delegations of one message, and reads the answer to it (21 §1).
import { fromPusd, type Pusd, sumPusd, toPusd } from '#protocol/money.ts';
import type { Effort, Tier } from '#protocol/scalars.ts';
import type { BillAnswer, BillRow, DelegationBill } from '#protocol/what-if/cost-ahead.ts';

/** The model that an answer requires of a delegation; null = as requested. */
export interface DelegationTerms {
  readonly tier: Tier | null;
  readonly effort: Effort | null;
}

/** Whether one delegation starts, and how. */
export type BillVerdict =
  | { readonly kind: 'start'; readonly terms: DelegationTerms | null }
  | { readonly kind: 'refuse'; readonly timed_out: boolean; readonly text: string };

export interface BillLimits {
  readonly confirm_above_pusd: Pusd | null;
  readonly confirm_above_workers: number | null;
}

export function addUpBill(rows: readonly BillRow[]): DelegationBill {
  const sumAmounts = (amounts: readonly (string | null)[]) =>
    sumPusd(amounts.flatMap((usd) => (usd === null ? [] : [toPusd(usd)])));
  const p90 = sumAmounts(rows.map(({ p90_usd }) => p90_usd));
  const ceiling = sumAmounts(rows.map(({ ceiling_usd }) => ceiling_usd));
  return {
    tool_use_ids: rows.map(({ tool_use_id }) => tool_use_id),
    rows: [...rows],
    p90_usd: fromPusd(p90),
    ceiling_usd: fromPusd(ceiling),
    compared_usd: fromPusd(sumPusd([p90, ceiling])),
  };
}

export function isAboveLimits({ rows, compared_usd }: DelegationBill, limits: BillLimits): boolean {
  const { confirm_above_pusd: usd, confirm_above_workers: workers } = limits;
  return (usd !== null && toPusd(compared_usd) > usd) || (workers !== null && rows.length > workers);
}

function countDelegations(count: number): string {
  return count === 1 ? '1 delegation' : `${count} delegations`;
}

/** One line for a place that shows no table. */
export function summariseBill({ rows, compared_usd }: DelegationBill): string {
  const models = [...new Set(rows.map(({ model }) => model))];
  return `${countDelegations(rows.length)} to ${models.join(', ')}, together up to $${compared_usd}`.slice(0, 200);
}

/** The verdict on each delegation of a bill, by the answer to it; a null answer was not asked for. */
export function readBillAnswer(
  rows: readonly Pick<BillRow, 'tool_use_id'>[],
  answer: BillAnswer | null,
  timeoutSeconds: number,
): ReadonlyMap<string, BillVerdict> {
  const edit = answer?.modified_input ?? {};
  const terms = { tier: edit.tier ?? null, effort: edit.effort ?? null };
  const start: BillVerdict = { kind: 'start', terms: terms.tier === null && terms.effort === null ? null : terms };
  const first = edit.first ?? rows.length;
  const judgeRow = (index: number): BillVerdict => {
    if (answer?.decision === 'timeout')
      return {
        kind: 'refuse',
        timed_out: true,
        text: `Confirmation timed out after ${timeoutSeconds}s; no delegation of this message started.`,
      };
    if (answer?.decision === 'reject')
      return {
        kind: 'refuse',
        timed_out: false,
        text: `The user rejected the delegations of this message; none started.${answer.reason ? ` Reason: ${answer.reason}` : ''}`,
      };
    if (index < first) return start;
    return {
      kind: 'refuse',
      timed_out: false,
      text: `The user approved only the first ${first} of ${rows.length} delegations of this message; this one was not started.`,
    };
  };
  return new Map(rows.map(({ tool_use_id }, index) => [tool_use_id, judgeRow(index)]));
}
