// The shape of a turn before it is routed, and its signature (12 §12.2). No model call, no embedding.
import { EFFECT_CLASSES, type Fingerprint } from '#protocol/learning/pattern.ts';
import { canonicalJson, sha256Hex } from '#protocol/text/canonical-json.ts';
import type { ToolDefinition } from '#protocol/tool.ts';
import { intentsOf } from './intents.ts';
import type { Traces } from './traces.ts';

export interface FingerprintFacts {
  /** The new user message, or what a worker was told to do. */
  readonly text: string;
  readonly has_images: boolean;
  readonly estimated_input_tokens: number;
  readonly workspace_hash: string;
  /** Of the session before this turn. */
  readonly traces: Traces;
}

const TOKEN_BUCKETS = [1_000, 10_000, 100_000];

export function fingerprintOf(
  { text, has_images, estimated_input_tokens, workspace_hash, traces }: FingerprintFacts,
  definition: (name: string) => ToolDefinition | null,
): Fingerprint {
  const effects = new Set([...traces.tools].map((name) => definition(name)?.side_effects));
  return {
    file_extensions: [...traces.extensions].sort(),
    file_path_buckets: [...traces.buckets].sort(),
    tool_names: [...traces.tools].sort(),
    side_effect_classes: EFFECT_CLASSES.filter((effect) => effects.has(effect)),
    has_images,
    has_tool_calls_in_history: traces.tools.size > 0,
    estimated_input_tokens_bucket: TOKEN_BUCKETS.filter((limit) => estimated_input_tokens >= limit).length,
    intent_tags: intentsOf(text),
    workspace_hash,
  };
}

/** Canonical text and its SHA-256: equal for equal shapes in one workspace. */
export function signed(fingerprint: Fingerprint): {
  readonly structural_json: string;
  readonly structural_sig: string;
} {
  const structural_json = canonicalJson(fingerprint);
  return { structural_json, structural_sig: sha256Hex(structural_json) };
}
