// One query string of `/analytics/*`: reads each parameter and collects what is wrong with it (07 §3).
import { type CallFilter, DIMENSIONS, type Dimension, type TimeWindow } from '#protocol/analytics.ts';
import type { Issue } from '#protocol/errors.ts';
import { isTimeBucket } from './rollup.ts';

/** A query string as fastify gives it: a repeated parameter is an array. */
export type RawQuery = Readonly<Record<string, unknown>>;

const ID = /^[A-Za-z0-9_-]{1,200}$/;
/** '' asks for calls without a key. */
const CALLER = /^[A-Za-z0-9_-]{0,200}$/;
const NAME = /^[A-Za-z0-9_.:/@~-]{1,200}$/;
/** Form of each filter value; what is well formed and matches nothing is no error. */
export const FILTERS = {
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

export class Parameters {
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

  oneOf<T extends string>(name: string, values: readonly T[], fallback: T): T {
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
