// A prompt with its texts in place of functions, as one thread hands it to another (14 §2).
import type { Prompt, PromptPart } from './prompt.ts';

/** A prompt as another thread hands it over. */
export interface ReadPrompt extends Omit<Prompt, 'head' | 'messages'> {
  readonly head: readonly ReadPart[];
  readonly messages: readonly ReadPart[];
}

type ReadPart = Omit<PromptPart, 'texts'> & {
  readonly texts: readonly string[] | null;
};

/** Of all texts that are handed over: beyond them a tokenizer would not count in time. */
const MAX_TEXTS = 50_000;
const MAX_TEXT_LENGTH = 8_388_608;

/**
 * The same with the texts themselves, those of the last messages first, within bounds.
 * @param withTexts whether texts are counted at all
 */
export function readPrompt(prompt: Prompt, withTexts: boolean): ReadPrompt {
  let [texts, length] = withTexts ? [MAX_TEXTS, MAX_TEXT_LENGTH] : [0, 0];
  const read = (part: PromptPart): ReadPart => {
    const found = part.bytes > length || texts <= 0 ? null : (part.texts?.() ?? null);
    if (found === null || found.length > texts) return { ...part, texts: null };
    texts -= found.length;
    length -= part.bytes;
    return { ...part, texts: found };
  };
  const messages = prompt.messages.toReversed().map(read).toReversed();
  return { ...prompt, messages, head: prompt.head.map(read) };
}

/** The prompt that `readPrompt` read. */
export function promptFrom(read: ReadPrompt): Prompt {
  const part = ({ texts, ...rest }: ReadPart) => ({
    ...rest,
    texts: texts === null ? null : () => texts,
  });
  return { ...read, head: read.head.map(part), messages: read.messages.map(part) };
}
