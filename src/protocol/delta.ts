// Transient events: what is seen while a model speaks, never stored (06 §5.1).
import type { ContentBlock, Message, StopReason } from './message.ts';
import type { Usage } from './usage.ts';

export const TRANSIENT_TYPES = [
  'message.start',
  'message.complete',
  'message.appended',
  'text.delta',
  'thinking.delta',
  'tool.use_start',
  'tool.use_input_delta',
  'tool.use_end',
] as const;
export type TransientType = (typeof TRANSIENT_TYPES)[number];

export interface OpenToolInput {
  readonly content_block_index: number;
  readonly tool_use_id: string;
  readonly tool_name: string;
  readonly partial_json: string;
}

export type Delta =
  | {
      readonly type: 'message.start';
      readonly payload: {
        readonly message_id: string;
        readonly role: 'assistant';
        readonly model: string;
        readonly content: readonly ContentBlock[];
        readonly open_tool_inputs: readonly OpenToolInput[];
      };
    }
  | {
      readonly type: 'text.delta';
      readonly payload: { readonly message_id: string; readonly content_block_index: number; readonly text: string };
    }
  | {
      readonly type: 'thinking.delta';
      readonly payload: {
        readonly message_id: string;
        readonly content_block_index: number;
        readonly text: string;
        readonly signature: string | null;
      };
    }
  | {
      readonly type: 'tool.use_start';
      readonly payload: {
        readonly message_id: string;
        readonly content_block_index: number;
        readonly tool_use_id: string;
        readonly tool_name: string;
      };
    }
  | {
      readonly type: 'tool.use_input_delta';
      readonly payload: {
        readonly message_id: string;
        readonly content_block_index: number;
        readonly tool_use_id: string;
        readonly partial_json: string;
      };
    }
  | {
      readonly type: 'tool.use_end';
      readonly payload: {
        readonly message_id: string;
        readonly content_block_index: number;
        readonly tool_use_id: string;
        readonly final_input: Readonly<Record<string, unknown>>;
        readonly input_error: string | null;
      };
    }
  | {
      readonly type: 'message.complete';
      readonly payload: {
        readonly message_id: string;
        readonly stop_reason: StopReason;
        readonly final_content: readonly ContentBlock[];
        readonly usage: Usage;
        readonly latency_ms: number;
      };
    }
  | { readonly type: 'message.appended'; readonly payload: { readonly message: Message } };

/** A delta with its place: `timestamp` is Unix milliseconds. */
export interface Transient {
  readonly session_id: string;
  readonly turn_id: string | null;
  readonly timestamp: number;
  readonly delta: Delta;
}
