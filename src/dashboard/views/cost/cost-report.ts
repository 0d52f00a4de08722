// The answers of one round of questions, all of the same window, so that every figure of the page agrees.
import type { CostReport, CostRow, MetisClient, SavingsReport } from '#client/client.ts';
import { systemClock } from '#protocol/clock.ts';
import { type AskedWindow, type CostQuestion, filterOf, windowOf } from './cost-question.ts';

/** What the interface gives at most in one page: 5,000 days of planners and workers. */
const MOST_BUCKETS = 10_000;

export interface CostAnswer {
  readonly question: CostQuestion;
  readonly bucket: AskedWindow['bucket'];
  /** By bucket and by planner or worker. */
  readonly spend: readonly CostRow[];
  readonly groups: CostReport<'model'>;
  readonly savings: SavingsReport;
}

/** Null where the custom range is not one. */
export async function askCost(
  client: MetisClient,
  question: CostQuestion,
  limit: number,
  signal: AbortSignal,
): Promise<CostAnswer | null> {
  const window = windowOf(question, systemClock.now());
  if (window === null) return null;
  const { bucket, ...asked } = window;
  const filter = filterOf(question);
  const { pricing, baseline, group } = question;
  const spend = await client.getCost(
    { ...asked, ...filter, pricing, group_by: `${bucket},is_worker`, limit: MOST_BUCKETS },
    { signal },
  );
  // Calls made in between would else be in one figure and not in the other.
  const same = { from: spend.window.start, to: spend.window.end, ...filter };
  const [groups, savings] = await Promise.all([
    client.getCost({ ...same, pricing, group_by: group as 'model', limit }, { signal }),
    client.getSavings({ ...same, baseline }, { signal }),
  ]);
  return { question, bucket, spend: spend.data, groups, savings };
}
