// What a model is shown of a history: its messages as the checkpoints leave them, the same bytes every time (10 §7).
import { isoTime } from '#protocol/clock.ts';
import type { MessageId, ToolUseId } from '#protocol/ids.ts';
import {
  type ContentBlock,
  plainMetadata,
  type StoredMessage,
  type ToolResultBlock,
  textBlock,
  toolUses,
} from '#protocol/message.ts';
import type { Checkpoint, HistorySummary } from '#protocol/prompt-parts.ts';
import { decodedBytes } from './image-blocks.ts';
import { extendHistory } from './session-history.ts';

// How a message is shown whose large parts were taken out of the view: a line in place of each (10 §7).

export const MAX_WHOLE_RESULT_BYTES = 2048;

/** Names of the tools that a message calls. */
export type CallNames = ReadonlyMap<ToolUseId, string>;

export function callNames(message: StoredMessage): CallNames {
  return new Map(toolUses(message.content).map((call) => [call.id, call.name]));
}

// Stored messages never change, and a call has one name: the same short form every time, which encoders keep the text of.
const shortForms = new WeakMap<StoredMessage, StoredMessage>();

/** @param names of the calls that a tool message may answer */
export function elideMessage(message: StoredMessage, names: CallNames): StoredMessage {
  const known = shortForms.get(message);
  if (known !== undefined) return known;
  const short = { ...message, content: message.content.map((block) => shortBlock(block, names)) };
  shortForms.set(message, short);
  return short;
}

function shortBlock(block: ContentBlock, names: CallNames): ContentBlock {
  if (block.type === 'image') return textBlock(`[image omitted: ${block.media_type}]`);
  if (block.type !== 'tool_result') return block;
  const what = `result of ${names.get(block.tool_use_id) ?? 'a tool'}, ${resultBytes(block)} bytes`;
  return { ...block, content: [textBlock(`[elided: ${what}; call the tool again if needed]`)] };
}

/** A tool message with more in it than stays whole. */
export function isLargeResult(message: StoredMessage): boolean {
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
    bytes += inner.type === 'image' ? decodedBytes(inner.source.data) : Buffer.byteLength(inner.text);
  sizes.set(result, bytes);
  return bytes;
}

interface Seen {
  /** How many messages of the history are in the view, and the last of them. */
  readonly count: number;
  readonly last: StoredMessage | null;
  readonly view: readonly StoredMessage[];
  readonly names: CallNames;
}

// By the list of checkpoints, which is made anew with each of them: within a turn a long history costs what is new of it.
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
  const start = known !== undefined && continues(history, known) ? known : opening(checkpoints);
  if (start.count === history.length) return start.view;

  const through = summaryIn(checkpoints)?.through_message_id ?? '';
  const shortened = new Set<MessageId>(checkpoints.flatMap((c) => (c.kind === 'elide' ? c.message_ids : [])));
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

function continues(history: readonly StoredMessage[], { count, last }: Seen): boolean {
  return history.length >= count && (history[count - 1] ?? null) === last;
}

function opening(checkpoints: readonly Checkpoint[]): Seen {
  const summary = summaryIn(checkpoints);
  return { count: 0, last: null, view: summary === null ? [] : [summaryMessage(summary)], names: new Map() };
}

/** The newest summary, which includes the earlier ones. */
function summaryIn(checkpoints: readonly Checkpoint[]): HistorySummary | null {
  return checkpoints.findLast((c) => c.kind === 'summary') ?? null;
}

/** Whether a message of a view is the summary that opens it. */
export function isSummary(message: StoredMessage, checkpoints: readonly Checkpoint[]): boolean {
  return summaryIn(checkpoints)?.id === message.id;
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
