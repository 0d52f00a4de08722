// The parts of a model call's prompt, and the tokens that its provider can count for them at most (14 §2).
import { createHash } from 'node:crypto';
import type { Capabilities } from '#protocol/model.ts';

export interface PromptPart {
  /** Equal keys mean equal content. A part that occurs twice in the head has two keys. */
  readonly key: string;
  /** UTF-8 bytes of its JSON, without the data of its images. */
  readonly bytes: number;
  readonly images: number;
  /** Only the model's window bounds it: a document, which is billed by page, or what the provider keeps. */
  readonly unbounded: boolean;
  /** Every text that the model reads of it; null where only its bytes are a bound. */
  readonly texts: (() => readonly string[]) | null;
}

export interface Prompt {
  /** What changes how a provider reads all parts: nothing is known of a prompt with other settings. */
  readonly settings: string;
  /** System texts, tools and schemas. */
  readonly head: readonly PromptPart[];
  readonly messages: readonly PromptPart[];
  /** Bytes outside of all parts. */
  readonly frame_bytes: number;
  /** Bytes of parts that their keys leave out, and images outside of all parts: they count beside what is known, too. */
  readonly unkeyed: { readonly bytes: number; readonly images: number };
  /** The provider adds to the prompt what no length of the request bounds. */
  readonly unbounded: boolean;
}

/** Input tokens that a provider reported for a prompt of this model that held these parts, and perhaps more. */
export interface KnownPrompt {
  readonly tokens: number;
  readonly head: ReadonlySet<string>;
  /** The first messages. */
  readonly messages: number;
}

/** What a provider can count beside what is known of a prompt. */
export interface NewText {
  readonly known: number;
  readonly parts: readonly PromptPart[];
  readonly bytes: number;
  readonly images: number;
  readonly unbounded: boolean;
}

/** Parts that meet at another place can be cut into tokens another way there. */
const SEAM_TOKENS = 16;

/** What of the prompt is new; `known` null = all of it. */
export function selectNewText(prompt: Prompt, known: KnownPrompt | null): NewText {
  const parts =
    known === null
      ? [...prompt.head, ...prompt.messages]
      : [...prompt.head.filter(({ key }) => !known.head.has(key)), ...prompt.messages.slice(known.messages)];
  let bytes = known === null ? prompt.frame_bytes : prompt.unkeyed.bytes;
  let { images } = prompt.unkeyed;
  let { unbounded } = prompt;
  for (const part of parts) {
    bytes += part.bytes;
    images += part.images;
    unbounded ||= part.unbounded;
  }
  return { known: known === null ? 0 : known.tokens + SEAM_TOKENS, parts, bytes, images, unbounded };
}

/**
 * Tokens that a provider can count at most: every token of a tokenizer covers one byte or more. Beyond the window a
 * provider refuses, and bills nothing.
 * @param overhead tokens that the provider adds unasked
 */
export function computeTokenBound(
  text: Omit<NewText, 'parts'>,
  model: Pick<Capabilities, 'max_context_tokens' | 'max_image_tokens'>,
  overhead: number,
): number {
  if (text.unbounded) return model.max_context_tokens;
  return Math.min(text.known + text.bytes + text.images * model.max_image_tokens + overhead, model.max_context_tokens);
}

/** What identifies the settings, and the messages up to each of these counts, for one model. */
export function hashPromptChains(
  modelId: string,
  { settings, messages }: Pick<Prompt, 'settings' | 'messages'>,
  counts: ReadonlySet<number>,
): ReadonlyMap<number, string> {
  const chains = new Map<number, string>();
  const most = Math.min(Math.max(0, ...counts), messages.length);
  const hash = createHash('sha1').update(`${modelId}\n${settings}\n`);
  for (let count = 0; ; count++) {
    if (counts.has(count)) chains.set(count, hash.copy().digest('base64'));
    if (count >= most) return chains;
    hash.update(messages[count]!.key).update('\n');
  }
}

/** Strings and numbers of a value, keys included: all that a provider can take from it into a prompt. */
export function collectTexts(value: unknown): readonly string[] {
  const texts: string[] = [];
  const open: unknown[] = [value];
  while (open.length > 0) {
    const node = open.pop();
    if (typeof node === 'object' && node !== null) {
      if (!Array.isArray(node)) texts.push(...Object.keys(node));
      for (const inner of Object.values(node)) open.push(inner);
    } else if (node != null) texts.push(String(node));
  }
  return texts;
}

// A prompt with its texts in place of functions, as one thread hands it to another (14 §2).

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
  const readPart = (part: PromptPart): ReadPart => {
    const found = part.bytes > length || texts <= 0 ? null : (part.texts?.() ?? null);
    if (found === null || found.length > texts) return { ...part, texts: null };
    texts -= found.length;
    length -= part.bytes;
    return { ...part, texts: found };
  };
  const messages = prompt.messages.toReversed().map(readPart).toReversed();
  return { ...prompt, messages, head: prompt.head.map(readPart) };
}

/** The prompt that `readPrompt` read. */
export function restorePrompt(read: ReadPrompt): Prompt {
  const restorePart = ({ texts, ...rest }: ReadPart) => ({
    ...rest,
    texts: texts === null ? null : () => texts,
  });
  return { ...read, head: read.head.map(restorePart), messages: read.messages.map(restorePart) };
}
