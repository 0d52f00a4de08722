// Points in time as people write them.
import { isoTime, systemClock } from '#protocol/clock.ts';

const UNIT_MS: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };

/**
 * `all`, an age such as `90m`, `24h`, `7d` or `2w`, a day (`2026-01-31`, from midnight UTC) or an RFC 3339 time, as the
 * server wants it. Null for anything else.
 */
export function parseSinceTime(text: string): string | null {
  if (text === 'all') return text;
  const [, count, unit] = /^(\d{1,6})([mhdw])$/.exec(text) ?? [];
  if (count !== undefined) return isoTime(Math.max(0, systemClock.now() - Number(count) * UNIT_MS[unit!]!));
  const time = /^\d{4}-\d\d-\d\d$/.test(text) ? `${text}T00:00:00Z` : text;
  const known = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/i.test(time);
  if (known && !Number.isNaN(Date.parse(time))) return time;
  return null;
}
