// Parses query parameters of `/analytics/*` into typed queries; every issue names its parameter (07 §3-§5, §7).
import {
  type CallFilter,
  type CostQuery,
  DIMENSIONS,
  type Dimension,
  type Direction,
  type LedgerQuery,
  ORDERS,
  type Order,
  type SavingsQuery,
  type SortKey,
  type TimeWindow,
  type TraceQuery,
  VERIFIED_GROUPS,
  type VerifiedQuery,
} from '#protocol/analytics.ts';
import type { Issue } from '#protocol/errors.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { canonicalJson, sha256Hex } from '#protocol/text/canonical-json.ts';
import { buildSortTerms, fromSortKey, isTimeBucket, type SortTerm } from './rollup.ts';

// Reads the parameters of one query string and collects an issue for each invalid one (07 §3).

/** A query string as fastify gives it: a repeated parameter is an array. */
export type RawQuery = Readonly<Record<string, unknown>>;

const ID = /^[A-Za-z0-9_-]{1,200}$/;
/** '' selects calls without a key. */
const CALLER = /^[A-Za-z0-9_-]{0,200}$/;
/** Id of a token; '' selects sessions of no token. */
const OWNER = /^[A-Za-z0-9_:-]{0,200}$/;
const NAME = /^[A-Za-z0-9_.:/@~-]{1,200}$/;
/** Pattern of each filter value. A valid value that matches no call is no error. */
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
  owner: OWNER,
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
      else if (Array.isArray(value)) this.reportIssue(name, 'must be given once');
    }
  }

  reportIssue(path: string, message: string): null {
    this.issues.push({ path, message });
    return null;
  }

  /** Null when absent, or already reported as repeated. */
  readText(name: string): string | null {
    const value = this.raw[name];
    if (typeof value === 'string') return value;
    return null;
  }

  readMatching(name: string, pattern: RegExp): string | null {
    const value = this.readText(name);
    if (value === null || pattern.test(value)) return value;
    return this.reportIssue(name, `must match ${pattern.source}`);
  }

  readEnum<T extends string>(name: string, values: readonly T[], fallback: T): T {
    const value = this.readText(name);
    if (value === null) return fallback;
    const found = values.find((v) => v === value);
    if (found === undefined) this.reportIssue(name, `must be one of ${values.join(', ')}`);
    return found ?? fallback;
  }

  /** Unix milliseconds. */
  readTime(name: string): number | null {
    const value = this.readText(name);
    if (value === null) return null;
    const ms = parseTime(value);
    if (ms !== null) return ms;
    if (value.includes(' ')) return this.reportIssue(name, 'contains a space: a "+" must be percent-encoded as %2B');
    return this.reportIssue(
      name,
      'must be an RFC 3339 time with "Z" or an offset and at most 3 fraction digits, such as 2026-05-01T00:00:00Z',
    );
  }

  readBoolean(name: string): boolean | null {
    const value = this.readText(name)?.toLowerCase();
    if (value === undefined) return null;
    if (['true', '1', 'yes'].includes(value)) return true;
    if (['false', '0', 'no'].includes(value)) return false;
    return this.reportIssue(name, 'must be true or false');
  }

  /** Null = not given; `all` is the epoch. */
  readFrom(): number | null {
    if (this.readText('from') === 'all') return 0;
    return this.readTime('from');
  }

  /** `from` and `to` with their defaults. */
  readWindow(now: number): TimeWindow {
    const from = this.readFrom();
    const to = this.readTime('to') ?? now;
    const window = { from: from ?? now - DEFAULT_WINDOW_MS, to };
    if (window.from >= to && this.issues.length === 0) {
      if (from === null) this.reportIssue('to', 'must be after the default start, 7 days ago; give `from` as well');
      else this.reportIssue('from', 'must be before `to`');
    }
    return window;
  }

  readFilter(): CallFilter {
    const match = (name: keyof typeof FILTERS) => this.readMatching(name, FILTERS[name]);
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
      owner: match('owner'),
      include_workers: this.readBoolean('include_workers'),
    };
  }

  readGroupBy(): readonly Dimension[] {
    const names = (this.readText('group_by') ?? 'model').split(',');
    if (names.length === 1 && names[0] === 'none') return [];
    const dimensions = names.flatMap((name) => DIMENSIONS.find((dimension) => dimension === name) ?? []);
    if (dimensions.length !== names.length) {
      this.reportIssue('group_by', `must be none, or one or two of ${DIMENSIONS.join(', ')}`);
    } else if (dimensions.length > 2 || new Set(dimensions).size !== dimensions.length) {
      this.reportIssue('group_by', 'must be one dimension, or two distinct ones separated by a comma');
    } else if (dimensions.length === 2 && dimensions.every(isTimeBucket)) {
      this.reportIssue('group_by', 'day and hour are both a bucket; use hour alone');
    }
    return dimensions;
  }

  readLimit(): number {
    const value = this.readText('limit');
    if (value === null) return DEFAULT_LIMIT;
    if (/^\d{1,15}$/.test(value) && Number(value) >= 1) return Math.min(Number(value), MAX_LIMIT);
    this.reportIssue('limit', `must be an integer from 1 to ${MAX_LIMIT}`);
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
  if (parts[9] === '-') return local.getTime() + offset;
  return local.getTime() - offset;
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
  /** Hash of the parameters that must be sent with the cursor again. */
  readonly fingerprint: string;
  readonly warnings: readonly string[];
}

