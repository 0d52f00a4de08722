// The rules of 01 §4.3 and §6.1 that a message must satisfy before it is stored.
import { describe, expect, it } from 'vitest';
import { messageViolations } from '#core/policy/journal/message-rules.ts';
import type { ContentBlock } from '#protocol/message.ts';
import { answerMetadata, message, text, toolResult, toolUse, toolUseId } from '../support/messages.ts';

const image: ContentBlock = { type: 'image', source: { kind: 'base64', data: 'AA==' }, media_type: 'image/png' };
const thinking: ContentBlock = { type: 'thinking', text: 'hm', signature: null };

describe('messageViolations', () => {
  it('accepts a well-formed message of every role', () => {
    expect(messageViolations(message(1, 'user', [text('hi'), image]))).toEqual([]);
    expect(messageViolations(message(2, 'assistant', [thinking, text('hi'), toolUse(1), toolUse(2)]))).toEqual([]);
    expect(messageViolations(message(3, 'tool', [toolResult(1)]))).toEqual([]);
    expect(messageViolations(message(4, 'system', []))).toEqual([]);
  });

  // Promise 01.3: A message that breaks rules is refused with every violation listed.
  it('lists every violation of one message at once', () => {
    expect(messageViolations(message(1, 'assistant', [image], { usage: null }))).toEqual([
      'content[0]: a block of type image is not allowed in a message of role assistant',
      'metadata.usage: is required on a complete assistant message',
    ]);
  });

  it('refuses empty content except in a system message', () => {
    for (const role of ['user', 'assistant', 'tool'] as const) {
      expect(messageViolations(message(1, role, [], { parent_tool_use_id: toolUseId(1) }))).toEqual([
        `content: must not be empty in a message of role ${role}`,
      ]);
    }
  });

  // Promise 01.4: A tool message must hold one result and name its call.
  it('refuses a tool message with two blocks, without its call, or naming another call', () => {
    expect(messageViolations(message(1, 'tool', [toolResult(1), toolResult(2)]))).toEqual([
      'content: a tool message holds exactly one tool_result, not 2',
    ]);
    expect(messageViolations(message(1, 'tool', [toolResult(1)], { parent_tool_use_id: null }))).toEqual([
      'metadata.parent_tool_use_id: is required on a tool message',
    ]);
    expect(messageViolations(message(1, 'tool', [toolResult(1)], { parent_tool_use_id: toolUseId(9) }))).toEqual([
      `metadata.parent_tool_use_id: must equal content[0].tool_use_id (${toolUseId(1)})`,
    ]);
  });

  it('refuses a partial message and a tool use id that occurs twice', () => {
    expect(messageViolations(message(1, 'assistant', [text('x')], { status: 'partial' }))).toEqual([
      'metadata.status: a partial message is never stored',
    ]);
    expect(messageViolations(message(1, 'assistant', [toolUse(1), toolUse(1)]))).toEqual([
      `content[1].id: ${toolUseId(1)} occurs twice in this message`,
    ]);
  });

  it('requires the author of a complete answer, and lets a cut one go without', () => {
    const none = { model: null, provider: null, routing: null, usage: null };
    expect(messageViolations(message(1, 'assistant', [text('x')], none))).toEqual([
      'metadata.model: is required on a complete assistant message',
      'metadata.provider: is required on a complete assistant message',
      'metadata.routing: is required on a complete assistant message',
      'metadata.usage: is required on a complete assistant message',
    ]);
    expect(messageViolations(message(1, 'assistant', [text('x')], { ...none, status: 'cancelled' }))).toEqual([]);
    const routing = { ...answerMetadata().routing!, chosen_model: 'openai:gpt-5' };
    expect(messageViolations(message(1, 'assistant', [text('x')], { routing }))).toEqual([
      'metadata.routing.chosen_model: must equal metadata.model',
    ]);
  });
});
