// A registered model: tier, capabilities, availability and rates (03 §2).
import { z } from 'zod';
import type { ClientWire } from './client-wire.ts';
import { type Effort, EffortSchema, TierSchema, UsdSchema } from './scalars.ts';

export const MODEL_ID_PATTERN = /^[a-z0-9_-]+:[^\s]+$/;

/** What open models that read images in patches take at most as they are shipped; others say their figure. */
const DEFAULT_IMAGE_TOKENS = 16_384;

export const CapabilitiesSchema = z.strictObject({
  max_context_tokens: z.int().min(1),
  max_output_tokens: z.int().min(1),
  /** What its provider bills for one image at most; money for a call with images is reserved by it (14 §2). */
  max_image_tokens: z.int().min(1).default(DEFAULT_IMAGE_TOKENS),
  supports_tools: z.boolean().default(true),
  supports_system_prompt: z.boolean().default(true),
  supports_images: z.boolean().default(false),
  supports_structured_output: z.boolean().default(false),
  supports_thinking: z.boolean().default(false),
  supports_prompt_caching: z.boolean().default(false),
  accepted_image_media_types: z.array(z.string()).default([]),
  accepted_document_media_types: z.array(z.string()).default([]),
});
export type Capabilities = z.infer<typeof CapabilitiesSchema>;

/** Tokenizers that are counted with; a model names its own (14 §2). */
export const TokenizerNameSchema = z.enum(['o200k']);
export type TokenizerName = z.infer<typeof TokenizerNameSchema>;

/** One entry of the registry, resolved: every default filled in. */
export interface ModelEntry {
  readonly id: string;
  readonly tier: z.infer<typeof TierSchema> | null;
  readonly can_delegate: boolean;
  readonly aliases: readonly string[];
  /** Id of the adapter that serves it. */
  readonly adapter: string;
  /** Name sent to the provider. */
  readonly wire_name: string;
  /** Row of the price table. */
  readonly pricing_id: string;
  /** Null = not known: each byte of a text counts as a token. */
  readonly tokenizer: TokenizerName | null;
  readonly capabilities: Capabilities;
  readonly thinking: Readonly<Record<string, unknown>> | null;
  readonly extra_body: Readonly<Record<string, unknown>> | null;
  /** The efforts that it takes on each wire, the least first; null = none (22 §1). */
  readonly efforts: EffortsByWire | null;
  /** What its provider assumes where a request names no effort. */
  readonly default_effort: Effort | null;
  /** Id of the model of the same family that its provider names in its place; null = none (22 §5). */
  readonly superseded_by: string | null;
}

export type EffortsByWire = Readonly<Record<ClientWire, readonly Effort[]>>;

export const AvailabilitySchema = z.enum(['healthy', 'model_unavailable', 'provider_unavailable']);

/** The wire object of `GET /models` (05 §2). */
export const ModelSchema = z.object({
  id: z.string(),
  adapter: z.string(),
  tier: TierSchema.nullable(),
  can_delegate: z.boolean(),
  aliases: z.array(z.string()),
  /** What may follow its id or alias behind a colon, on any wire. */
  efforts: z.array(EffortSchema),
  default_effort: EffortSchema.nullable(),
  capabilities: CapabilitiesSchema,
  /** The model's adapter is usable: it has a key, or needs none. */
  configured: z.boolean(),
  /** The newer model of the same family (22 §5). */
  superseded_by: z.string().nullable(),
  /** A script answers in place of a model; its money is no real money (08 §5). */
  simulated: z.boolean(),
  /** Availability by the calls so far; meaningless for a model that is not configured. */
  availability: AvailabilitySchema,
  pricing: z
    .object({
      input_per_mtok: UsdSchema,
      output_per_mtok: UsdSchema,
      cached_read_per_mtok: UsdSchema,
      cache_creation_per_mtok: UsdSchema,
      currency: z.literal('USD'),
      pricing_version: z.string(),
    })
    .nullable(),
});
export type Model = z.infer<typeof ModelSchema>;

/** The text before the first colon of a model id. */
export function getProvider(modelId: string): string {
  return modelId.slice(0, modelId.indexOf(':'));
}
