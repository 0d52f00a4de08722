// Amounts of money as people write them.

/**
 * The cents of an amount such as `12`, `12.5` or `-0.05`. Throws RangeError for anything else.
 * @param {string} amount
 */
export function cents(amount) {
  let total = 0;
  let digits = 0;
  let decimals = -1;
  const start = amount[0] === '-' ? 1 : 0;
  for (const letter of amount.slice(start)) {
    if (letter === '.' && decimals < 0 && digits > 0) {
      decimals = 0;
      continue;
    }
    if (letter < '0' || letter > '9' || decimals === 2) throw new RangeError(`no amount: ${amount}`);
    total = total * 10 + Number(letter);
    digits += 1;
    if (decimals >= 0) decimals += 1;
  }
  if (digits === 0 || decimals === 0) throw new RangeError(`no amount: ${amount}`);
  if (decimals < 2) total *= decimals === 1 ? 10 : 100;
  return start === 1 ? -total : total;
}
