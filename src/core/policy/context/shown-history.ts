// The view of a history that a model receives: its messages with the checkpoints applied, always the same bytes (10 §7).
import { isoTime } from '#protocol/clock.ts';
import type { MessageId, ToolUseId } from '#protocol/ids.ts';
import {
  type ContentBlock,
  joinText,
  plainMetadata,
  type StoredMessage,
  type ToolResultBlock,
  textBlock,
  toolUses,
} from '#protocol/message.ts';
import type { Checkpoint, HistorySummary } from '#protocol/prompt-parts.ts';
import { isDelivery } from '#protocol/text/delivery.ts';
import { countDecodedBytes } from './image-blocks.ts';
import { extendHistory } from './session-history.ts';

// Replaces each elided part of a message by one line (10 §7).

export const MAX_WHOLE_RESULT_BYTES = 2048;

/** Names of the tools that a message calls. */
export type CallNames = ReadonlyMap<ToolUseId, string>;

export function callNames(message: StoredMessage): CallNames {
  return new Map(toolUses(message.content).map((call) => [call.id, call.name]));
}

// Stored messages never change, and a call has one name, so the short form is the same object each time and encoders cache its text.
const shortForms = new WeakMap<StoredMessage, StoredMessage>();

/** @param names of the calls that a tool message may answer */
export function elideMessage(message: StoredMessage, names: CallNames): StoredMessage {
  const known = shortForms.get(message);
  if (known !== undefined) return known;
  const content = isDelivery(message) ? elideDelivery(message) : message.content.map((b) => elideBlock(b, names));
  const short = { ...message, content };
  shortForms.set(message, short);
  return short;
}

function elideBlock(block: ContentBlock, names: CallNames): ContentBlock {
  if (block.type === 'image') return textBlock(`[image omitted: ${block.media_type}]`);
  if (block.type !== 'tool_result') return block;
  const name = names.get(block.tool_use_id) ?? 'a tool';
  const bytes = resultBytes(block);
  const ends = name === 'workers' ? joinText(block.content).match(END_OF_WORKER) : null;
  // A wait gives each result once: what brings it back is the worker.
  const line =
    ends === null
      ? `[elided: result of ${name}, ${bytes} bytes; call the tool again if needed]`
      : `[elided: their results, ${bytes} bytes; continue a worker if needed]`;
  return { ...block, content: [textBlock([...(ends ?? []), line].join('\n'))] };
}

/** The line that names a worker, before its result. No text of a worker begins a line so. */
const END_OF_WORKER = /^\[worker sess_\w+ (?:completed|failed: \w+)\]$/gm;

/** The line that names the worker stays. */
function elideDelivery(message: StoredMessage): ContentBlock[] {
  const line = `[elided: its result, ${deliveryBytes(message)} bytes; continue the worker if needed]`;
  return [...message.content.slice(0, 1), textBlock(line)];
}

/** Bytes of the result behind the line that names the worker. */
function deliveryBytes({ content }: StoredMessage): number {
  return content.slice(1).reduce((sum, block) => sum + (block.type === 'text' ? Buffer.byteLength(block.text) : 0), 0);
}

/** Whether a message holds the result of a tool or of a background worker. */
export function isResult(message: StoredMessage): boolean {
  return message.role === 'tool' || isDelivery(message);
}

/** Whether a result is larger than the size that is never elided. */
export function isLargeResult(message: StoredMessage): boolean {
  if (isDelivery(message)) return deliveryBytes(message) > MAX_WHOLE_RESULT_BYTES;
  const block = message.content[0];
  return block?.type === 'tool_result' && resultBytes(block) > MAX_WHOLE_RESULT_BYTES;
}

const sizes = new WeakMap<ToolResultBlock, number>();

/** Bytes of its texts and decoded images. */
function resultBytes(result: ToolResultBlock): number {
  let bytes = sizes.get(result);
  if (bytes !== undefined) return bytes;
  bytes = 0;
  for (const inner of result.content)
    bytes += inner.type === 'image' ? countDecodedBytes(inner.source.data) : Buffer.byteLength(inner.text);
  sizes.set(result, bytes);
  return bytes;
}

interface Seen {
  /** Number of messages of the history in the view, and the last of them. */
  readonly count: number;
  readonly last: StoredMessage | null;
  readonly view: readonly StoredMessage[];
  readonly names: CallNames;
}

// Cached by the list of checkpoints, which is a new array after each checkpoint: within a turn a long history costs only its new messages.
const views = new WeakMap<readonly Checkpoint[], Seen>();

/**
 * The history itself where there is no checkpoint.
 * @param checkpoints of the session, oldest first
 */
export function viewHistory(
  history: readonly StoredMessage[],
  checkpoints: readonly Checkpoint[],
): readonly StoredMessage[] {
  if (checkpoints.length === 0) return history;
  const known = views.get(checkpoints);
  const isCurrent = known !== undefined && isBeginning(known, history);
  const start = isCurrent ? known : beginView(checkpoints);
  if (start.count === history.length) return start.view;

  const through = findSummary(checkpoints)?.through_message_id ?? '';
  const elisions = checkpoints.filter((c) => c.kind === 'elide');
  const shortened = new Set<MessageId>(elisions.flatMap((c) => c.message_ids));
  const added: StoredMessage[] = [];
  let { names } = start;
  for (const message of history.slice(start.count)) {
    if (message.id <= through) continue;
    if (message.role === 'assistant') names = callNames(message);
    added.push(shortened.has(message.id) ? elideMessage(message, names) : message);
  }
  const view = extendHistory(start.view, ...added);
  views.set(checkpoints, { count: history.length, last: history.at(-1) ?? null, view, names });
  return view;
}

function isBeginning({ count, last }: Seen, history: readonly StoredMessage[]): boolean {
  return history.length >= count && (history[count - 1] ?? null) === last;
}

function beginView(checkpoints: readonly Checkpoint[]): Seen {
  const summary = findSummary(checkpoints);
  const nothing: Seen = { count: 0, last: null, view: [], names: new Map() };
  if (summary === null) return nothing;
  return { ...nothing, view: [summaryMessage(summary)] };
}

/** The newest summary, which includes the earlier ones. */
function findSummary(checkpoints: readonly Checkpoint[]): HistorySummary | null {
  return checkpoints.findLast((c) => c.kind === 'summary') ?? null;
}

/** Whether a message of a view is the summary that opens it. */
export function isSummary(message: StoredMessage, checkpoints: readonly Checkpoint[]): boolean {
  return findSummary(checkpoints)?.id === message.id;
}

/** The message that replaces everything the summary covers. */
export function summaryMessage(
  summary: Pick<HistorySummary, 'id' | 'session_id' | 'summary_text' | 'created_at'>,
): StoredMessage {
  return {
    id: summary.id as MessageId,
    session_id: summary.session_id,
    turn_id: null,
    role: 'user',
    content: [textBlock(`[Summary of earlier conversation]\n${summary.summary_text}`)],
    metadata: plainMetadata(),
    created_at: isoTime(summary.created_at),
    provider_raw: null,
  };
}
