// What has been yielded so far, folded into content: the message as its reader has it, whatever else had arrived (11.3 rules 4, 5, 7).
import type { ContentBlock } from '#protocol/message.ts';
import type { StreamEvent } from '#protocol/model-stream.ts';
import type { AssembledEvent } from '../wire/assembly.ts';

interface OpenTool {
  readonly index: number;
  readonly id: Extract<StreamEvent, { type: 'tool.use_start' }>['tool_use_id'];
  readonly name: string;
  json: string;
}

export interface Fold {
  /** Whether anything was yielded, which ends the time for retries. */
  started: boolean;
  readonly content: ContentBlock[];
  tool: OpenTool | null;
}

export function createFold(): Fold {
  return { started: false, content: [], tool: null };
}

/** Adds one event in the order of the stream. */
export function apply(fold: Fold, event: AssembledEvent): void {
  const { content } = fold;
  switch (event.type) {
    case 'message.start':
      fold.started = true;
      return;
    case 'text.delta': {
      const block = content[event.content_block_index];
      if (block?.type === 'text') block.text += event.text;
      else content.push({ type: 'text', text: event.text });
      return;
    }
    case 'thinking.delta': {
      const block = content[event.content_block_index];
      if (block?.type !== 'thinking') content.push({ type: 'thinking', text: event.text, signature: event.signature });
      else {
        block.text += event.text;
        block.signature = event.signature ?? block.signature;
      }
      return;
    }
    case 'redacted':
      content.push({ type: 'redacted_thinking', data: event.data });
      return;
    case 'tool.use_start':
      fold.tool = { index: event.content_block_index, id: event.tool_use_id, name: event.tool_name, json: '' };
      return;
    case 'tool.use_input_delta':
      if (fold.tool !== null) fold.tool.json += event.partial_json;
      return;
    case 'tool.use_end':
      if (fold.tool !== null)
        content.push({ type: 'tool_use', id: fold.tool.id, name: fold.tool.name, input: event.final_input });
      fold.tool = null;
      return;
    case 'message.complete':
      return;
  }
}
