// What a model is asked: one logical model call in the canonical form, whichever wire it goes over (11.2).
import type { RequestId } from './ids.ts';
import type { StoredMessage } from './message.ts';
import type { ModelEntry } from './model.ts';
import type { JsonSchema } from './tool.ts';

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
  /** The stable system text. */
  readonly system_prompt: string | null;
  /** Always placed after the stable text. */
  readonly system_prompt_volatile: string | null;
  readonly max_output_tokens: number;
  readonly stop_sequences: readonly string[];
  readonly temperature: number | null;
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
