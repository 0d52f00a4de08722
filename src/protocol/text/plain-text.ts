// Text that every store, terminal and provider takes: without NUL, which some refuse and some end a text at (05 §3.2), or on one line.

/** NUL is U+FFFD. */
export function plainText(text: string): string {
  return text.replaceAll('\0', '\uFFFD');
}

/** A stranger's name or words on one line of at most `most` characters; what is cut off leaves three dots. */
export function shortenText(text: string, most: number): string {
  const line = text.slice(0, most).replaceAll(/\s+/g, ' ');
  return text.length > most ? `${line}...` : line;
}
