// What the cost view is asked: it lives in the address, so that a link shows the same to another person.
import type { CostQuery, CostReport, CostRow, MetisClient, SavingsReport } from '#client/client.ts';
import { formatPlaceWithQuery, type Place } from '#dashboard/shell/place.ts';
import { systemClock } from '#protocol/clock.ts';

export const RANGES = [
  { value: '24h', label: '24 hours' },
  { value: '7d', label: '7 days' },
  { value: '30d', label: '30 days' },
  { value: '90d', label: '90 days' },
  { value: 'all', label: 'All time' },
  { value: 'custom', label: 'Custom' },
] as const;
export type Range = (typeof RANGES)[number]['value'];

export const GROUPS = [
  { value: 'root_session', label: 'Session and workers' },
  { value: 'model', label: 'Model' },
  { value: 'delegation_tier', label: 'Tier' },
  { value: 'worker_name', label: 'Named worker' },
  { value: 'workspace', label: 'Workspace' },
  { value: 'door', label: 'Source' },
  { value: 'caller', label: 'Caller' },
  { value: 'owner', label: 'Owner' },
  { value: 'effort', label: 'Effort' },
  { value: 'day', label: 'Day' },
] as const;
type Group = (typeof GROUPS)[number]['value'];

export const FILTERS = ['model', 'tier', 'worker', 'workspace', 'door', 'caller', 'owner'] as const;
export type Filter = (typeof FILTERS)[number];
export const NO_FILTER: Readonly<Record<Filter, null>> = {
  model: null,
  tier: null,
  worker: null,
  workspace: null,
  door: null,
  caller: null,
  owner: null,
};

export interface CostQuestion extends Readonly<Record<Filter, string | null>> {
  readonly range: Range;
  /** Days of UTC, the second included; of a custom range alone. */
  readonly from: string | null;
  readonly to: string | null;
  readonly group: Group;
  /** `stamped`, `current`, or a version of the price table. */
  readonly pricing: string;
  /** `planner`, or a model of the price table. */
  readonly baseline: string;
  /** Models of the other bill: one, and the one in its place; null = none chosen. */
  readonly replaced: string | null;
  readonly instead: string | null;
}

const DEFAULTS = { range: '7d', group: 'root_session', pricing: 'stamped', baseline: 'planner' } as const;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const DAYS: Readonly<Partial<Record<Range, number>>> = { '7d': 7, '30d': 30, '90d': 90 };
const DAY_PATTERN = /^\d{4}-\d{2}-\d{2}$/;

/** Reads the question from the address. Invalid values are ignored. */
export function parseCostQuestion({ query }: Place): CostQuestion {
  const day = (name: string) => {
    const text = query.get(name);
    if (text !== null && DAY_PATTERN.test(text) && !Number.isNaN(Date.parse(text))) return text;
    return null;
  };
  const range = findChoice(RANGES, query.get('range')) ?? DEFAULTS.range;
  return {
    range,
    from: day('from'),
    to: day('to'),
    group: findChoice(GROUPS, query.get('group')) ?? DEFAULTS.group,
    pricing: query.get('pricing') ?? DEFAULTS.pricing,
    baseline: query.get('baseline') ?? DEFAULTS.baseline,
    replaced: query.get('replaced'),
    instead: query.get('instead'),
    model: query.get('model'),
    tier: query.get('tier'),
    worker: query.get('worker'),
    workspace: query.get('workspace'),
    door: query.get('door'),
    caller: query.get('caller'),
    owner: query.get('owner'),
  };
}

/** The address of a question; what is as usual is not written down. */
export function formatCostPlace(question: CostQuestion): string {
  const custom = question.range === 'custom';
  const unusual = (name: keyof typeof DEFAULTS) => {
    if (question[name] === DEFAULTS[name]) return null;
    return question[name];
  };
  return formatPlaceWithQuery('cost', {
    range: unusual('range'),
    from: custom ? question.from : null,
    to: custom ? question.to : null,
    group: unusual('group'),
    pricing: unusual('pricing'),
    baseline: unusual('baseline'),
    replaced: question.replaced,
    instead: question.instead,
    model: question.model,
    tier: question.tier,
    worker: question.worker,
    workspace: question.workspace,
    door: question.door,
    caller: question.caller,
    owner: question.owner,
  });
}

interface AskedWindow {
  readonly from: string;
  /** Absent: until the server's now. */
  readonly to?: string;
  readonly bucket: 'day' | 'hour';
}

/**
 * Whole hours or days of UTC, the current one included.
 * @returns null for a custom range that is not complete or ends before it begins
 */
export function resolveWindow(
  { range, from, to }: Pick<CostQuestion, 'range' | 'from' | 'to'>,
  now: number,
): AskedWindow | null {
  const since = (ms: number) => new Date(ms).toISOString();
  if (range === 'all') return { from: 'all', bucket: 'day' };
  if (range === '24h') return { from: since(Math.floor(now / HOUR_MS) * HOUR_MS - 23 * HOUR_MS), bucket: 'hour' };
  const days = DAYS[range];
  if (days !== undefined) return { from: since((Math.floor(now / DAY_MS) - days + 1) * DAY_MS), bucket: 'day' };
  if (from === null || to === null || from > to) return null;
  const end = Date.parse(to) + DAY_MS;
  return {
    from: since(Date.parse(from)),
    to: since(end),
    bucket: end - Date.parse(from) <= 2 * DAY_MS ? 'hour' : 'day',
  };
}

/** As the reports take it. */
export function buildFilter(
  question: CostQuestion,
): Pick<CostQuery, 'model' | 'delegation_tier' | 'worker_name' | 'workspace_hash' | 'door' | 'caller' | 'owner'> {
  const { model, tier, worker, workspace, door, caller, owner } = question;
  return {
    ...(model !== null && { model }),
    ...(tier !== null && { delegation_tier: tier as CostQuery['delegation_tier'] }),
    ...(worker !== null && { worker_name: worker }),
    ...(workspace !== null && { workspace_hash: workspace }),
    ...(door !== null && { door: door as CostQuery['door'] }),
    ...(caller !== null && { caller }),
    ...(owner !== null && { owner }),
  };
}

function findChoice<T extends string>(choices: readonly { readonly value: T }[], text: string | null): T | undefined {
  return choices.find(({ value }) => value === text)?.value;
}

// The answers of one round of questions, all of the same window, so that every figure of the page agrees.

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
  const window = resolveWindow(question, systemClock.now());
  if (window === null) return null;
  const { bucket, ...asked } = window;
  const filter = buildFilter(question);
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
