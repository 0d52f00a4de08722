// Text that every store, terminal, provider and reader of JSON takes (05 §3.2), or on one line.

/** NUL, which some refuse and some end a text at, is U+FFFD; a lone surrogate, which no UTF-8 has, is too. */
export function plainText(text: string): string {
  const whole = text.replaceAll('\0', '\uFFFD');
  // The plain search is much faster, and nearly every text ends here.
  return /[\ud800-\udfff]/.test(whole) ? whole.replaceAll(/\p{Cs}/gu, '\uFFFD') : whole;
}

/** The text on one line: each run of white space is one space. */
export function joinLines(text: string): string {
  return text.replaceAll(/\s+/g, ' ');
}

/** The same without control characters and without white space at the ends. */
export function flattenText(text: string): string {
  return text.replaceAll(/[\s\p{Cc}]+/gu, ' ').trim();
}

/** A stranger's name or words on one line of at most `most` characters; what is cut off leaves three dots. */
export function shortenText(text: string, most: number): string {
  const line = joinLines(text.slice(0, most));
  if (text.length > most) return `${line}...`;
  return line;
}
