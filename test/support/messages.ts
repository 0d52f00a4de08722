// Stored messages for tests of pure code: valid by default, every field can be overridden.

import type { MessageId, SessionId, ToolUseId, TurnId } from '#protocol/ids.ts';
import type { ContentBlock, MessageMetadata, Role, StoredMessage, ToolUseBlock } from '#protocol/message.ts';
import { plainMetadata } from '#protocol/message.ts';
import { buildPlainCost, NO_TOKENS } from '#protocol/usage.ts';

/** The n-th valid ULID-shaped id. */
export function ulidOf(n: number): string {
  return `01${String(n).padStart(24, '0')}`;
}
export const toolUseId = (n: number) => `tu_${ulidOf(n)}` as ToolUseId;
export const messageId = (n: number) => ulidOf(n) as MessageId;

/** The model of every record that names none. */
export const MODEL = 'anthropic:claude-sonnet-4-6';

/** Metadata of a complete answer. */
export function answerMetadata(overrides: Partial<MessageMetadata> = {}): MessageMetadata {
  return {
    ...plainMetadata(),
    model: MODEL,
    provider: 'anthropic',
    routing: {
      mode: 'default',
      chosen_model: MODEL,
      reason: 'global default',
      rule_name: null,
      confidence: null,
      alternatives_considered: [],
    },
    usage: { ...NO_TOKENS, ...buildPlainCost('0'), pricing_version: 'A', priced: true, latency_ms: 1 },
    ...overrides,
  };
}

/** A message of the role with the metadata that its role requires. */
export function message(
  n: number,
  role: Role,
  content: readonly ContentBlock[],
  metadata: Partial<MessageMetadata> = {},
): StoredMessage {
  const first = content[0];
  const base =
    role === 'assistant'
      ? answerMetadata()
      : plainMetadata(role === 'tool' && first?.type === 'tool_result' ? first.tool_use_id : null);
  return {
    id: messageId(n),
    session_id: `sess_${ulidOf(1)}` as SessionId,
    turn_id: ulidOf(2) as TurnId,
    role,
    content: [...content],
    metadata: { ...base, ...metadata },
    created_at: '2026-05-08T14:23:11.123Z',
    provider_raw: null,
  };
}

export const text = (value: string): ContentBlock => ({ type: 'text', text: value });
export const toolUse = (n: number, name = 'read_file', input: ToolUseBlock['input'] = {}): ToolUseBlock => ({
  type: 'tool_use',
  id: toolUseId(n),
  name,
  input,
});
export const toolResult = (n: number, value = 'ok'): ContentBlock => ({
  type: 'tool_result',
  tool_use_id: toolUseId(n),
  content: [{ type: 'text', text: value }],
  is_error: false,
});
