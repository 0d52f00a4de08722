// The meter of each wire: token counts of Anthropic Messages, OpenAI Responses and Chat Completions (11.5, 11.6, 19 §2.2).
import { isMapping } from '#core/policy/parsing/yaml.ts';
import type { ClientWire } from '#protocol/client-wire.ts';
import { type Reading, readFault, type WireMeter } from './answer-meter.ts';
import { ANTHROPIC_STOP_REASONS, readMessagesUsage } from './anthropic-stream.ts';
import { readCount } from './assembly.ts';
import { readChatBill, readMessagesBlock, readResponsesBill, readResponsesItem } from './billed-parts.ts';
import { cachedTokens, OPENAI_STOP_REASONS } from './openai-stream.ts';
import { readName } from './provider-values.ts';

export const messagesMeter: WireMeter = {
  event(value, reading) {
    if (!isMapping(value)) return;
    switch (value.type) {
      case 'message_start':
        if (!isMapping(value.message)) return;
        reading.served_model = readName(value.message.model);
        reading.response_id = readName(value.message.id);
        readMessagesUsage(value.message.usage, reading, true);
        return;
      case 'content_block_start':
        readBlock(value.content_block, reading);
        return;
      case 'content_block_delta':
        if (!isMapping(value.delta)) return;
        reading.characters += length(value.delta.text);
        reading.characters += length(value.delta.thinking) + length(value.delta.partial_json);
        return;
      case 'message_delta': {
        if (isMapping(value.delta)) readStop(value.delta.stop_reason, reading);
        readMessagesUsage(value.usage, reading, false);
        return;
      }
      case 'message_stop':
        reading.whole = true;
        return;
      case 'error':
        reading.fault = readFault(value, null);
        return;
      default:
        if ('error' in value) reading.fault = readFault(value, null);
    }
  },
  body(value, reading) {
    if (!isMapping(value)) return;
    if (value.error != null) reading.fault = readFault(value, null);
    reading.served_model = readName(value.model);
    reading.response_id = readName(value.id);
    readStop(value.stop_reason, reading);
    readMessagesUsage(value.usage, reading, false);
    for (const block of toList(value.content)) {
      readBlock(block, reading);
      if (isMapping(block) && isMapping(block.input)) reading.characters += JSON.stringify(block.input).length;
    }
  },
};

function readStop(reason: unknown, reading: Reading): void {
  if (typeof reason === 'string') reading.stop_reason = ANTHROPIC_STOP_REASONS.get(reason) ?? 'end_turn';
}

function readBlock(block: unknown, reading: Reading): void {
  if (!isMapping(block)) return;
  readMessagesBlock(block, reading.bill);
  if (block.type === 'tool_use') reading.tool_calls++;
  else if (block.type === 'thinking' || block.type === 'redacted_thinking') reading.thinking_blocks++;
  reading.characters += length(block.text) + length(block.thinking) + length(block.name);
}

function readMember(value: unknown, key: string): unknown {
  if (isMapping(value)) return value[key];
  return undefined;
}

function toList(value: unknown): readonly unknown[] {
  if (Array.isArray(value)) return value;
  return [];
}

function length(value: unknown): number {
  if (typeof value === 'string') return value.length;
  return 0;
}

// OpenAI Responses (19 §2.2).

type ResponsesJson = Readonly<Record<string, unknown>>;

const ENDS: ReadonlySet<unknown> = new Set(['response.completed', 'response.incomplete', 'response.failed']);
/** States of an unfinished answer. */
const UNDER_WAY: ReadonlySet<unknown> = new Set(['queued', 'in_progress']);
const OVER: ReadonlySet<unknown> = new Set(['completed', 'incomplete', 'failed', 'cancelled']);
const BEGINNINGS: ReadonlySet<unknown> = new Set(['response.created', 'response.queued', 'response.in_progress']);
/** Events whose `delta` is a piece of the answer. */
const PIECE = /^response\.(output_text|refusal|function_call_arguments|custom_tool_call_input|reasoning_\w+)\.delta$/;
const RESPONSES_CALLS: ReadonlySet<unknown> = new Set([
  'function_call',
  'custom_tool_call',
  'local_shell_call',
  'shell_call',
]);

const responsesMeter: WireMeter = {
  event(value, reading) {
    if (!isMapping(value)) return;
    const { type, response } = value;
    if (ENDS.has(type) && isMapping(response)) {
      readResponse(response, reading);
      reading.background = readBackground(response, true);
      reading.whole = true;
    } else if (BEGINNINGS.has(type) && isMapping(response)) {
      reading.served_model = readName(response.model);
      reading.response_id = readName(response.id);
      readResponsesBill(response, reading.bill);
      if (response.background === true) reading.background = readBackground(response, false);
    } else if (type === 'response.output_item.added') {
      readItem(value.item, reading);
      readResponsesItem(value.item, reading.bill);
    } else if (type === 'response.output_item.done') readResponsesItem(value.item, reading.bill);
    else if (type === 'error') reading.fault = readFault(isMapping(value.error) ? value : { error: value }, null);
    else if (typeof type === 'string' && PIECE.test(type)) reading.characters += countCharacters(value.delta);
  },
  body(value, reading) {
    if (!isMapping(value)) return;
    if (UNDER_WAY.has(value.status)) {
      reading.whole = false;
      reading.background = readBackground(value, false);
      return;
    }
    if (value.error != null) reading.fault = readFault(value, null);
    if (OVER.has(value.status)) reading.background = readBackground(value, true);
    for (const item of toList(value.output)) {
      readItem(item, reading);
      reading.characters += JSON.stringify(item).length;
    }
    readResponse(value, reading);
  },
};

