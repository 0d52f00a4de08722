// The order of names and ids in lists.

/** Orders two texts by their UTF-16 code units, for `sort`. */
export function compareText(a: string, b: string): number {
  if (a < b) return -1;
  if (a > b) return 1;
  return 0;
}
