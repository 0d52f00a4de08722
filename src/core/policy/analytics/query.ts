// Query parameters of `/analytics/*` into typed queries; every fault names its parameter (07 §3-§5, §7).
import {
  type CostQuery,
  type Direction,
  ORDERS,
  type Order,
  type SavingsQuery,
  type SortKey,
  type TimeWindow,
  type TraceQuery,
} from '#protocol/analytics.ts';
import type { Issue } from '#protocol/errors.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { canonicalJson, sha256Hex } from '#protocol/text/canonical-json.ts';
import { FILTERS, Parameters, type RawQuery } from './parameters.ts';
import { fromSortKey, isTimeBucket, type SortTerm, sortTerms } from './rollup.ts';

const VERSION = /^[A-Za-z0-9._+-]{1,400}$/;
const MAX_TRACE_WINDOW_MS = 31 * 86_400_000;

const TRACE_FILTERS = ['session', 'model', 'provider'] as const;
const CALL_PARAMETERS = ['from', 'to', 'include_workers', ...Object.keys(FILTERS)];
const COST_PARAMETERS = [...CALL_PARAMETERS, 'group_by', 'order', 'dir', 'limit', 'cursor', 'pricing'];
const SAVINGS_PARAMETERS = [...CALL_PARAMETERS, 'baseline'];
const TRACE_PARAMETERS = ['from', 'to', ...TRACE_FILTERS];

export interface CostRequest {
  readonly query: CostQuery;
  /** `stamped`, `current` or a price version still to be looked up. */
  readonly pricing: string;
  /** Of the parameters a cursor must be used with again. */
  readonly fingerprint: string;
  readonly warnings: readonly string[];
}

/** `GET /analytics/cost`. `now` is Unix milliseconds, taken once per request. */
export function parseCostQuery(raw: RawQuery, now: number): Result<CostRequest, readonly Issue[]> {
  const params = new Parameters(raw, COST_PARAMETERS);
  const groupBy = params.groupBy();
  const order = params.oneOf<Order>('order', ORDERS, isTimeBucket(groupBy[0]) ? 'key' : 'cost');
  const dir = params.oneOf<Direction>('dir', ['asc', 'desc'], order === 'key' ? 'asc' : 'desc');
  const limit = params.limit();
  const filter = params.filter();
  const pricing = params.text('pricing') ?? 'stamped';
  if (pricing.includes(' ')) params.fault('pricing', 'contains a space: a "+" must be percent-encoded as %2B');
  else if (!VERSION.test(pricing)) params.fault('pricing', 'must be stamped, current or a known pricing version');
  const fingerprint = sha256Hex(canonicalJson({ filter, group_by: groupBy, order, dir, pricing })).slice(0, 32);

  const cursor = params.text('cursor');
  const window = cursor === null ? params.window(now) : null;
  const resumed = cursor === null ? null : resume(params, cursor, fingerprint, sortTerms(groupBy, order, dir));
  if (params.issues.length > 0) return err(params.issues);
  return ok({
    query: {
      window: window ?? resumed!.window,
      filter,
      group_by: groupBy,
      order,
      dir,
      limit,
      after: resumed?.after ?? null,
    },
    pricing,
    fingerprint,
    warnings: params.warnings,
  });
}

/** `GET /analytics/savings`. `baseline` is as given or null; alias and price table are the caller's to ask. */
export function parseSavingsQuery(
  raw: RawQuery,
  now: number,
): Result<
  { readonly query: Omit<SavingsQuery, 'baseline'>; readonly baseline: string | null; readonly warnings: string[] },
  readonly Issue[]
> {
  const params = new Parameters(raw, SAVINGS_PARAMETERS);
  const query = { window: params.window(now), filter: params.filter() };
  const baseline = params.matching('baseline', FILTERS.model);
  if (params.issues.length > 0) return err(params.issues);
  return ok({ query, baseline, warnings: params.warnings });
}

/** `GET /analytics/routing` and `/analytics/reliability`: at most 31 days unless `from=all`. */
export function parseTraceQuery(
  raw: RawQuery,
  now: number,
): Result<{ readonly query: TraceQuery; readonly warnings: string[] }, readonly Issue[]> {
  const params = new Parameters(raw, TRACE_PARAMETERS);
  const window = params.window(now);
  const filter = {
    session: params.matching('session', FILTERS.session),
    model: params.matching('model', FILTERS.model),
    provider: params.matching('provider', FILTERS.provider),
  };
  if (params.text('from') !== 'all' && window.to - window.from > MAX_TRACE_WINDOW_MS) {
    params.fault('from', 'must be at most 31 days before `to`, or `all`');
  }
  if (params.issues.length > 0) return err(params.issues);
  return ok({ query: { window, filter }, warnings: params.warnings });
}

/** The cursor that continues `request` after a row. */
export function encodeCursor(request: CostRequest, after: SortKey): string {
  const { from, to } = request.query.window;
  return Buffer.from(JSON.stringify({ w: [from, to], h: request.fingerprint, k: after })).toString('base64url');
}

function resume(
  params: Parameters,
  cursor: string,
  fingerprint: string,
  terms: readonly SortTerm[],
): { window: TimeWindow; after: SortKey } | null {
  const page = decodeCursor(cursor);
  const from = params.text('from') === 'all' ? 0 : params.time('from');
  const to = params.time('to');
  if (params.issues.length > 0) return null;
  if (!page || !fromSortKey(terms, page.key)) {
    return params.fault('cursor', 'is not a cursor of this query');
  }
  if (page.fingerprint !== fingerprint) return params.fault('cursor', 'belongs to a query with other parameters');
  if ((from !== null && from !== page.window.from) || (to !== null && to !== page.window.to)) {
    return params.fault('cursor', 'belongs to another window; leave out `from` and `to`');
  }
  return { window: page.window, after: page.key };
}

function decodeCursor(cursor: string): { window: TimeWindow; fingerprint: string; key: SortKey } | null {
  let page: unknown;
  try {
    page = JSON.parse(Buffer.from(cursor, 'base64url').toString('utf8'));
  } catch {
    return null;
  }
  if (typeof page !== 'object' || page === null) return null;
  const { w, h, k } = page as Readonly<Record<string, unknown>>;
  if (!Array.isArray(w) || !Array.isArray(k) || typeof h !== 'string') return null;
  const [from, to] = w;
  if (!Number.isSafeInteger(from) || !Number.isSafeInteger(to) || !k.every((v) => typeof v === 'string')) return null;
  return { window: { from, to }, fingerprint: h, key: k };
}
