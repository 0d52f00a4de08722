// The gateway's nouns: the wires that clients speak, and whose credentials go on (19 §2).
import { z } from 'zod';

export const ClientWireSchema = z.enum(['messages', 'chat', 'responses']);
/** Anthropic Messages, OpenAI Chat Completions, OpenAI Responses. */
export type ClientWire = z.infer<typeof ClientWireSchema>;

/** Where each is served. */
export const WIRE_PATHS: Readonly<Record<ClientWire, string>> = {
  messages: '/v1/messages',
  chat: '/v1/chat/completions',
  responses: '/v1/responses',
};

/** Names that ask for a decision in place of a model. */
export const AUTO_NAMES: readonly string[] = ['auto', 'claude-auto'];
