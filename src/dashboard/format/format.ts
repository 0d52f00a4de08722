// Amounts of US dollars as people read them, from the server's decimal strings and never by way of a float (01 §1.3).

import type { Session } from '#client/client.ts';
import { type Waiting, waitingEnds, wordsFor } from '#client/stream-items.ts';
import { sumPusd, toPusd, type Usd } from '#protocol/money.ts';

const PUSD_DIGITS = 12;
const SHORT_PLACES = 4;
/** From here on the cents are enough. */
const LARGE = toPusd('100');
const LARGE_PLACES = 2;
const CENT = toPusd('0.01');

/** Every digit: `$0.0024416`, at least two after the point. */
export function exactUsd(usd: Usd): string {
  const { sign, whole, fraction } = splitAmount(toPusd(usd), PUSD_DIGITS);
  return `${sign}$${whole}.${fraction.replace(/0+$/, '').padEnd(2, '0')}`;
}

/** Four digits after the point, two from $100 on, rounded half up; `<$0.0001` for what would read as nothing. */
export function shortUsd(usd: Usd): string {
  const amount = toPusd(usd);
  if (amount === 0n) return '$0.00';
  const places = countPlaces(amount);
  const { sign, whole, fraction } = splitAmount(amount, places);
  if (whole === '0' && /^0+$/.test(fraction)) return `${sign}<$0.0001`;
  return `${sign}$${whole}.${fraction}`;
}

/** Two digits after the point, rounded half up; `<$0.01` for what is less than a cent. */
export function centsUsd(usd: Usd): string {
  const amount = toPusd(usd);
  const magnitude = amount < 0n ? -amount : amount;
  const { sign, whole, fraction } = splitAmount(amount, LARGE_PLACES);
  if (amount !== 0n && magnitude < CENT) return `${sign}<$0.01`;
  return `${sign}$${whole}.${fraction}`;
}

/** A mark of an axis, with as many digits after the point as the mark of them all that needs most: none or two at least. */
export function axisUsd(value: number, all: readonly number[]): string {
  const digits = (mark: number) =>
    Number(mark.toPrecision(3)).toFixed(PUSD_DIGITS).replace(/0+$/, '').split('.')[1]?.length ?? 0;
  const most = Math.max(...all.map(digits));
  return `$${value.toFixed(most === 0 ? 0 : Math.max(2, most))}`;
}

/** Exact sum of amounts as the server sends them. */
export function addUsd(...amounts: readonly Usd[]): bigint {
  return sumPusd(amounts.map(toPusd));
}

/** How much of `limit` is used, 0 to 1, for the length of a bar. */
export function computeShare(part: Usd, limit: Usd): number {
  const whole = toPusd(limit);
  if (whole <= 0n) return 1;
  const share = Number((toPusd(part) * 1000n) / whole) / 1000;
  return Math.max(0, Math.min(1, share));
}

function countPlaces(amount: bigint): number {
  if (amount >= LARGE || amount <= -LARGE) return LARGE_PLACES;
  return SHORT_PLACES;
}

function splitAmount(pusd: bigint, places: number): { sign: string; whole: string; fraction: string } {
  const unit = 10n ** BigInt(PUSD_DIGITS - places);
  const magnitude = pusd < 0n ? -pusd : pusd;
  const rounded = (magnitude + unit / 2n) / unit;
  const digits = rounded.toString().padStart(places + 1, '0');
  return {
    sign: pusd < 0n ? '−' : '',
    whole: digits.slice(0, -places).replace(/\B(?=(\d{3})+$)/g, ','),
    fraction: digits.slice(-places),
  };
}

// Counts as people read them.

/** `1,234`. */
export function formatNumber(n: number): string {
  return String(n).replace(/\B(?=(\d{3})+$)/g, ',');
}

/** A model id without its provider: `anthropic:claude-haiku-4-5` → `claude-haiku-4-5`. */
export function modelName(id: string): string {
  return id.slice(id.indexOf(':') + 1);
}

/** The last part of a path. */
export function baseName(path: string): string {
  return path.replace(/\/+$/, '').split('/').at(-1) || path;
}

/** `200+` where there are more than were counted. */
export function formatAtLeast(n: number, hasMore: boolean): string {
  if (hasMore) return `${formatNumber(n)}+`;
  return formatNumber(n);
}

/** What a field holds; null where nothing was entered or chosen. */
export function emptyToNull<T extends string>(text: T): Exclude<T, ''> | null {
  if (text === '') return null;
  return text as Exclude<T, ''>;
}

export function formatCount(n: number, one: string, many = `${one}s`): string {
  return `${formatNumber(n)} ${n === 1 ? one : many}`;
}

// Invisible characters, and those that move others: they must not hide what a person approves.

/** Control and format characters by their code; lines, tabs and the joiner within an emoji stay. */
export function visible(text: string): string {
  return text.replace(
    /(?![\n\t\u200d])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu,
    (char) => `\\u{${char.codePointAt(0)!.toString(16)}}`,
  );
}

// The input of a tool call on one line.

const LONGEST = 160;

/** Its values; a value that is not a string is preceded by its name. An omission is marked. */
export function summarizeInput(input: Readonly<Record<string, unknown>>): string {
  // A value may have megabytes: one character more than is shown marks that it continues.
  const parts = Object.entries(input).map(([name, value]) =>
    (typeof value === 'string' ? value : `${name}: ${JSON.stringify(value)}`).slice(0, LONGEST + 1),
  );
  const line = parts.join('  ').replace(/\s+/g, ' ');
  if (line.length > LONGEST) return `${line.slice(0, LONGEST - 1)}…`;
  return line;
}

// What an open turn waits for, in one line (20 §6).

/** What only a person ends. */
export function needsPerson({ kind }: Waiting): boolean {
  return kind === 'approval' || kind === 'budget';
}

/** What a session is doing, in a word: how it ended or failed, and what only a person ends. */
export function describeState({ status, disposition, failure, waiting_on }: Session): string {
  if (status === 'ended') return disposition === null || disposition === 'completed' ? status : disposition;
  if (failure !== null) return 'failed';
  const waits = waitingEnds(waiting_on);
  if (waits.some(({ kind }) => kind === 'budget')) return 'waiting for budget';
  if (waits.length > 0 && waits.every(({ kind }) => kind === 'approval')) return 'waiting for approval';
  return status;
}

/** Whether it goes on only when a person does something. */
export function isWaitingForPerson({ status, waiting_on }: Pick<Session, 'status' | 'waiting_on'>): boolean {
  if (status === 'interrupted') return true;
  const ends = waitingEnds(waiting_on);
  return ends.length > 0 && ends.every(needsPerson);
}

/** The end of each chain, people's matters first: `an approval, a model (2)`. Empty when nothing is waited for. */
export function describeWaiting(waiting: Session['waiting_on']): string {
  const counts = new Map<string, number>();
  for (const one of waitingEnds(waiting).toSorted((a, b) => Number(needsPerson(b)) - Number(needsPerson(a)))) {
    counts.set(one.kind, (counts.get(one.kind) ?? 0) + 1);
  }
  return [...counts]
    .map(([kind, n]) => {
      const words = wordsFor(kind as Waiting['kind']);
      if (n === 1) return words;
      return `${words} (${n})`;
    })
    .join(', ');
}

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
  if (at > now) return `in ${text}`;
  return `${text} ago`;
}

/** With seconds and the zone: the tooltip of a relative time. */
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
