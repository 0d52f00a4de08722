// Both real adapters for a fake provider on the loopback: with the models that the fixture prices know, or with all that ship.
import fs from 'node:fs';
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
  openai:gpt-5-mini: { tier: fast, aliases: [mini], tokenizer: o200k, capabilities: ${CAPABILITIES} }
${rest}`;
}

/** A file of the folder `config`. */
export const shippedFile = (name: string) => fs.readFileSync(new URL(`../../config/${name}`, import.meta.url), 'utf8');

/** The registry and the prices that ship with the package, its real adapters at the fake's addresses. */
export function shippedAt({ anthropicUrl, openaiUrl }: Pick<FakeProvider, 'anthropicUrl' | 'openaiUrl'>) {
  const registry = shippedFile('registry.yaml')
    .replace('anthropic: { type: anthropic }', `anthropic: { type: anthropic, base_url: ${anthropicUrl} }`)
    .replace('openai: { type: openai,', `openai: { type: openai, base_url: ${openaiUrl},`);
  return { registry, prices: [shippedFile('prices.json')] };
}
