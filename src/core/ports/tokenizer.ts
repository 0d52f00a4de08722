// Counts the tokens of texts with a model's own tokenizer, off the event loop (14 §2).
import type { TokenizerName } from '#protocol/model.ts';

export interface Tokenizer {
  /** Tokens of all texts, never fewer than the tokenizer finds; null where they cannot be counted in time. Never rejects. */
  count(name: TokenizerName, texts: readonly string[]): Promise<number | null>;
}
