// Amounts of US dollars as people read them, from the server's decimal strings and never by way of a float (01 §1.3).
import { sumPusd, toPusd, type Usd } from '#protocol/money.ts';

const PUSD_DIGITS = 12;
const SHORT_PLACES = 4;
/** From here on the cents are enough. */
const LARGE = toPusd('100');
const LARGE_PLACES = 2;

/** Every digit: `$0.0024416`, at least two after the point. */
export function exactUsd(usd: Usd): string {
  const { sign, whole, fraction } = partsOf(toPusd(usd), PUSD_DIGITS);
  return `${sign}$${whole}.${fraction.replace(/0+$/, '').padEnd(2, '0')}`;
}

/** Four digits after the point, two from $100 on, rounded half up; `<$0.0001` for what would read as nothing. */
export function shortUsd(usd: Usd): string {
  const amount = toPusd(usd);
  if (amount === 0n) return '$0.00';
  const magnitude = amount < 0n ? -amount : amount;
  const places = magnitude >= LARGE ? LARGE_PLACES : SHORT_PLACES;
  const { sign, whole, fraction } = partsOf(amount, places);
  if (whole === '0' && /^0+$/.test(fraction)) return `${sign}<$0.0001`;
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
export function shareOf(part: Usd, limit: Usd): number {
  const whole = toPusd(limit);
  if (whole <= 0n) return 1;
  const share = Number((toPusd(part) * 1000n) / whole) / 1000;
  return Math.max(0, Math.min(1, share));
}

function partsOf(pusd: bigint, places: number): { sign: string; whole: string; fraction: string } {
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
