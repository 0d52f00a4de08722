// The OpenAI Chat Completions wire: path, headers, body, events (11.6).
import type { Logger } from '#core/ports/log.ts';
import { createOpenAiDecoder } from '../wire/openai/decode-stream.ts';
import { createOpenAiEncoder, type OpenAiOptions } from '../wire/openai/encode-request.ts';
import type { Wire } from './wire.ts';

export const OPENAI_BASE_URL = 'https://api.openai.com/v1';
export const OPENROUTER_BASE_URL = 'https://openrouter.ai/api/v1';

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
