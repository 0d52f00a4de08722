// The request of a model call in its canonical form, independent of the provider's wire (11.2).
import type { RequestId, ToolUseId } from './ids.ts';
import type { ContentBlock, StopReason, StoredMessage } from './message.ts';
import type { ModelEntry } from './model.ts';
import type { Effort } from './scalars.ts';
import type { JsonSchema } from './tool.ts';
import type { ReportedBill, TokenUsage } from './usage.ts';

/** A tool as the model sees it. */
export interface WireTool {
  readonly name: string;
  readonly description: string;
  readonly input_schema: JsonSchema;
}

/** One logical model call; constant across retries. */
export interface CanonicalRequest {
  readonly request_id: RequestId;
  /** The registry entry: `id` is the canonical model id, `wire_name` what the provider is sent. */
  readonly model: ModelEntry;
  readonly messages: readonly StoredMessage[];
  readonly tools: readonly WireTool[];
  /** The model may call none of `tools`, which are sent all the same so that the cached prefix stays. Absent = it may. */
  readonly tool_choice?: 'none';
  /** The stable system text. */
  readonly system_prompt: string | null;
  /** Always placed after the stable text. */
  readonly system_prompt_volatile: string | null;
  readonly max_output_tokens: number;
  readonly stop_sequences: readonly string[];
  readonly temperature: number | null;
  /** Null = the provider's default. */
  readonly effort: Effort | null;
  readonly output_schema: JsonSchema | null;
  /** How long the provider is to keep the prompt, where it has a choice (20 §8). */
  readonly cache_ttl: '5m' | '1h';
  /** Read only by logging and the scripted provider; never alters what a real adapter sends. Indices from 1. */
  readonly caller: {
    readonly session_id: string;
    readonly turn_id: string;
    readonly is_worker: boolean;
    readonly parent_session_id: string | null;
    readonly turn_index: number;
    readonly call_index: number;
  };
}

// The answer of a model as events, independent of the provider's wire (11.3).

/**
 * Items of a stream.
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
  /** Null when nothing is billed beside the tokens of one sampling. */
  readonly bill: ReportedBill | null;
  /** First byte of attempt 1 sent to the end, retries included. */
  readonly latency_ms: number;
  readonly retry_count: number;
  /** The model name that the provider reports in its answer. */
  readonly served_model: string | null;
  /** The provider's own id of its answer. */
  readonly response_id: string | null;
  readonly provider_raw: Readonly<Record<string, unknown>> | null;
}
