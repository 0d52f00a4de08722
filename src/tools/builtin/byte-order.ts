// Order of names as their UTF-8 bytes, the order of every listing (09 §13).

/** Compares like the UTF-8 bytes would. */
export function byteOrder(a: string, b: string): number {
  // UTF-16 order differs from byte order only where surrogates meet the characters behind them.
  if (/[\ud800-\uffff]/.test(a) && /[\ud800-\uffff]/.test(b)) return Buffer.compare(Buffer.from(a), Buffer.from(b));
  return a < b ? -1 : a > b ? 1 : 0;
}

/** A text whose plain order is that of the given one's UTF-8 bytes: for sorting very many. */
export function byteKey(text: string): string {
  return /[\u0080-\uffff]/.test(text) ? Buffer.from(text).toString('latin1') : text;
}
