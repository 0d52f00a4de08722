// Rules that a message must satisfy to be stored, alone and together with the tool call that it answers (01 §4.3, §6).
import type { ContentBlock, Role, StoredMessage } from '#protocol/message.ts';

const ALLOWED_BLOCKS: Readonly<Record<Role, readonly ContentBlock['type'][]>> = {
  user: ['text', 'image', 'document'],
  assistant: ['text', 'tool_use', 'thinking', 'redacted_thinking'],
  tool: ['tool_result'],
  system: ['text'],
};

/** Every rule the message breaks, one sentence each; empty = it may be stored. Never throws. */
export function messageViolations(message: StoredMessage): string[] {
  const { role, content, metadata } = message;
  const found: string[] = [];
  if (metadata.status === 'partial') found.push('metadata.status: a partial message is never stored');
  if (content.length === 0 && role !== 'system') found.push(`content: must not be empty in a message of role ${role}`);

  const allowed = ALLOWED_BLOCKS[role];
  const toolUseIds = new Set<string>();
  content.forEach((block, i) => {
    if (!allowed.includes(block.type)) {
      found.push(`content[${i}]: a block of type ${block.type} is not allowed in a message of role ${role}`);
    }
    if (block.type !== 'tool_use') return;
    if (toolUseIds.has(block.id)) found.push(`content[${i}].id: ${block.id} occurs twice in this message`);
    toolUseIds.add(block.id);
  });

  if (role === 'tool') found.push(...toolViolations(message));
  if (role === 'assistant' && metadata.status === 'complete') found.push(...answerViolations(message));
  return found;
}

function toolViolations({ content, metadata }: StoredMessage): string[] {
  const found: string[] = [];
  if (content.length > 1) found.push(`content: a tool message holds exactly one tool_result, not ${content.length}`);
  const answered = content[0]?.type === 'tool_result' ? content[0].tool_use_id : null;
  if (metadata.parent_tool_use_id === null) {
    found.push('metadata.parent_tool_use_id: is required on a tool message');
  } else if (answered !== null && metadata.parent_tool_use_id !== answered) {
    found.push(`metadata.parent_tool_use_id: must equal content[0].tool_use_id (${answered})`);
  }
  return found;
}

function answerViolations({ metadata }: StoredMessage): string[] {
  const found = (['model', 'provider', 'routing', 'usage'] as const)
    .filter((field) => metadata[field] === null)
    .map((field) => `metadata.${field}: is required on a complete assistant message`);
  if (metadata.routing !== null && metadata.routing.chosen_model !== metadata.model) {
    found.push('metadata.routing.chosen_model: must equal metadata.model');
  }
  return found;
}

/** The part of a stored tool call that a result is checked against. */
export interface AnsweredCall {
  readonly session_id: string;
  readonly message_id: string;
  readonly result_message_id: string | null;
}

/**
 * A result answers a call of an earlier assistant message of the same session, once (01 §6.2).
 * @param call the call the message names, null when there is none
 */
export function resultViolation(message: StoredMessage, toolUseId: string, call: AnsweredCall | null): string | null {
  const field = `content[0].tool_use_id: ${toolUseId}`;
  if (call === null || call.session_id !== message.session_id || call.message_id >= message.id) {
    return `${field} is no tool_use of an earlier message of this session`;
  }
  if (call.result_message_id === null) return null;
  return `${field} already has a result`;
}
