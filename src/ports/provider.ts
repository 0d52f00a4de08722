// The contract of the only code that talks to language models (11.2, 11.3, 11.7).
import type { ContentBlock, StopReason, StoredMessage } from '../domain/message.ts';
import type { ModelEntry } from '../domain/model.ts';
import type { ErrorClass } from '../domain/scalars.ts';
import type { JsonSchema } from '../domain/tool.ts';
import type { TokenUsage } from '../domain/usage.ts';
import type { RequestId, ToolUseId } from '../kernel/ids.ts';

/** What the model is told a tool is. */
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
  /** The stable system text. */
  readonly system_prompt: string | null;
  /** Always placed after the stable text. */
  readonly system_prompt_volatile: string | null;
  readonly max_output_tokens: number;
  readonly stop_sequences: readonly string[];
  readonly temperature: number | null;
  readonly output_schema: JsonSchema | null;
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
  readonly provider_raw: Readonly<Record<string, unknown>> | null;
}

/** Long-lived, stateless between calls, safe for concurrent calls. */
export interface ProviderAdapter {
  /** The adapter id of the registry: `anthropic`, `openai`, `scripted`, ... */
  readonly name: string;
  stream(request: CanonicalRequest, signal: AbortSignal): AsyncIterable<StreamEvent>;
  /** Idempotent; aborts nothing in flight. */
  close(): Promise<void>;
}

/** Classes for which the same call may succeed later. */
export const TRANSIENT_ERRORS: readonly ErrorClass[] = ['rate_limit', 'server_error', 'network'];

export interface AdapterErrorFields {
  readonly error_class: ErrorClass;
  readonly error_detail?: string | null;
  readonly provider_status?: number | null;
  readonly request_id: string;
  readonly provider_request_id?: string | null;
  readonly retry_after_seconds?: number | null;
  readonly retry_count?: number;
  /** Counts the provider reported before the first event; null when it reported none. */
  readonly usage?: TokenUsage | null;
  readonly latency_ms?: number;
}

/** The only error an adapter throws. `message` is scrubbed and at most 2 000 characters. */
export class AdapterError extends Error {
  readonly error_class: ErrorClass;
  readonly error_detail: string | null;
  readonly provider_status: number | null;
  readonly request_id: string;
  readonly provider_request_id: string | null;
  readonly retry_after_seconds: number | null;
  readonly retry_count: number;
  readonly usage: TokenUsage | null;
  readonly latency_ms: number;

  constructor(message: string, fields: AdapterErrorFields) {
    super(message);
    this.name = 'AdapterError';
    this.error_class = fields.error_class;
    this.error_detail = fields.error_detail ?? null;
    this.provider_status = fields.provider_status ?? null;
    this.request_id = fields.request_id;
    this.provider_request_id = fields.provider_request_id ?? null;
    this.retry_after_seconds = fields.retry_after_seconds ?? null;
    this.retry_count = fields.retry_count ?? 0;
    this.usage = fields.usage ?? null;
    this.latency_ms = fields.latency_ms ?? 0;
  }

  get retryable(): boolean {
    return TRANSIENT_ERRORS.includes(this.error_class);
  }
}

/** The adapters that have usable credentials, by adapter id. */
export type Providers = ReadonlyMap<string, ProviderAdapter>;
