// Changes of a body that leave every other byte where it was: at most three (19 §2.2).

/** Bytes `from` to `to`, exclusive, become `text`; both the same is an insertion. */
export interface Splice {
  readonly from: number;
  readonly to: number;
  readonly text: string;
}

/** The body in pieces, the untouched ones without a copy. */
export function spliced(bytes: Buffer, splices: readonly Splice[]): readonly Buffer[] {
  const pieces: Buffer[] = [];
  let at = 0;
  for (const { from, to, text } of splices.toSorted((a, b) => a.from - b.from)) {
    if (from > at) pieces.push(bytes.subarray(at, from));
    pieces.push(Buffer.from(text));
    at = to;
  }
  pieces.push(bytes.subarray(at));
  return pieces;
}
