// How full a model's window is, and which parts of a view can be taken out to make room (10 §7).

import type { MessageId } from '#protocol/ids.ts';
import type { StoredMessage } from '#protocol/message.ts';
import type { ModelEntry } from '#protocol/model.ts';
import type { Checkpoint } from '#protocol/prompt-parts.ts';
import { promptTokens } from '#protocol/usage.ts';
import { messageSize } from './message-size.ts';
import { hasImage } from './session-history.ts';
import { type CallNames, callNames, elideMessage, isLargeResult } from './shown-history.ts';

const START = 0.85;
const STOP = 0.6;
/** What a guess may miss of a request's frame. */
const MARGIN_TOKENS = 1024;
/** Tool results that stay whole while there is another way. */
const RECENT_RESULTS = 8;
/** Turns, the current one included, whose images and messages stay. */
export const RECENT_TURNS = 4;

/** All in tokens. */
export interface Window {
  /** What a request may have. */
  readonly budget: number;
  /** Above it room is made, down to `stop`. */
  readonly start: number;
  readonly stop: number;
}

export function getWindow(model: ModelEntry, maxOutputTokens: number): Window {
  const budget = model.capabilities.max_context_tokens - maxOutputTokens - MARGIN_TOKENS;
  return { budget, start: START * budget, stop: STOP * budget };
}

/**
 * Tokens of a request as they count against its window: the guess, or the count of the last call that saw the same
 * checkpoints with a guess of what came since, if that is more.
 * @param estimated the guess for the whole request
 * @param history of the session, not its view
 */
export function measureLoad(
  estimated: number,
  history: readonly StoredMessage[],
  checkpoints: readonly Checkpoint[],
): number {
  const at = history.findLastIndex((m) => m.role === 'assistant' && m.metadata.status === 'complete');
  const usage = history[at]?.metadata.usage ?? null;
  // Every id is of one generator: what is smaller was made before.
  if (usage === null || usage.usage_estimated || history[at]!.id < (checkpoints.at(-1)?.id ?? '')) return estimated;
  let size = 0;
  for (const message of history.slice(at)) size += messageSize(message);
  return Math.max(estimated, promptTokens(usage) + Math.floor(size / 4));
}

/** A part of a view that can be shown as one line. */
export interface Elidable {
  readonly message_id: MessageId;
  /** Tokens, by the guess, that it then takes less. */
  readonly saved: number;
}

/**
 * Everything in a view that can be taken out, oldest first; answers that the model has not seen yet never can.
 * `recent` are the results among the newest ones, which stay as long as there is another way.
 */
export function elidables(view: readonly StoredMessage[]): {
  readonly old: readonly Elidable[];
  readonly recent: readonly Elidable[];
} {
  const unread = unreadAnswersStart(view);
  const results = view.filter((m) => m.role === 'tool');
  const recentFrom = results.at(-RECENT_RESULTS)?.id ?? results[0]?.id ?? '';
  const turnsFrom = recentTurnsStart(view);
  const old: Elidable[] = [];
  const recent: Elidable[] = [];
  let names: CallNames = new Map();
  for (const [i, message] of view.entries()) {
    if (message.role === 'assistant') names = callNames(message);
    else if (message.role === 'tool') {
      if (i < unread && isLargeResult(message)) (message.id < recentFrom ? old : recent).push(elidable(message, names));
    } else if (message.role === 'user' && i < turnsFrom && hasImage(message)) old.push(elidable(message, names));
  }
  return { old, recent };
}

/**
 * Where the answers begin that the model has not seen yet, those to its newest message; behind the view when there are
 * none: in a turn that failed over them they would otherwise stay in the way of every later one.
 */
function unreadAnswersStart(view: readonly StoredMessage[]): number {
  const at = view.findLastIndex((m) => m.role === 'assistant' && m.metadata.status === 'complete');
  // A message that its own turn reads comes after such answers.
  const later = view.slice(at + 1).some((m) => m.role === 'user' && m.turn_id !== view[at]?.turn_id);
  return at < 0 || later ? view.length : at;
}

function elidable(message: StoredMessage, names: CallNames): Elidable {
  return {
    message_id: message.id,
    saved: Math.floor((messageSize(message) - messageSize(elideMessage(message, names))) / 4),
  };
}

/** Where the newest turns of a view begin: its index, 0 when there are no older ones. */
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

/** The first of them, as few as bring the load down to the goal, or all. */
export function asNeeded(candidates: readonly Elidable[], load: number, goal: number): readonly Elidable[] {
  let left = load;
  const enough = candidates.findIndex(({ saved }) => {
    const reached = left <= goal;
    left -= saved;
    return reached;
  });
  return enough < 0 ? candidates : candidates.slice(0, enough);
}

export function savedBy(parts: readonly Elidable[]): number {
  return parts.reduce((sum, { saved }) => sum + saved, 0);
}
