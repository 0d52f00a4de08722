// The Anthropic Messages wire: path, headers, body, events (11.5).
import type { Logger } from '#core/ports/log.ts';
import { createAnthropicDecoder } from '../wire/anthropic/decode-stream.ts';
import { type AnthropicOptions, createAnthropicEncoder } from '../wire/anthropic/encode-request.ts';
import type { Wire } from './wire.ts';

export const ANTHROPIC_BASE_URL = 'https://api.anthropic.com';
export const ANTHROPIC_VERSION = '2023-06-01';

export function anthropicWire(
  key: string | null,
  options: AnthropicOptions & { readonly anthropic_version?: string | undefined },
  log: Logger,
): Wire {
  return {
    path: '/v1/messages',
    headers: {
      'anthropic-version': options.anthropic_version ?? ANTHROPIC_VERSION,
      ...(key === null ? {} : { 'x-api-key': key }),
    },
    encode: createAnthropicEncoder(options, log),
    decoder: (assembly) => createAnthropicDecoder(assembly, log),
  };
}
