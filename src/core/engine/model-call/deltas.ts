// The public form of what a provider streams, and of messages as they are stored (06 §5.1).
import type { Delta, Transient } from '#protocol/delta.ts';
import type { StoredMessage } from '#protocol/message.ts';
import { withoutRaw } from '#protocol/message.ts';
import type { StreamEvent } from '#protocol/model-stream.ts';
import type { Engine } from '../state/engine.ts';
import type { TurnBase } from '../state/turn-run.ts';

/** The public form; `message.complete` waits for its transaction. */
export function toDelta(event: StreamEvent): Delta | null {
  const { message_id } = event;
  if (event.type === 'message.complete') return null;
  if (event.type === 'message.start') {
    const { type, model } = event;
    return { type, payload: { message_id, role: 'assistant', model, content: [], open_tool_inputs: [] } };
  }
  const at = { message_id, content_block_index: event.content_block_index };
  switch (event.type) {
    case 'text.delta':
      return { type: event.type, payload: { ...at, text: event.text } };
    case 'thinking.delta':
      return { type: event.type, payload: { ...at, text: event.text, signature: event.signature } };
    case 'tool.use_start':
      return {
        type: event.type,
        payload: { ...at, tool_use_id: event.tool_use_id, tool_name: event.tool_name },
      };
    case 'tool.use_input_delta':
      return {
        type: event.type,
        payload: { ...at, tool_use_id: event.tool_use_id, partial_json: event.partial_json },
      };
    case 'tool.use_end': {
      const { type, tool_use_id, final_input, input_error } = event;
      return { type, payload: { ...at, tool_use_id, final_input, input_error } };
    }
  }
}

export function transient(engine: Engine, run: TurnBase, delta: Delta): Transient {
  return { session_id: run.session.id, turn_id: run.turn.id, timestamp: engine.clock.now(), delta };
}

/** A message that was just stored, for clients that did not send it. */
export function appended(engine: Engine, run: TurnBase, message: StoredMessage): Transient {
  return transient(engine, run, { type: 'message.appended', payload: { message: withoutRaw(message) } });
}
