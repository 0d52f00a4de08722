// The thread that counts tokens: a tokenizer takes 0.2 s to load, and up to 0.1 s for 100 kB (14 §2).
import { parentPort } from 'node:worker_threads';
import { countTokens } from 'gpt-tokenizer/encoding/o200k_base';
import type { TokenizerName } from '#protocol/model.ts';

export interface CountQuestion {
  readonly id: number;
  readonly name: TokenizerName;
  readonly texts: readonly string[];
}

export interface CountAnswer {
  readonly id: number;
  readonly tokens: number;
}

/** The time for a run of equal letters grows with the square of its length: 5 s for 100 kB, 20 ms in slices. */
const SLICE = 512;
/** A cut may go through what would have been one token. */
const CUT_TOKENS = 1;
/** Names of special tokens in a text are text. */
const AS_TEXT = { allowedSpecial: new Set<string>(), disallowedSpecial: new Set<string>() };

const COUNTERS: Readonly<Record<TokenizerName, (text: string) => number>> = {
  o200k: (text) => countTokens(text, AS_TEXT),
};

parentPort?.on('message', ({ id, name, texts }: CountQuestion) => {
  const tokens = texts.reduce((sum, text) => sum + countSlices(text, COUNTERS[name]), 0);
  parentPort?.postMessage({ id, tokens } satisfies CountAnswer);
});

function countSlices(text: string, count: (slice: string) => number): number {
  let tokens = 0;
  for (let from = 0; from < text.length; ) {
    let to = Math.min(from + SLICE, text.length);
    // Not within a character.
    if (to < text.length && (text.charCodeAt(to) & 0xfc00) === 0xdc00) to += 1;
    tokens += count(text.slice(from, to));
    if (to < text.length) tokens += CUT_TOKENS;
    from = to;
  }
  return tokens;
}
