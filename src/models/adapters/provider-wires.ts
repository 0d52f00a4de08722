// The wires that the shared HTTP transport speaks: path, headers and codecs of each provider type (11.5, 11.6).

import { ANTHROPIC_VERSION } from '#core/policy/registry/adapter-config.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { CanonicalRequest } from '#protocol/model-call.ts';
import { type AnthropicOptions, createAnthropicEncoder } from '../wire/anthropic-request.ts';
import { createAnthropicDecoder } from '../wire/anthropic-stream.ts';
import type { Assembly } from '../wire/assembly.ts';
import type { Decoder } from '../wire/codec.ts';
import { createOpenAiEncoder, type OpenAiOptions } from '../wire/openai-request.ts';
import { createOpenAiDecoder } from '../wire/openai-stream.ts';
import { createResponsesEncoder } from '../wire/responses-request.ts';
import { createResponsesDecoder } from '../wire/responses-stream.ts';

export interface Wire {
  /** Appended to the base URL. */
  readonly path: string;
  /** Credential and version headers. */
  readonly headers: Readonly<Record<string, string>>;
  /** The JSON body in pieces, none of which changes any more; equal requests give equal bytes. */
  encode(request: CanonicalRequest): readonly Uint8Array[];
  decoder(assembly: Assembly): Decoder;
}

export const ANTHROPIC_BASE_URL = 'https://api.anthropic.com';

export function anthropicWire(key: string | null, options: AnthropicOptions, log: Logger): Wire {
  return {
    path: '/v1/messages',
    headers: {
      'anthropic-version': options.api_version ?? ANTHROPIC_VERSION,
      ...(key !== null && { 'x-api-key': key }),
    },
    encode: createAnthropicEncoder(options, log),
    decoder: (assembly) => createAnthropicDecoder(assembly, log),
  };
}

export const OPENAI_BASE_URL = 'https://api.openai.com/v1';
export const OPENROUTER_BASE_URL = 'https://openrouter.ai/api/v1';

export function responsesWire(key: string | null, log: Logger): Wire {
  return {
    path: '/responses',
    headers: key === null ? {} : { authorization: `Bearer ${key}` },
    encode: createResponsesEncoder(log),
    decoder: (assembly) => createResponsesDecoder(assembly, log),
  };
}

export function openAiWire(
  type: 'openai' | 'openrouter',
  key: string | null,
  options: OpenAiOptions,
  log: Logger,
): Wire {
  return {
    path: '/chat/completions',
    headers: key === null ? {} : { authorization: `Bearer ${key}` },
    encode: createOpenAiEncoder(type, options, log),
    decoder: (assembly) => createOpenAiDecoder(assembly, log),
  };
}
