// Fold of the deltas in flight: the content so far of every message in mid-stream, for clients that connect late (06 §4.4).

import type { Published } from '#core/ports/live-bus.ts';
import type { Delta, OpenToolInput, Transient } from '#protocol/delta.ts';
import type { ContentBlock } from '#protocol/message.ts';

type Start = Extract<Delta, { type: 'message.start' }>;

interface OpenMessage {
  readonly start: Transient;
  readonly payload: Start['payload'];
  /** By content block index. */
  readonly blocks: Map<number, ContentBlock>;
  readonly inputs: Map<string, OpenToolInput>;
}

export interface OpenMessages {
  fold(item: Published): void;
  /** One `message.start` per open message, with its content so far. */
  list(inScope: (sessionId: string) => boolean): readonly Transient[];
  /** The message in mid-stream of this session; null without one. */
  messageId(sessionId: string): string | null;
}

/** One message at most is open per session, because one turn at most runs in it. */
export function createOpenMessages(): OpenMessages {
  const open = new Map<string, OpenMessage>();

  function foldTransient(transient: Transient): void {
    const { session_id, delta } = transient;
    if (delta.type === 'message.start') {
      open.set(session_id, begun(transient, delta.payload));
      return;
    }
    const message = open.get(session_id);
    if (message === undefined || delta.type === 'message.appended') return;
    if (delta.payload.message_id !== message.payload.message_id) return;
    if (delta.type === 'message.complete') open.delete(session_id);
    else grow(message, delta);
  }

  return {
    fold(item) {
      if (item.kind === 'transient') foldTransient(item.transient);
      // A turn that ended without closing its message (a bug upstream) must not be shown as streaming for ever.
      else if (endsTurn(item.event.type)) open.delete(item.event.session_id);
    },
    list(inScope) {
      const found: Transient[] = [];
      for (const [sessionId, message] of open) if (inScope(sessionId)) found.push(asStart(message));
      return found;
    },
    messageId: (sessionId) => open.get(sessionId)?.payload.message_id ?? null,
  };
}

function endsTurn(type: string): boolean {
  return type === 'turn.completed' || type === 'turn.failed' || type === 'turn.cancelled' || type === 'session.ended';
}

function begun(start: Transient, payload: Start['payload']): OpenMessage {
  return {
    start,
    payload,
    blocks: new Map(payload.content.map((block, index) => [index, block])),
    inputs: new Map(payload.open_tool_inputs.map((input) => [input.tool_use_id, input])),
  };
}

function grow(message: OpenMessage, delta: Exclude<Delta, Start | { type: 'message.complete' | 'message.appended' }>) {
  const index = delta.payload.content_block_index;
  const block = message.blocks.get(index);
  switch (delta.type) {
    case 'text.delta': {
      const before = block?.type === 'text' ? block.text : '';
      message.blocks.set(index, { type: 'text', text: before + delta.payload.text });
      return;
    }
    case 'thinking.delta': {
      const before = block?.type === 'thinking' ? block.text : '';
      const signature = delta.payload.signature ?? (block?.type === 'thinking' ? block.signature : null);
      message.blocks.set(index, { type: 'thinking', text: before + delta.payload.text, signature });
      return;
    }
    case 'tool.use_start': {
      const { content_block_index, tool_use_id, tool_name } = delta.payload;
      message.inputs.set(tool_use_id, { content_block_index, tool_use_id, tool_name, partial_json: '' });
      return;
    }
    case 'tool.use_input_delta': {
      const input = message.inputs.get(delta.payload.tool_use_id);
      if (input === undefined) return;
      message.inputs.set(input.tool_use_id, {
        ...input,
        partial_json: input.partial_json + delta.payload.partial_json,
      });
      return;
    }
    case 'tool.use_end': {
      const input = message.inputs.get(delta.payload.tool_use_id);
      if (input === undefined) return;
      message.inputs.delete(input.tool_use_id);
      message.blocks.set(index, {
        type: 'tool_use',
        id: input.tool_use_id as Extract<ContentBlock, { type: 'tool_use' }>['id'],
        name: input.tool_name,
        input: { ...delta.payload.final_input },
      });
    }
  }
}

/** Positions in `content` are block indices: a block without text yet (an open tool input) is an empty text block. */
function asStart(message: OpenMessage): Transient {
  const content: ContentBlock[] = [];
  const last = Math.max(-1, ...message.blocks.keys());
  for (let index = 0; index <= last; index += 1) {
    content.push(message.blocks.get(index) ?? { type: 'text', text: '' });
  }
  const payload = { ...message.payload, content, open_tool_inputs: [...message.inputs.values()] };
  return { ...message.start, delta: { type: 'message.start', payload } };
}
