// Reads what is too large to be parsed on the event loop (19 §2.2).
import type { ClientWire } from '#protocol/client-wire.ts';
import type { TokenizerName } from '#protocol/model.ts';
import type { Result } from '#protocol/result.ts';

interface ParsedRequest<Facts> {
  readonly facts: Result<Facts, string>;
  /** The same bytes; those that were handed over are empty. */
  readonly bytes: Buffer;
}

/**
 * @typeParam Facts what is read of a client's request
 * @typeParam Prompt its parts
 */
export interface BodyParser<Facts, Prompt> {
  /** Bytes above which a body is handed over. */
  readonly above: number;
  /** Takes the bytes over. Rejects when the parser fails. */
  readRequest(wire: ClientWire, bytes: Buffer): Promise<ParsedRequest<Facts>>;
  /** The parts of a request's prompt. Takes the bytes over. Rejects when the parser fails. */
  readPrompt(
    bytes: Buffer,
    facts: Facts,
    withTexts: boolean,
  ): Promise<{ readonly prompt: Prompt; readonly bytes: Buffer }>;
  /** A body of the server's own API. Takes the bytes over. Error: the end of a sentence. Rejects when the parser fails. */
  readBody(bytes: Buffer): Promise<Result<unknown, string>>;
}

// Counts the tokens of texts with a model's own tokenizer, off the event loop (14 §2).

export interface Tokenizer {
  /** Tokens of all texts, never fewer than the tokenizer finds; null where they cannot be counted in time. Never rejects. */
  count(name: TokenizerName, texts: readonly string[]): Promise<number | null>;
}
