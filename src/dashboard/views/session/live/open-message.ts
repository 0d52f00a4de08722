// A message while a model writes it: the one reducer of deltas, whether one was there from its start or not (06 §4.4).
import type { Message, TransientEvent } from '#client/client.ts';

export type Block = Message['content'][number];

export interface OpenMessage {
  readonly id: string;
  readonly session_id: string;
  readonly turn_id: string | null;
  readonly model: string;
  readonly at: string;
  readonly content: Block[];
  /** Of tool calls whose input is still being written: its raw text, by the block's index. */
  readonly partial: Map<number, string>;
}

/** Applies a delta. Returns false for what is no delta of a known message. */
export function applyDelta(open: Map<string, OpenMessage>, event: TransientEvent): boolean {
  if (event.type === 'message.appended') return false;
  const { message_id } = event.payload;
  if (event.type === 'message.start') {
    const { content, open_tool_inputs, model } = event.payload;
    open.set(message_id, {
      id: message_id,
      session_id: event.session_id,
      turn_id: event.turn_id,
      model,
      at: event.timestamp,
      content: structuredClone(content) as Block[],
      partial: new Map(open_tool_inputs.map((input) => [input.content_block_index, input.partial_json])),
    });
    return true;
  }
  const message = open.get(message_id);
  if (message === undefined) return false;
  switch (event.type) {
    case 'text.delta':
    case 'thinking.delta':
      appendText(message.content, event);
      return true;
    case 'tool.use_start': {
      const { content_block_index, tool_use_id, tool_name } = event.payload;
      message.content[content_block_index] = {
        type: 'tool_use',
        id: tool_use_id as Extract<Block, { type: 'tool_use' }>['id'],
        name: tool_name,
        input: {},
      };
      message.partial.set(content_block_index, '');
      return true;
    }
    case 'tool.use_input_delta': {
      const { content_block_index, partial_json } = event.payload;
      message.partial.set(content_block_index, (message.partial.get(content_block_index) ?? '') + partial_json);
      return true;
    }
    case 'tool.use_end': {
      const { content_block_index, final_input } = event.payload;
      const block = message.content[content_block_index];
      if (block?.type === 'tool_use') message.content[content_block_index] = { ...block, input: { ...final_input } };
      message.partial.delete(content_block_index);
      return true;
    }
    default:
      return false;
  }
}

/** A message that was just completed, as it is stored. */
export function buildCompletedMessage(
  event: Extract<TransientEvent, { type: 'message.complete' }>,
  model: string | undefined,
): Message {
  const { message_id, final_content, usage, stop_reason } = event.payload;
  return {
    id: message_id as Message['id'],
    session_id: event.session_id as Message['session_id'],
    turn_id: event.turn_id as Message['turn_id'],
    role: 'assistant',
    content: [...final_content],
    metadata: {
      model: model ?? null,
      provider: null,
      routing: null,
      usage,
      parent_tool_use_id: null,
      status: stop_reason === 'cancelled' || stop_reason === 'error' ? stop_reason : 'complete',
    },
    created_at: event.timestamp,
  };
}

function appendText(content: Block[], event: Extract<TransientEvent, { type: 'text.delta' | 'thinking.delta' }>): void {
  const { content_block_index: at, text } = event.payload;
  const block = content[at];
  if (event.type === 'text.delta') {
    content[at] = { type: 'text', text: (block?.type === 'text' ? block.text : '') + text };
  } else {
    content[at] = {
      type: 'thinking',
      text: (block?.type === 'thinking' ? block.text : '') + text,
      signature: event.payload.signature,
    };
  }
}

/** All text of it so far, for a pane of a few lines. */
export function textSoFar({ content }: Pick<OpenMessage, 'content'>): string {
  return content
    .filter((block) => block !== undefined)
    .flatMap((block) => (block.type === 'text' || block.type === 'thinking' ? block.text : []))
    .join('\n');
}

// The stored messages of a session that is watched: without holes, also after the connection broke.
