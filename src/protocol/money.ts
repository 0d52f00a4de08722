// Money: branded bigint picodollars inside, exact decimal strings outside (01 §1.3, §11.2). The only place that knows the scale.

declare const brand: unique symbol;
/** Picodollars: 1 USD = 10^12. */
export type Pusd = bigint & { readonly [brand]: 'Pusd' };
/** Decimal string of US dollars, no exponent, no trailing fractional zeros. */
export type Usd = string;

export const USD_PATTERN = /^(0|[1-9]\d*)(\.\d{0,11}[1-9])?$/;
/** As `USD_PATTERN` with an optional sign: only savings may be negative. */
export const SIGNED_USD_PATTERN = /^-?(0|[1-9]\d*)(\.\d{0,11}[1-9])?$/;
/** A limit that a caller may set, in any spelling: below a million, at most 6 fraction digits. More than 0 is asked beside it. */
export const USD_LIMIT_PATTERN = /^(0|[1-9]\d{0,5})(\.\d{1,6})?$/;
export const ZERO_PUSD = 0n as Pusd;

/** Fraction digits of a picodollar in US dollars. */
export const USD_DIGITS = 12;
const PARSEABLE = /^(-?)(\d+)(?:\.(\d{1,12}))?$/;

/** Parses a plain decimal with at most 12 fraction digits. Throws `RangeError` for anything else. */
export function toPusd(usd: string): Pusd {
  const parts = PARSEABLE.exec(usd);
  if (!parts) throw new RangeError(`not a decimal amount of US dollars: ${JSON.stringify(usd)}`);
  const [, sign, whole, fraction = ''] = parts;
  const value = BigInt(whole + fraction.padEnd(USD_DIGITS, '0'));
  return (sign ? -value : value) as Pusd;
}

/** An amount that may be absent, such as a limit. */
export function toPusdOrNull(usd: Usd | null): Pusd | null {
  if (usd === null) return null;
  return toPusd(usd);
}

/** The point moved 12 places, trailing zeros removed (08 §4.1). */
export function fromPusd(pusd: bigint): Usd {
  if (pusd === 0n) return '0';
  const negative = pusd < 0n;
  const digits = (negative ? -pusd : pusd).toString().padStart(USD_DIGITS + 1, '0');
  const whole = digits.slice(0, -USD_DIGITS);
  const fraction = digits.slice(-USD_DIGITS).replace(/0+$/, '');
  return `${negative ? '-' : ''}${whole}${fraction ? `.${fraction}` : ''}`;
}

export function fromPusdOrNull(pusd: bigint | null): Usd | null {
  if (pusd === null) return null;
  return fromPusd(pusd);
}

/** Exact sum. */
export function sumPusd(amounts: Iterable<bigint>): Pusd {
  let total = 0n;
  for (const amount of amounts) total += amount;
  return total as Pusd;
}

/** A limit has at most six decimals. */
const LIMIT_STEP = 1_000_000n;

/** The smallest limit that covers an amount (14 §3). */
export function limitFor(amount: bigint): Usd {
  return fromPusd(((amount + LIMIT_STEP - 1n) / LIMIT_STEP) * LIMIT_STEP);
}
