// Assembles the messages of a model call from the stored history: complete messages only, every tool call answered (10 §6).

import type { ToolUseId } from '#protocol/ids.ts';
import { plainMetadata, type StoredMessage, toolUses } from '#protocol/message.ts';
import { createBeginnings } from './beginnings.ts';

/** Text of the tool result that replaces a missing one (11.4). */
export const MISSING_RESULT_TEXT = 'Tool call was interrupted before it produced a result.';

export interface RequestMessages {
  /** The history itself when nothing had to be changed. */
  readonly messages: readonly StoredMessage[];
  /** Calls that had no stored result: a fault worth an ERROR log. */
  readonly missing: readonly ToolUseId[];
}

/** Histories that are sent unchanged: each tool call in them has its result. */
const wellFormed = createBeginnings<null>();

/**
 * One pass over the history, oldest first, copying nothing while it is well-formed. Stored messages are never altered.
 *
 * A call whose results do not follow before other content is answered by a synthetic error result; a result whose call
 * is not sent is left out.
 */
export function requestMessages(history: readonly StoredMessage[]): RequestMessages {
  const known = wellFormed.find(history)?.count ?? 0;
  let copy: StoredMessage[] | null = null;
  const missing: ToolUseId[] = [];
  let open = new Set<ToolUseId>();
  let caller: StoredMessage | null = null;

  const answerOpenCalls = (before: number) => {
    if (caller === null || open.size === 0) return;
    copy ??= history.slice(0, before);
    for (const id of open) {
      copy.push(syntheticResult(caller, id));
      missing.push(id);
    }
    open = new Set();
  };

  for (let i = known; i < history.length; i += 1) {
    const message = history[i]!;
    if (message.metadata.status !== 'complete' || (message.role === 'tool' && !takesResult(open, message))) {
      copy ??= history.slice(0, i);
      continue;
    }
    if (message.role !== 'tool') {
      answerOpenCalls(i);
      if (message.role === 'assistant') {
        caller = message;
        for (const call of toolUses(message.content)) open.add(call.id);
      }
    }
    copy?.push(message);
  }
  answerOpenCalls(history.length);
  if (copy === null) wellFormed.keep(history, null);
  return { messages: copy ?? history, missing };
}

function takesResult(open: Set<ToolUseId>, message: StoredMessage): boolean {
  const block = message.content[0];
  return block?.type === 'tool_result' && open.delete(block.tool_use_id);
}

function syntheticResult(caller: StoredMessage, id: ToolUseId): StoredMessage {
  return {
    ...caller,
    role: 'tool',
    content: [
      { type: 'tool_result', tool_use_id: id, content: [{ type: 'text', text: MISSING_RESULT_TEXT }], is_error: true },
    ],
    metadata: plainMetadata(id),
    provider_raw: null,
  };
}