function readBackground({ id }: ResponsesJson, done: boolean): Reading['background'] {
  const name = readName(id);
  if (name === null) return null;
  return { id: name, done };
}

function readResponse(response: ResponsesJson, reading: Reading): void {
  reading.served_model = readName(response.model) ?? reading.served_model;
  reading.response_id = readName(response.id) ?? reading.response_id;
  readResponsesUsage(response.usage, reading);
  readResponsesBill(response, reading.bill);
  if (response.status === 'failed') reading.fault = readFault(response, null);
  else if (response.status === 'cancelled')
    reading.fault = { error_class: 'cancelled', error_detail: null, name: 'cancelled' };
  else if (response.status === 'incomplete') {
    const reason = readMember(response.incomplete_details, 'reason');
    reading.stop_reason = reason === 'max_output_tokens' ? 'max_tokens' : 'end_turn';
  } else reading.stop_reason = reading.tool_calls > 0 ? 'tool_use' : 'end_turn';
}

function readItem(item: unknown, reading: Reading): void {
  if (!isMapping(item)) return;
  if (RESPONSES_CALLS.has(item.type)) reading.tool_calls++;
  else if (item.type === 'reasoning') reading.thinking_blocks++;
}

/** The prompt count holds what was read from and written to a cache. */
function readResponsesUsage(wire: unknown, { usage }: Reading): void {
  if (!isMapping(wire)) return;
  const prompt = readCount(wire.input_tokens);
  if (prompt !== null) {
    usage.cached = readCount(readMember(wire.input_tokens_details, 'cached_tokens')) ?? 0;
    usage.creation = readCount(readMember(wire.input_tokens_details, 'cache_write_tokens')) ?? 0;
    usage.input = Math.max(0, prompt - usage.cached - usage.creation);
  }
  usage.output = readCount(wire.output_tokens) ?? usage.output;
  usage.reasoning = readCount(readMember(wire.output_tokens_details, 'reasoning_tokens')) ?? usage.reasoning;
}

function countCharacters(value: unknown): number {
  if (typeof value === 'string') return value.length;
  return 0;
}

// Chat Completions (11.6, 19 §2.2).

const chatMeter: WireMeter = {
  mark(data, reading) {
    if (data !== '[DONE]') return false;
    reading.whole = reading.stop_reason !== null;
    return true;
  },
  event(value, reading) {
    if (!isMapping(value)) return;
    readChatAnswer(value, 'delta', reading);
    // Some servers omit the end mark.
    if (reading.stop_reason !== null && reading.fault === null) reading.whole = true;
  },
  body(value, reading) {
    if (isMapping(value)) readChatAnswer(value, 'message', reading);
  },
};

function readChatAnswer(value: Readonly<Record<string, unknown>>, part: 'delta' | 'message', reading: Reading): void {
  reading.served_model = readName(value.model) ?? reading.served_model;
  reading.response_id = readName(value.id) ?? reading.response_id;
  readChatUsage(value.usage ?? readMember(value.x_groq, 'usage'), reading);
  readChatBill(value, part, reading.bill);
  if (value.error != null) reading.fault = readFault(value, null);
  for (const choice of toList(value.choices)) {
    if (!isMapping(choice)) continue;
    const { finish_reason } = choice;
    if (choice.error != null) reading.fault = readFault(choice, null);
    else if (finish_reason === 'error') reading.fault = { error_class: 'server_error', error_detail: null, name: null };
    else if (typeof finish_reason === 'string' && finish_reason !== '')
      reading.stop_reason = OPENAI_STOP_REASONS.get(finish_reason) ?? 'end_turn';
    const delta = choice[part];
    if (isMapping(delta)) readDelta(delta, reading);
  }
}

function readDelta(delta: Readonly<Record<string, unknown>>, reading: Reading): void {
  const { content, refusal, reasoning, reasoning_content, tool_calls } = delta;
  for (const text of [content, refusal, reasoning, reasoning_content]) addCharacters(text, reading);
  for (const call of toList(tool_calls)) {
    if (!isMapping(call) || !isMapping(call.function)) continue;
    if (typeof call.function.name === 'string' && call.function.name !== '') reading.tool_calls++;
    addCharacters(call.function.name, reading);
    addCharacters(call.function.arguments, reading);
  }
}

function addCharacters(text: unknown, reading: Reading): void {
  if (typeof text === 'string') reading.characters += text.length;
}

/** The prompt count holds what was read from and written to a cache; the classes we keep are disjoint. */
function readChatUsage(wire: unknown, { usage }: Reading): void {
  if (!isMapping(wire)) return;
  const prompt = readCount(wire.prompt_tokens);
  if (prompt !== null) {
    usage.cached = cachedTokens(wire) ?? 0;
    usage.creation = readCount(readMember(wire.prompt_tokens_details, 'cache_write_tokens')) ?? 0;
    usage.input = Math.max(0, prompt - usage.cached - usage.creation);
  }
  usage.output = readCount(wire.completion_tokens) ?? usage.output;
  usage.reasoning = readCount(readMember(wire.completion_tokens_details, 'reasoning_tokens')) ?? usage.reasoning;
}

export const METERS: Readonly<Record<ClientWire, WireMeter>> = {
  messages: messagesMeter,
  chat: chatMeter,
  responses: responsesMeter,
};
