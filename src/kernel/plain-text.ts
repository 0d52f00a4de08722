// Text that every store, terminal and provider takes: NUL, which some refuse and some end a text at, is U+FFFD (05 §3.2).

export function plainText(text: string): string {
  return text.replaceAll('\0', '\uFFFD');
}
