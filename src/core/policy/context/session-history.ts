// Summarises a session's history message by message, so that a long history costs only its new messages (10 §1).
import type { StoredMessage } from '#protocol/message.ts';
import { messageSize } from './message-size.ts';

export interface HistorySummary {
  /** Code points, as `estimateRequest` counts them. */
  readonly size: number;
  /** An image in a message or in a tool result. */
  readonly has_images: boolean;
  readonly has_tool_results: boolean;
  /** Media types of documents in it. */
  readonly document_types: readonly string[];
  /** Number of turns. Each began with a message of a person or a planner, and may have read further messages. */
  readonly turns: number;
  /** Whether a message was ever stored so long after the previous answer that a short-lived prompt cache had expired (20 §8). */
  readonly had_pause: boolean;
}

/** A little less than the 5 minutes of a cached prompt's lifetime. */
const PAUSE_MS = 4 * 60_000;

interface Counted extends HistorySummary {
  /** Number of messages of the array that are summarised. */
  readonly count: number;
  /** The turn of the newest user message. */
  readonly turn_id: StoredMessage['turn_id'];
  /** When the newest answer was stored, Unix milliseconds. */
  readonly answered_at: number | null;
}

const NOTHING: Counted = {
  count: 0,
  size: 0,
  has_images: false,
  has_tool_results: false,
  document_types: [],
  turns: 0,
  had_pause: false,
  turn_id: null,
  answered_at: null,
};

// Stored messages never change and a history only grows, so a summary of an array stays valid for its prefix.
const summaries = new WeakMap<readonly StoredMessage[], Counted>();

export function measureHistory(history: readonly StoredMessage[]): HistorySummary {
  return measureFrom(history, summaries.get(history) ?? NOTHING);
}

function measureFrom(history: readonly StoredMessage[], known: Counted): Counted {
  let summary = known;
  if (summary.count === history.length) return summary;
  for (let i = summary.count; i < history.length; i += 1) summary = withMessage(summary, history[i]!);
  summaries.set(history, summary);
  return summary;
}

/** Histories that begin with the same messages, the longest of which holds those of all others. */
interface Line {
  longest: readonly StoredMessage[];
}
interface Place {
  readonly line: Line;
  /** Messages of the array that are known to be those of the line. */
  count: number;
}
const places = new WeakMap<readonly StoredMessage[], Place>();

/** A new history whose summary extends the old one by the messages. */
export function extendHistory(
  history: readonly StoredMessage[],
  ...messages: readonly StoredMessage[]
): StoredMessage[] {
  const longer = history.concat(messages);
  const known = summaries.get(history);
  if (known !== undefined) summaries.set(longer, measureFrom(history, known));
  const place = places.get(history) ?? startLine(history);
  if (!reaches(history, place, history.length)) return longer;
  const { line } = place;
  // A store and a turn extend the same history, each by the same messages.
  if (line.longest.length === history.length) line.longest = longer;
  places.set(longer, { line, count: history.length });
  return longer;
}

function startLine(history: readonly StoredMessage[]): Place {
  const place = { line: { longest: history }, count: history.length };
  places.set(history, place);
  return place;
}

/** Looks only at messages that nothing is known of yet. */
function reaches(history: readonly StoredMessage[], place: Place, count: number): boolean {
  const { line } = place;
  while (place.count < count && history[place.count] === line.longest[place.count]) place.count += 1;
  // An array that has grown past the longest holds all others now.
  if (place.count < count && place.count === line.longest.length) {
    line.longest = history;
    place.count = count;
  }
  return place.count >= count;
}

/**
 * Whether two histories are known to begin with the same `count` messages, without a look at all of them: a turn would
 * compare each message of its session three times. Neither may be shorter. False where nothing is known.
 */
export function isSameLine(a: readonly StoredMessage[], b: readonly StoredMessage[], count: number): boolean {
  if (a === b) return true;
  const one = places.get(a);
  const other = places.get(b);
  if (one === undefined || one.line !== other?.line) return false;
  return reaches(a, one, count) && reaches(b, other, count);
}

export function hasImage(message: StoredMessage): boolean {
  return message.content.some(
    (b) => b.type === 'image' || (b.type === 'tool_result' && b.content.some((c) => c.type === 'image')),
  );
}

function withMessage(before: Counted, message: StoredMessage): Counted {
  const at = Date.parse(message.created_at);
  const begins = message.role === 'user' && (message.turn_id === null || message.turn_id !== before.turn_id);
  return {
    count: before.count + 1,
    size: before.size + messageSize(message),
    has_images: before.has_images || hasImage(message),
    has_tool_results: before.has_tool_results || message.role === 'tool',
    document_types: withDocuments(before.document_types, message),
    turns: before.turns + Number(begins),
    turn_id: begins ? message.turn_id : before.turn_id,
    had_pause: before.had_pause || (before.answered_at !== null && at - before.answered_at > PAUSE_MS),
    answered_at: message.role === 'assistant' ? at : before.answered_at,
  };
}

function withDocuments(before: readonly string[], { content }: StoredMessage): readonly string[] {
  const types = content.filter((b) => b.type === 'document').map((b) => b.media_type);
  if (types.every((type) => before.includes(type))) return before;
  return [...new Set([...before, ...types])];
}
