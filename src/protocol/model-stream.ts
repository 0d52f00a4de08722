// What a model answers, event by event, whichever wire it came over (11.3).
import type { ToolUseId } from './ids.ts';
import type { ContentBlock, StopReason } from './message.ts';
import type { TokenUsage } from './usage.ts';

/**
 * What a stream yields.
 *
 * Contract: `message.start` first and `message.complete` last, each exactly once when anything was yielded;
 * `content_block_index` never decreases and is the block's place in `final_content`, which equals the fold of the deltas.
 * A stream that breaks off after its first event ends every open tool call, yields `message.complete` with
 * `stop_reason` `error` or `cancelled` and then throws an `AdapterError`; one that fails before it only throws.
 */
export type StreamEvent = { readonly message_id: string } & (
  | { readonly type: 'message.start'; readonly model: string }
  | { readonly type: 'text.delta'; readonly content_block_index: number; readonly text: string }
  | {
      readonly type: 'thinking.delta';
      readonly content_block_index: number;
      readonly text: string;
      /** Non-null only on the block's last delta, which may have empty text. */
      readonly signature: string | null;
    }
  | {
      readonly type: 'tool.use_start';
      readonly content_block_index: number;
      readonly tool_use_id: ToolUseId;
      readonly tool_name: string;
      readonly provider_tool_id: string | null;
    }
  | {
      readonly type: 'tool.use_input_delta';
      readonly content_block_index: number;
      readonly tool_use_id: ToolUseId;
      /** The provider's own fragment, never re-serialised. */
      readonly partial_json: string;
    }
  | {
      readonly type: 'tool.use_end';
      readonly content_block_index: number;
      readonly tool_use_id: ToolUseId;
      readonly final_input: Readonly<Record<string, unknown>>;
      readonly input_error: string | null;
    }
  | MessageComplete
);

export interface MessageComplete {
  readonly type: 'message.complete';
  readonly stop_reason: StopReason;
  readonly raw_stop_reason: string | null;
  readonly final_content: readonly ContentBlock[];
  readonly usage: TokenUsage;
  /** First byte of attempt 1 sent to the end, retries included. */
  readonly latency_ms: number;
  readonly retry_count: number;
  /** The model name that the provider says answered. */
  readonly served_model: string | null;
  /** The provider's own id of its answer. */
  readonly response_id: string | null;
  readonly provider_raw: Readonly<Record<string, unknown>> | null;
}
