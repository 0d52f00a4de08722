// Times and lengths of time as people read them.

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** `now`, `12s ago`, `3m ago`, `in 40s`, and the day when it was longer than a week. Milliseconds since the epoch. */
export function relativeTime(at: number, now: number): string {
  const length = Math.abs(now - at);
  if (length < SECOND) return 'now';
  if (length > 7 * DAY) {
    return new Date(at).toLocaleDateString(undefined, { day: 'numeric', month: 'short', year: 'numeric' });
  }
  const text = largestUnit(length);
  return at > now ? `in ${text}` : `${text} ago`;
}

/** With seconds and the zone: what stands behind a relative time. */
export function absoluteTime(at: number): string {
  return new Date(at).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'long' });
}

/** `0.4s`, `12s`, `3m 05s`, `2h 10m`: lengths that tick keep their width. */
export function duration(ms: number): string {
  if (ms < 10 * SECOND) return `${(Math.max(0, ms) / SECOND).toFixed(1)}s`;
  if (ms < MINUTE) return `${Math.floor(ms / SECOND)}s`;
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)}m ${pad(Math.floor((ms % MINUTE) / SECOND))}s`;
  return `${Math.floor(ms / HOUR)}h ${pad(Math.floor((ms % HOUR) / MINUTE))}m`;
}

function largestUnit(ms: number): string {
  if (ms < MINUTE) return `${Math.floor(ms / SECOND)}s`;
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)}m`;
  if (ms < DAY) return `${Math.floor(ms / HOUR)}h`;
  return `${Math.floor(ms / DAY)}d`;
}

function pad(n: number): string {
  return String(n).padStart(2, '0');
}
