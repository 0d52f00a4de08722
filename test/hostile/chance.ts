// Chance with a seed, and texts made worse by it: cut, repeated, joined, wrapped and littered.

export interface Chance {
  /** From 0 to below 1. */
  random(): number;
  /** A whole number from 0 to below `n`. */
  below(n: number): number;
  pick<T>(items: readonly T[]): T;
  /** The text, changed once; `other` lends pieces. */
  changed(text: string, other: string): string;
}

const PIECES = [
  '- ',
  '? ',
  '[',
  ']',
  '{',
  '}',
  '{"a":',
  '"',
  "'",
  ':',
  ',',
  '&a ',
  '*a',
  '!!x ',
  '|\n',
  '#',
  '\n',
  '\t',
  '---\n',
  '\\',
  '\0',
  '(a+)+',
  '$ref',
  'null',
  '1e9',
  'é',
  '\ud800',
  '%TAG ! x\n',
  '<<: ',
];

export function nest(open: string, inner: string, close: string, depth: number): string {
  return open.repeat(depth) + inner + close.repeat(depth);
}

/** The same seed gives the same choices. */
export function createChance(seed: number): Chance {
  const random = generator(seed);
  const below = (n: number) => Math.floor(random() * n);
  const pick = <T>(items: readonly T[]): T => items[below(items.length)]!;
  const part = (text: string) => {
    const start = below(text.length);
    return text.slice(start, start + 1 + below(pick([10, 1000, 100_000])));
  };

  function changed(text: string, other: string): string {
    switch (below(7)) {
      case 0:
        return text.slice(0, below(text.length + 1));
      case 1:
        return text + part(text).repeat(1 + below(50));
      case 2:
        return part(other) + text;
      case 3:
        return nest(
          pick(['[', '{"a":', '- ', '{a: ', '(']),
          text,
          pick([']', '}', '', ')']),
          1 + below(pick([5, 150, 20_000])),
        );
      case 4:
        return pick(PIECES).repeat(1 + below(pick([10, 1000, 50_000]))) + text;
      case 5: {
        const at = below(text.length + 1);
        return text.slice(0, at) + pick(PIECES) + text.slice(at + below(3));
      }
      default:
        return `{"a":${text},"b":${part(other)}}`;
    }
  }

  return { random, below, pick, changed };
}

/** Numbers from 0 to below 1 (mulberry32). */
function generator(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
}
