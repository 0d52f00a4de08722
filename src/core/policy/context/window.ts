// Measures how full a model's window is, and finds the parts of a view that can be elided to make room (10 §7).

import type { MessageId } from '#protocol/ids.ts';
import type { StoredMessage } from '#protocol/message.ts';
import type { ModelEntry } from '#protocol/model.ts';
import type { Checkpoint } from '#protocol/prompt-parts.ts';
import { promptTokens } from '#protocol/usage.ts';
import { messageSize } from './message-size.ts';
import { hasImage } from './session-history.ts';
import { type CallNames, callNames, elideMessage, isLargeResult, isResult } from './shown-history.ts';

const START = 0.85;
const STOP = 0.6;
/** Tokens kept free for parts of a request that the estimate misses. */
const MARGIN_TOKENS = 1024;
/** Newest results of tools and background workers, which are elided last. */
const RECENT_RESULTS = 8;
/** Newest turns, the current one included, whose images and messages are never elided. */
export const RECENT_TURNS = 4;

/** All in tokens. */
export interface Window {
  /** Maximum tokens of a request. */
  readonly budget: number;
  /** Above this load room is made, down to `stop`. */
  readonly start: number;
  readonly stop: number;
}

export function getWindow(model: ModelEntry, maxOutputTokens: number): Window {
  const budget = model.capabilities.max_context_tokens - maxOutputTokens - MARGIN_TOKENS;
  return { budget, start: START * budget, stop: STOP * budget };
}

/**
 * Tokens of a request as they count against its window: the estimate, or the count of the last call with the same
 * checkpoints plus an estimate of newer messages, whichever is larger.
 * @param estimated the estimate for the whole request
 * @param history of the session, not its view
 */
export function measureLoad(
  estimated: number,
  history: readonly StoredMessage[],
  checkpoints: readonly Checkpoint[],
): number {
  const at = history.findLastIndex((m) => m.role === 'assistant' && m.metadata.status === 'complete');
  const usage = history[at]?.metadata.usage ?? null;
  // All ids come from one generator, so a smaller id is older.
  if (usage === null || usage.usage_estimated || history[at]!.id < (checkpoints.at(-1)?.id ?? '')) return estimated;
  let size = 0;
  for (const message of history.slice(at)) size += messageSize(message);
  return Math.max(estimated, promptTokens(usage) + Math.floor(size / 4));
}

/** A part of a view that can be replaced by one line. */
export interface Elidable {
  readonly message_id: MessageId;
  /** Estimated tokens that this saves. */
  readonly saved: number;
}

/**
 * The parts of a view that can be elided, oldest first. Results that the model has not seen yet never can.
 * `recent` are the newest results, which are elided last.
 */
export function findElidables(view: readonly StoredMessage[]): {
  readonly old: readonly Elidable[];
  readonly recent: readonly Elidable[];
} {
  const unread = unreadAnswersStart(view);
  const results = view.filter(isResult);
  const recentFrom = results.at(-RECENT_RESULTS)?.id ?? results[0]?.id ?? '';
  const turnsFrom = recentTurnsStart(view);
  const old: Elidable[] = [];
  const recent: Elidable[] = [];
  let names: CallNames = new Map();
  for (const [i, message] of view.entries()) {
    if (message.role === 'assistant') names = callNames(message);
    else if (isResult(message)) {
      if (i < unread && isLargeResult(message))
        (message.id < recentFrom ? old : recent).push(toElidable(message, names));
    } else if (message.role === 'user' && i < turnsFrom && hasImage(message)) old.push(toElidable(message, names));
  }
  return { old, recent };
}

/**
 * Index of the first result that the model has not seen yet: the results of its newest message. Past the end when there
 * are none. Otherwise results over which a turn failed would block every later turn.
 */
function unreadAnswersStart(view: readonly StoredMessage[]): number {
  const at = view.findLastIndex((m) => m.role === 'assistant' && m.metadata.status === 'complete');
  // A message that joined the running turn comes after these results.
  const later = view.slice(at + 1).some((m) => m.role === 'user' && m.turn_id !== view[at]?.turn_id);
  if (at < 0 || later) return view.length;
  return at;
}

function toElidable(message: StoredMessage, names: CallNames): Elidable {
  return {
    message_id: message.id,
    saved: Math.floor((messageSize(message) - messageSize(elideMessage(message, names))) / 4),
  };
}

/** Index at which the newest turns of a view begin; 0 when there are no older ones. */
export function recentTurnsStart(view: readonly StoredMessage[]): number {
  const turns = new Set<unknown>();
  let start = view.length;
  for (let i = view.length - 1; i >= 0; i -= 1) {
    const { role, id, turn_id } = view[i]!;
    if (role !== 'user') continue;
    turns.add(turn_id ?? id);
    if (turns.size > RECENT_TURNS) return start;
    start = i;
  }
  return 0;
}

/** The fewest parts, oldest first, that bring the load down to the goal; all if they do not. */
export function selectNeeded(candidates: readonly Elidable[], load: number, goal: number): readonly Elidable[] {
  let left = load;
  const enough = candidates.findIndex(({ saved }) => {
    const reached = left <= goal;
    left -= saved;
    return reached;
  });
  if (enough < 0) return candidates;
  return candidates.slice(0, enough);
}

export function sumSaved(parts: readonly Elidable[]): number {
  return parts.reduce((sum, { saved }) => sum + saved, 0);
}
