// Both real adapters with the models that the fixture prices know, for a fake provider on the loopback.
import type { FakeProvider } from './fake-provider.ts';

export const KEYS = { anthropic: 'left-handed-lemon-squeezer', openai: 'right-handed-apple-peeler' };
export type Wire = keyof typeof KEYS;
export const WIRES = ['anthropic', 'openai'] as const satisfies readonly Wire[];

const CAPABILITIES = `{ max_context_tokens: 200000, max_output_tokens: 8192, supports_images: true, supports_structured_output: true, supports_thinking: true, supports_prompt_caching: true, accepted_image_media_types: [image/png, image/jpeg] }`;

/** Both real adapters at the fake's addresses, with the models that the fixture prices know. */
export function registryAt(fake: Pick<FakeProvider, 'anthropicUrl' | 'openaiUrl'>, rest = ''): string {
  return `
adapters:
  anthropic: { type: anthropic, base_url: ${fake.anthropicUrl} }
  openai: { type: openai, base_url: ${fake.openaiUrl} }
models:
  anthropic:claude-opus-4-7: { tier: deep, aliases: [opus], capabilities: ${CAPABILITIES} }
  anthropic:claude-haiku-4-5: { tier: fast, aliases: [haiku], capabilities: ${CAPABILITIES} }
  openai:gpt-5: { tier: deep, aliases: [gpt], capabilities: ${CAPABILITIES} }
  openai:gpt-5-mini: { tier: fast, aliases: [mini], capabilities: ${CAPABILITIES} }
${rest}`;
}