/** `GET /analytics/cost`. `now` is Unix milliseconds, taken once per request. */
export function parseCostQuery(raw: RawQuery, now: number): Result<CostRequest, readonly Issue[]> {
  const params = new Parameters(raw, COST_PARAMETERS);
  const groupBy = params.readGroupBy();
  const order = params.readEnum<Order>('order', ORDERS, isTimeBucket(groupBy[0]) ? 'key' : 'cost');
  const dir = params.readEnum<Direction>('dir', ['asc', 'desc'], order === 'key' ? 'asc' : 'desc');
  const limit = params.readLimit();
  const filter = params.readFilter();
  const pricing = params.readText('pricing') ?? 'stamped';
  if (pricing.includes(' ')) params.reportIssue('pricing', 'contains a space: a "+" must be percent-encoded as %2B');
  else if (!VERSION.test(pricing)) params.reportIssue('pricing', 'must be stamped, current or a known pricing version');
  const fingerprint = sha256Hex(canonicalJson({ filter, group_by: groupBy, order, dir, pricing })).slice(0, 32);

  const cursor = params.readText('cursor');
  const page =
    cursor === null
      ? { window: params.readWindow(now), after: null }
      : resumePage(params, cursor, fingerprint, buildSortTerms(groupBy, order, dir));
  if (page === null || params.issues.length > 0) return err(params.issues);
  const { window, after } = page;
  return ok({
    query: { window, filter, group_by: groupBy, order, dir, limit, after },
    pricing,
    fingerprint,
    warnings: params.warnings,
  });
}

/** `GET /analytics/savings`. `baseline` is returned as given or null; the caller resolves aliases and prices. */
export function parseSavingsQuery(
  raw: RawQuery,
  now: number,
): Result<
  { readonly query: Omit<SavingsQuery, 'baseline'>; readonly baseline: string | null; readonly warnings: string[] },
  readonly Issue[]
> {
  const params = new Parameters(raw, SAVINGS_PARAMETERS);
  const query = { window: params.readWindow(now), filter: params.readFilter() };
  const baseline = params.readMatching('baseline', FILTERS.model);
  if (params.issues.length > 0) return err(params.issues);
  return ok({ query, baseline, warnings: params.warnings });
}

/** `GET /analytics/routing` and `/analytics/reliability`: at most 31 days unless `from=all`. */
export function parseTraceQuery(
  raw: RawQuery,
  now: number,
): Result<{ readonly query: TraceQuery; readonly warnings: string[] }, readonly Issue[]> {
  const params = new Parameters(raw, TRACE_PARAMETERS);
  const window = params.readWindow(now);
  const filter = {
    session: params.readMatching('session', FILTERS.session),
    model: params.readMatching('model', FILTERS.model),
    provider: params.readMatching('provider', FILTERS.provider),
  };
  if (params.readText('from') !== 'all' && window.to - window.from > MAX_TRACE_WINDOW_MS) {
    params.reportIssue('from', 'must be at most 31 days before `to`, or `all`');
  }
  if (params.issues.length > 0) return err(params.issues);
  return ok({ query: { window, filter }, warnings: params.warnings });
}

/** `GET /analytics/ledger`: any window, as it is read in slices. */
export function parseLedgerQuery(
  raw: RawQuery,
  now: number,
): Result<{ readonly query: LedgerQuery; readonly warnings: string[] }, readonly Issue[]> {
  const params = new Parameters(raw, ['from', 'to', 'provider']);
  const query = { window: params.readWindow(now), provider: params.readMatching('provider', FILTERS.provider) };
  if (params.issues.length > 0) return err(params.issues);
  return ok({ query, warnings: params.warnings });
}

/** `GET /analytics/verified`: any window. */
export function parseVerifiedQuery(
  raw: RawQuery,
  now: number,
): Result<{ readonly query: VerifiedQuery; readonly warnings: string[] }, readonly Issue[]> {
  const params = new Parameters(raw, ['from', 'to', 'group_by']);
  const query = { window: params.readWindow(now), group_by: params.readEnum('group_by', VERIFIED_GROUPS, 'model') };
  if (params.issues.length > 0) return err(params.issues);
  return ok({ query, warnings: params.warnings });
}

/** The window of `POST /analytics/what-if`: any length. */
export function parseWindow(
  given: { readonly from?: string | undefined; readonly to?: string | undefined },
  now: number,
): Result<TimeWindow, readonly Issue[]> {
  const params = new Parameters(given, ['from', 'to']);
  const window = params.readWindow(now);
  if (params.issues.length > 0) return err(params.issues);
  return ok(window);
}

/** The cursor that continues `request` after a row. */
export function encodeCursor(request: CostRequest, after: SortKey): string {
  const { from, to } = request.query.window;
  return Buffer.from(JSON.stringify({ w: [from, to], h: request.fingerprint, k: after })).toString('base64url');
}

function resumePage(
  params: Parameters,
  cursor: string,
  fingerprint: string,
  terms: readonly SortTerm[],
): { window: TimeWindow; after: SortKey } | null {
  const page = decodeCursor(cursor);
  const from = params.readFrom();
  const to = params.readTime('to');
  if (params.issues.length > 0) return null;
  if (!page || !fromSortKey(terms, page.key)) {
    return params.reportIssue('cursor', 'is not a cursor of this query');
  }
  if (page.fingerprint !== fingerprint) return params.reportIssue('cursor', 'belongs to a query with other parameters');
  if ((from !== null && from !== page.window.from) || (to !== null && to !== page.window.to)) {
    return params.reportIssue('cursor', 'belongs to another window; leave out `from` and `to`');
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
