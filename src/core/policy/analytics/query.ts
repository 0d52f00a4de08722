// Query parameters of `/analytics/*` into typed queries; every fault names its parameter (07 §3-§5, §7).
import {
  type CallFilter,
  type CostQuery,
  DIMENSIONS,
  type Dimension,
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
import { fromSortKey, isTimeBucket, type SortTerm, sortTerms } from './rollup.ts';

// One query string of `/analytics/*`: reads each parameter and collects what is wrong with it (07 §3).

/** A query string as fastify gives it: a repeated parameter is an array. */
export type RawQuery = Readonly<Record<string, unknown>>;

const ID = /^[A-Za-z0-9_-]{1,200}$/;
/** '' asks for calls without a key. */
const CALLER = /^[A-Za-z0-9_-]{0,200}$/;
const NAME = /^[A-Za-z0-9_.:/@~-]{1,200}$/;
/** Form of each filter value; what is well formed and matches nothing is no error. */
const FILTERS = {
  session: ID,
  parent_session: ID,
  model: NAME,
  provider: NAME,
  workspace_hash: ID,
  delegation_tier: ID,
  worker_name: ID,
  door: ID,
  caller: CALLER,
} as const;
const RFC3339 = /^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,3}))?(Z|([+-])(\d\d):(\d\d))$/i;
const DEFAULT_WINDOW_MS = 7 * 86_400_000;
const DEFAULT_LIMIT = 1000;
const MAX_LIMIT = 10_000;

class Parameters {
  readonly issues: Issue[] = [];
  readonly warnings: string[] = [];
  private readonly raw: RawQuery;

  constructor(raw: RawQuery, known: readonly string[]) {
    this.raw = raw;
    for (const [name, value] of Object.entries(raw)) {
      if (!known.includes(name)) this.warnings.push(`unknown parameter ignored: ${name.slice(0, 100)}`);
      else if (Array.isArray(value)) this.fault(name, 'must be given once');
    }
  }

  fault(path: string, message: string): null {
    this.issues.push({ path, message });
    return null;
  }

  /** Null when absent, or already reported as repeated. */
  text(name: string): string | null {
    const value = this.raw[name];
    return typeof value === 'string' ? value : null;
  }

  matching(name: string, pattern: RegExp): string | null {
    const value = this.text(name);
    if (value === null || pattern.test(value)) return value;
    return this.fault(name, `must match ${pattern.source}`);
  }

  parseEnum<T extends string>(name: string, values: readonly T[], fallback: T): T {
    const value = this.text(name);
    if (value === null) return fallback;
    const found = values.find((v) => v === value);
    if (found === undefined) this.fault(name, `must be one of ${values.join(', ')}`);
    return found ?? fallback;
  }

  /** Unix milliseconds. */
  time(name: string): number | null {
    const value = this.text(name);
    if (value === null) return null;
    const ms = parseTime(value);
    if (ms !== null) return ms;
    if (value.includes(' ')) return this.fault(name, 'contains a space: a "+" must be percent-encoded as %2B');
    return this.fault(
      name,
      'must be an RFC 3339 time with "Z" or an offset and at most 3 fraction digits, such as 2026-05-01T00:00:00Z',
    );
  }

  boolean(name: string): boolean | null {
    const value = this.text(name)?.toLowerCase();
    if (value === undefined) return null;
    if (['true', '1', 'yes'].includes(value)) return true;
    if (['false', '0', 'no'].includes(value)) return false;
    return this.fault(name, 'must be true or false');
  }

  /** `from` and `to` with their defaults; `all` is the epoch. */
  window(now: number): TimeWindow {
    const from = this.text('from') === 'all' ? 0 : this.time('from');
    const to = this.time('to') ?? now;
    const window = { from: from ?? now - DEFAULT_WINDOW_MS, to };
    if (window.from >= to && this.issues.length === 0) {
      if (from === null) this.fault('to', 'must be after the default start, 7 days ago; give `from` as well');
      else this.fault('from', 'must be before `to`');
    }
    return window;
  }

  filter(): CallFilter {
    const match = (name: keyof typeof FILTERS) => this.matching(name, FILTERS[name]);
    return {
      session: match('session'),
      parent_session: match('parent_session'),
      model: match('model'),
      provider: match('provider'),
      workspace_hash: match('workspace_hash'),
      delegation_tier: match('delegation_tier'),
      worker_name: match('worker_name'),
      door: match('door'),
      caller: match('caller'),
      include_workers: this.boolean('include_workers'),
    };
  }

  groupBy(): readonly Dimension[] {
    const names = (this.text('group_by') ?? 'model').split(',');
    if (names.length === 1 && names[0] === 'none') return [];
    const dimensions = names.flatMap((name) => DIMENSIONS.find((dimension) => dimension === name) ?? []);
    if (dimensions.length !== names.length) {
      this.fault('group_by', `must be none, or one or two of ${DIMENSIONS.join(', ')}`);
    } else if (dimensions.length > 2 || new Set(dimensions).size !== dimensions.length) {
      this.fault('group_by', 'must be one dimension, or two distinct ones separated by a comma');
    } else if (dimensions.length === 2 && dimensions.every(isTimeBucket)) {
      this.fault('group_by', 'day and hour are both a bucket; use hour alone');
    }
    return dimensions;
  }

  limit(): number {
    const value = this.text('limit');
    if (value === null) return DEFAULT_LIMIT;
    if (/^\d{1,15}$/.test(value) && Number(value) >= 1) return Math.min(Number(value), MAX_LIMIT);
    this.fault('limit', `must be an integer from 1 to ${MAX_LIMIT}`);
    return DEFAULT_LIMIT;
  }
}

/** Unix milliseconds; null unless it is a real RFC 3339 time with an offset. */
function parseTime(text: string): number | null {
  const parts = RFC3339.exec(text);
  if (!parts) return null;
  const [year, month, day, hour, minute, second] = parts.slice(1, 7).map(Number) as [
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  const [offsetHours, offsetMinutes] = [Number(parts[10] ?? 0), Number(parts[11] ?? 0)];
  const local = new Date(0);
  local.setUTCFullYear(year, month - 1, day);
  local.setUTCHours(hour, minute, second, Number((parts[7] ?? '').padEnd(3, '0')));
  // Date rolls 31 April over into May: a part that changed was out of range.
  const real =
    local.getUTCMonth() === month - 1 && local.getUTCDate() === day && hour < 24 && minute < 60 && second < 60;
  if (!real || offsetHours > 23 || offsetMinutes > 59) return null;
  const offset = (offsetHours * 60 + offsetMinutes) * 60_000;
  return local.getTime() - (parts[9] === '-' ? -offset : offset);
}

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
  const order = params.parseEnum<Order>('order', ORDERS, isTimeBucket(groupBy[0]) ? 'key' : 'cost');
  const dir = params.parseEnum<Direction>('dir', ['asc', 'desc'], order === 'key' ? 'asc' : 'desc');
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
