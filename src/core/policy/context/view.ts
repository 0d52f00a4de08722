// What a model is shown of a history: its messages as the checkpoints leave them, the same bytes every time (10 §7).

import { isoTime } from '#protocol/clock.ts';
import type { Checkpoint, HistorySummary } from '#protocol/context/checkpoint.ts';
import type { MessageId } from '#protocol/ids.ts';
import { plainMetadata, type StoredMessage, textBlock } from '#protocol/message.ts';
import { type CallNames, callNames, elided } from './elided-message.ts';
import { extended } from './history.ts';

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
export function viewOf(
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
    added.push(shortened.has(message.id) ? elided(message, names) : message);
  }
  const view = extended(start.view, ...added);
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

/** The newest summary, which tells the earlier ones too. */
function summaryIn(checkpoints: readonly Checkpoint[]): HistorySummary | null {
  return checkpoints.findLast((c) => c.kind === 'summary') ?? null;
}

/** Whether a message of a view is the summary that opens it. */
export function isSummary(message: StoredMessage, checkpoints: readonly Checkpoint[]): boolean {
  return summaryIn(checkpoints)?.id === message.id;
}

/** The message that stands for everything the summary tells. */
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
