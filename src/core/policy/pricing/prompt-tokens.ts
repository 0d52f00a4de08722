// The parts of a model call's prompt, and the tokens that its provider can count for them at most (14 §2).
import { createHash } from 'node:crypto';
import type { Capabilities } from '#protocol/model.ts';

export interface PromptPart {
  /** Equal keys mean equal content. A part that occurs twice in the head has two keys. */
  readonly key: string;
  /** UTF-8 bytes of its JSON, without the data of its images. */
  readonly bytes: number;
  readonly images: number;
  /** Bounded by the model's window only: a document, which is billed by page, or content that the provider stores. */
  readonly unbounded: boolean;
  /** Every text of the part that the model reads; null where only its bytes bound it. */
  readonly texts: (() => readonly string[]) | null;
}

export interface Prompt {
  /** Settings that change how a provider reads all parts: known counts do not apply to other settings. */
  readonly settings: string;
  /** System texts, tools and schemas. */
  readonly head: readonly PromptPart[];
  readonly messages: readonly PromptPart[];
  /** Bytes outside of all parts. */
  readonly frame_bytes: number;
  /** Bytes of parts that their keys omit, and images outside of all parts: they are added to known counts too. */
  readonly unkeyed: { readonly bytes: number; readonly images: number };
  /** The provider adds content to the prompt that the size of the request does not bound. */
  readonly unbounded: boolean;
}

/** Input tokens that a provider reported for a prompt of this model that held these parts, and perhaps more. */
export interface KnownPrompt {
  readonly tokens: number;
  readonly head: ReadonlySet<string>;
  /** The first messages. */
  readonly messages: number;
}

/** The part of a prompt whose tokens are not known yet. */
export interface NewText {
  readonly known: number;
  readonly parts: readonly PromptPart[];
  /** How many of the parts are messages. */
  readonly messages: number;
  readonly bytes: number;
  readonly images: number;
  readonly unbounded: boolean;
}

/** What a provider writes around each message: its role, its borders. */
const MESSAGE_TOKENS = 16;
/** Extra tokens per boundary between known and new parts, where tokenization may differ. */
const SEAM_TOKENS = 16;

/** The new part of the prompt; all of it where `known` is null. */
export function selectNewText(prompt: Prompt, known: KnownPrompt | null): NewText {
  if (known === null) {
    const { head, messages } = prompt;
    const start = { known: 0, bytes: prompt.frame_bytes, messages: messages.length };
    return sumParts(prompt, [...head, ...messages], start);
  }
  const head = prompt.head.filter(({ key }) => !known.head.has(key));
  const messages = prompt.messages.slice(known.messages);
  return sumParts(prompt, [...head, ...messages], {
    known: known.tokens + SEAM_TOKENS,
    bytes: prompt.unkeyed.bytes,
    messages: messages.length,
  });
}

function sumParts(
  prompt: Prompt,
  parts: readonly PromptPart[],
  start: { readonly known: number; readonly bytes: number; readonly messages: number },
): NewText {
  let { bytes } = start;
  let { images } = prompt.unkeyed;
  let { unbounded } = prompt;
  for (const part of parts) {
    bytes += part.bytes;
    images += part.images;
    unbounded ||= part.unbounded;
  }
  return { known: start.known, parts, messages: start.messages, bytes, images, unbounded };
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
  const added = text.images * model.max_image_tokens + text.messages * MESSAGE_TOKENS + overhead;
  return Math.min(text.known + text.bytes + added, model.max_context_tokens);
}

/** Hashes of the settings and of the messages up to each of these counts, for one model. */
export function hashPromptChains(
  modelId: string,
  { settings, messages }: Pick<Prompt, 'settings' | 'messages'>,
  counts: ReadonlySet<number>,
): ReadonlyMap<number, string> {
  const chains = new Map<number, string>();
  const hash = createHash('sha1').update(`${modelId}\n${settings}\n`);
  let hashed = 0;
  for (const count of [...counts].filter((one) => one <= messages.length).sort((a, b) => a - b)) {
    // One text for all keys: 0.26 ms for 4,000 of them, where one by one they took 0.68.
    let keys = '';
    for (; hashed < count; hashed += 1) keys += `${messages[hashed]!.key}\n`;
    chains.set(count, hash.update(keys).copy().digest('base64'));
  }
  return chains;
}

/** Strings and numbers of a value, keys included: everything that a provider can put into a prompt. */
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

/** Maximum number and length of transferred texts: a tokenizer could not count more in time. */
const MAX_TEXTS = 50_000;
const MAX_TEXT_LENGTH = 8_388_608;

/**
 * The same with the texts themselves, those of the last messages first, within bounds.
 * @param withTexts whether texts are counted at all
 */
export function readPrompt(prompt: Prompt, withTexts: boolean): ReadPrompt {
  let [texts, length] = withTexts ? [MAX_TEXTS, MAX_TEXT_LENGTH] : [0, 0];
  const readPart = (part: PromptPart): ReadPart => {
    if (part.bytes > length || texts <= 0) return { ...part, texts: null };
    const found = part.texts?.() ?? null;
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
  const restorePart = ({ texts, ...rest }: ReadPart): PromptPart => {
    if (texts === null) return { ...rest, texts };
    return { ...rest, texts: () => texts };
  };
  return { ...read, head: read.head.map(restorePart), messages: read.messages.map(restorePart) };
}
