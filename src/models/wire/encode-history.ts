// Steps that every wire takes to encode a history: pair calls with results, collect system text, drop blocks (11.4).
import { type Beginnings, createBeginnings } from '#core/policy/context/beginnings.ts';
import type { ToolUseId } from '#protocol/ids.ts';
import { type ContentBlock, joinText, type StoredMessage, type ToolResultContent } from '#protocol/message.ts';
import { getProvider, type ModelEntry } from '#protocol/model.ts';
import type { CanonicalRequest, WireTool } from '#protocol/model-call.ts';
import type { CodecLog } from './codec.ts';

/** The result of a call that has none: providers reject a history without it. */
export const INTERRUPTED = 'Tool call was interrupted before it produced a result.';

/**
 * A result on a wire whose results are one text. The lines of the last of several blocks may be the server's: a line of an
 * earlier block that begins as they do is indented, so that it cannot be taken for one.
 */
export function joinResult(content: readonly ToolResultContent[]): string {
  const last = content.length - 1;
  const texts = content.map((block, at) => {
    if (block.type !== 'text') return '[image]';
    if (at === last) return block.text;
    return block.text.replace(/^\[/gm, ' [');
  });
  return texts.join('\n');
}

/** One step of a history that every provider accepts: each call is followed by its result at once. */
type Step =
  | { readonly kind: 'user' | 'assistant' | 'result'; readonly message: StoredMessage }
  | { readonly kind: 'interrupted'; readonly tool_use_id: ToolUseId };

/**
 * Places results directly after their calls; results without a call are dropped. SYSTEM messages are left out, see `systemTexts`.
 * @param open calls that wait for results; updated
 */
function pairResults(message: StoredMessage, open: ToolUseId[], drop: Drop): Step[] {
  const { role, content } = message;
  if (role === 'system') return [];
  if (role === 'tool') {
    const result = content[0];
    const place = result?.type === 'tool_result' ? open.indexOf(result.tool_use_id) : -1;
    if (place >= 0) {
      open.splice(place, 1);
      return [{ kind: 'result', message }];
    }
    drop(message, 'tool_result', 'no call before it waits for this result');
    return [];
  }
  const steps: Step[] = [...open.splice(0).map(interruptedStep), { kind: role, message }];
  if (role === 'assistant') for (const block of content) if (block.type === 'tool_use') open.push(block.id);
  return steps;
}

function interruptedStep(tool_use_id: ToolUseId): Step {
  return { kind: 'interrupted', tool_use_id };
}

/**
 * Folds a history step by step. The fold of a prefix is cached, so that each message is processed once.
 * `fold` must not change its input value.
 */
export function cacheFold<T>(
  start: T,
  fold: (value: T, step: Step, model: ModelEntry) => T,
  drop: Drop,
): (request: CanonicalRequest) => T {
  interface Folded {
    readonly value: T;
    readonly open: readonly ToolUseId[];
  }
  const byModel = new WeakMap<ModelEntry, Beginnings<Folded>>();
  return ({ messages, model }) => {
    const known = byModel.get(model) ?? createBeginnings<Folded>();
    byModel.set(model, known);
    const begun = known.find(messages);
    const open = [...(begun?.state.open ?? [])];
    let value = begun === null ? start : begun.state.value;
    for (let i = begun?.count ?? 0; i < messages.length; i += 1)
      for (const step of pairResults(messages[i]!, open, drop)) value = fold(value, step, model);
    known.keep(messages, { value, open: [...open] });
    for (const id of open) value = fold(value, interruptedStep(id), model);
    return value;
  };
}

/** Logs a block that the wire cannot express. */
export type Drop = (message: StoredMessage, blockType: string, reason: string) => void;

export function createDropLog(remarks: CodecLog): Drop {
  return (message, block_type, reason) =>
    remarks.warn(
      { session_id: message.session_id, message_id: message.id, block_type, reason },
      'canonical.block_dropped',
    );
}

/** Stable and volatile system text; null = none. */
export function collectSystemTexts(request: CanonicalRequest): {
  readonly stable: string | null;
  readonly volatile: string | null;
} {
  const inline = collectInlineTexts(request.messages);
  return {
    stable: joinTexts([request.system_prompt, ...inline]),
    volatile: joinTexts([request.system_prompt_volatile, demandOutput(request)]),
  };
}

/** The sentence with the output schema for a model without structured output; null = not needed. */
function demandOutput({ output_schema, model }: CanonicalRequest): string | null {
  if (output_schema === null || model.capabilities.supports_structured_output) return null;
  return `## Output\nYour last message must be one JSON object that is valid against this JSON Schema, with no text before or after it:\n${JSON.stringify(output_schema)}`;
}

const systemBeginnings = createBeginnings<readonly string[]>();

/** The text of SYSTEM messages. */
function collectInlineTexts(messages: readonly StoredMessage[]): readonly string[] {
  const known = systemBeginnings.find(messages);
  const texts = [...(known?.state ?? [])];
  for (let i = known?.count ?? 0; i < messages.length; i += 1)
    if (messages[i]!.role === 'system') texts.push(joinText(messages[i]!.content));
  systemBeginnings.keep(messages, texts);
  return texts;
}

/** Texts separated by a blank line, blank ones left out; null when nothing remains. */
export function joinTexts(texts: readonly (string | null)[]): string | null {
  const present = texts.filter((t): t is string => t !== null && !isBlank(t));
  if (present.length === 0) return null;
  return present.join('\n\n');
}

/** A tool name in the form that every provider accepts: models may invent invalid names. */
export function sanitizeToolName(name: string): string {
  return name.replaceAll(/[^a-zA-Z0-9_-]/g, '_').slice(0, 64);
}

export function isBlank(text: string): boolean {
  return text.trim() === '';
}

/** Why the model does not accept this block; null = accepted. */
export function findUnsupported(block: ContentBlock, message: StoredMessage, model: ModelEntry): string | null {
  const { capabilities } = model;
  switch (block.type) {
    case 'image': {
      const accepted = capabilities.accepted_image_media_types;
      if (!capabilities.supports_images) return 'the model takes no images';
      if (accepted.length === 0 || accepted.includes(block.media_type)) return null;
      return `the model takes no ${block.media_type}`;
    }
    case 'document':
      if (capabilities.accepted_document_media_types.includes(block.media_type)) return null;
      return `the model takes no ${block.media_type}`;
    case 'thinking':
    case 'redacted_thinking':
      if (message.metadata.provider !== getProvider(model.id)) return 'written by another provider';
      if (block.type === 'thinking' && !block.signature) return 'without signature';
      return null;
    default:
      return null;
  }
}

/**
 * Caches the encoding of each message for a model: stored messages never change, so a long history is encoded once.
 * Dropped blocks are logged when the message is first encoded.
 */
export function cacheEncoding<T>(
  encode: (message: StoredMessage, model: ModelEntry) => T,
): (message: StoredMessage, model: ModelEntry) => T {
  const byModel = new WeakMap<ModelEntry, WeakMap<StoredMessage, { readonly value: T }>>();
  return (message, model) => {
    let known = byModel.get(model);
    if (known === undefined) {
      known = new WeakMap();
      byModel.set(model, known);
    }
    let entry = known.get(message);
    if (entry === undefined) {
      entry = { value: encode(message, model) };
      known.set(message, entry);
    }
    return entry.value;
  };
}

/** Providers reject a lone surrogate, which JSON can only write as an escape; U+FFFD replaces it. */
export function replaceLoneSurrogates(json: string): string {
  if (!json.includes('\\ud')) return json;
  return json.replaceAll(/(?<!\\)((?:\\\\)*)\\ud[89a-f][0-9a-f]{2}/g, '$1\\ufffd');
}

// The encoded bytes of a history are kept: the next request appends its new messages (11.5, 11.6).

/** Bytes that are only ever appended to: those before `used` may be on their way to a provider. */
interface SharedBuffer {
  readonly bytes: Buffer;
  used: number;
}

/** UTF-8 text that shares its buffer with its extensions. Joined strings instead cost 2.3 ms at 4,000 messages. */
export interface GrowingText {
  readonly buffer: SharedBuffer;
  readonly length: number;
}

const LEAST_BYTES = 2048;
export const NO_TEXT: GrowingText = { buffer: { bytes: Buffer.alloc(0), used: 0 }, length: 0 };

/** The longer text. It gets a buffer of its own where other text follows in the shared one, or where that is full. */
export function appendText({ buffer, length }: GrowingText, added: string): GrowingText {
  const longer = length + Buffer.byteLength(added);
  let own = buffer;
  if (buffer.used !== length || longer > buffer.bytes.length) {
    own = { bytes: Buffer.allocUnsafeSlow(Math.max(LEAST_BYTES, longer * 2)), used: length };
    buffer.bytes.copy(own.bytes, 0, 0, length);
  }
  own.bytes.write(added, length);
  own.used = longer;
  return { buffer: own, length: longer };
}

/** JSON text, or its bytes. */
export type Piece = string | Buffer;

/** From this length on a text is sent from where it is kept. */
const LONG_BYTES = 64 * 1024;

/**
 * The text, without its first bytes, with pieces before and after: the pieces of a body. A short one is copied into one
 * buffer. A buffer of 700 kB for each turn of a long session made V8 collect its old heap every 60 turns.
 */
export function wrapText(
  before: readonly Piece[],
  { buffer, length }: GrowingText,
  behind: readonly Piece[],
  skipped = 0,
): Buffer[] {
  const text = buffer.bytes.subarray(Math.min(skipped, length), length);
  if (text.length >= LONG_BYTES) return [joinPieces(before), text, joinPieces(behind)];
  return [joinPieces([...before, text, ...behind])];
}

function joinPieces(pieces: readonly Piece[]): Buffer {
  const all = Buffer.allocUnsafe(pieces.reduce((sum, piece) => sum + Buffer.byteLength(piece), 0));
  let at = 0;
  for (const piece of pieces) at += typeof piece === 'string' ? all.write(piece, at) : piece.copy(all, at);
  return all;
}

/** Lists whose bytes are kept: those of planners and workers, of workspaces with different tools. */
const MAX_TOOL_LISTS = 16;

/**
 * The JSON array of a request's tools as bytes. Most requests have the same list, of ten kilobytes and more; its text
 * would be joined, checked and encoded anew for each of them.
 */
export function cacheToolList(write: (tool: WireTool) => object): (tools: readonly WireTool[]) => Buffer {
  const known: { readonly tools: readonly WireTool[]; readonly bytes: Buffer }[] = [];
  return (tools) => {
    const same = known.find((one) => one.tools.length === tools.length && one.tools.every((t, i) => t === tools[i]));
    if (same !== undefined) return same.bytes;
    const bytes = Buffer.from(replaceLoneSurrogates(`[${tools.map((tool) => JSON.stringify(write(tool))).join(',')}]`));
    if (known.unshift({ tools, bytes }) > MAX_TOOL_LISTS) known.pop();
    return bytes;
  };
}
