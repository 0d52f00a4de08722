// The meter of each wire: token counts of Anthropic Messages, OpenAI Responses and Chat Completions (11.5, 11.6, 19 §2.2).
import { isMapping } from '#core/policy/parsing/yaml.ts';
import type { ClientWire } from '#protocol/client-wire.ts';
import { type Reading, readFault, type WireMeter } from './answer-meter.ts';
import { ANTHROPIC_STOP_REASONS } from './anthropic-stream.ts';
import { readCount, type UsageRound } from './assembly.ts';
import { cachedTokens, OPENAI_STOP_REASONS } from './openai-stream.ts';
import { readName } from './provider-values.ts';

type Json = Readonly<Record<string, unknown>>;

export const messagesMeter: WireMeter = {
  event(value, reading) {
    if (!isMapping(value)) return;
    switch (value.type) {
      case 'message_start':
        if (!isMapping(value.message)) return;
        reading.served_model = readName(value.message.model);
        reading.response_id = readName(value.message.id);
        readMessagesUsage(value.message.usage, reading);
        reading.usage.early = true;
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
        if (!isMapping(value.usage)) return;
        readMessagesUsage(value.usage, reading);
        if (readCount(value.usage.output_tokens) !== null) reading.usage.early = false;
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
    readMessagesUsage(value.usage, reading);
    for (const block of Array.isArray(value.content) ? value.content : []) {
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
  if (block.type === 'tool_use') reading.tool_calls++;
  else if (block.type === 'thinking' || block.type === 'redacted_thinking') reading.thinking_blocks++;
  reading.characters += length(block.text) + length(block.thinking) + length(block.name);
}

/** Counts are cumulative: new values replace old ones. Several rounds of one call are added up. */
function readMessagesUsage(wire: unknown, reading: Reading): void {
  if (!isMapping(wire)) return;
  const rounds = Array.isArray(wire.iterations) ? wire.iterations.filter(isMapping).filter(isBilled) : [];
  if (rounds.length > 0) reading.rounds = rounds.map((one) => ({ model: readName(one.model), usage: readCounts(one) }));
  const given = rounds.length > 0 ? reading.rounds.map(({ usage }) => usage) : [readCounts(wire)];
  for (const key of CLASSES) {
    const counts = given.map((usage) => usage[key]).filter((n) => n !== null);
    if (counts.length > 0) reading.usage[key] = counts.reduce((a, b) => a + b, 0);
  }
}

/** A model that declined without output is not billed if a fallback model answered after it. */
function isBilled({ type, output_tokens }: Json, at: number, all: readonly Json[]): boolean {
  const declined = type === 'message' && output_tokens === 0;
  return !declined || !all.slice(at + 1).some((later) => later.type === 'fallback_message');
}

const CLASSES = ['input', 'output', 'cached', 'creation', 'creation1h', 'reasoning'] as const;

function readCounts(one: Json): UsageRound['usage'] {
  return {
    input: readCount(one.input_tokens),
    output: readCount(one.output_tokens),
    cached: readCount(one.cache_read_input_tokens),
    creation: readCount(one.cache_creation_input_tokens),
    creation1h: readCount(readMember(one.cache_creation, 'ephemeral_1h_input_tokens')),
    reasoning: readCount(readMember(one.output_tokens_details, 'thinking_tokens')),
  };
}

function readMember(value: unknown, key: string): unknown {
  if (isMapping(value)) return value[key];
  return undefined;
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
      if (response.background === true) reading.background = readBackground(response, false);
    } else if (type === 'response.output_item.added') readItem(value.item, reading);
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
    for (const item of Array.isArray(value.output) ? value.output : []) {
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
  if (response.status === 'failed') reading.fault = readFault(response, null);
  else if (response.status === 'cancelled')
    reading.fault = { error_class: 'cancelled', error_detail: null, name: 'cancelled' };
  else if (response.status === 'incomplete') {
    const details = isMapping(response.incomplete_details) ? response.incomplete_details : {};
    reading.stop_reason = details.reason === 'max_output_tokens' ? 'max_tokens' : 'end_turn';
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
    const details = isMapping(wire.input_tokens_details) ? wire.input_tokens_details : {};
    usage.cached = readCount(details.cached_tokens) ?? 0;
    usage.creation = readCount(details.cache_write_tokens) ?? 0;
    usage.input = Math.max(0, prompt - usage.cached - usage.creation);
  }
  usage.output = readCount(wire.output_tokens) ?? usage.output;
  const details = isMapping(wire.output_tokens_details) ? wire.output_tokens_details : {};
  usage.reasoning = readCount(details.reasoning_tokens) ?? usage.reasoning;
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
  readChatUsage(value.usage ?? (isMapping(value.x_groq) ? value.x_groq.usage : null), reading);
  if (value.error != null) reading.fault = readFault(value, null);
  for (const choice of Array.isArray(value.choices) ? value.choices : []) {
    if (!isMapping(choice)) continue;
    const { finish_reason } = choice;
    if (finish_reason === 'error' || choice.error != null)
      reading.fault =
        choice.error == null
          ? { error_class: 'server_error', error_detail: null, name: null }
          : readFault(choice, null);
    else if (typeof finish_reason === 'string' && finish_reason !== '')
      reading.stop_reason = OPENAI_STOP_REASONS.get(finish_reason) ?? 'end_turn';
    const delta = choice[part];
    if (isMapping(delta)) readDelta(delta, reading);
  }
}

function readDelta(delta: Readonly<Record<string, unknown>>, reading: Reading): void {
  const { content, refusal, reasoning, reasoning_content, tool_calls } = delta;
  for (const text of [content, refusal, reasoning, reasoning_content]) addCharacters(text, reading);
  for (const call of Array.isArray(tool_calls) ? tool_calls : []) {
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
    const details = isMapping(wire.prompt_tokens_details) ? wire.prompt_tokens_details : {};
    usage.cached = cachedTokens(wire) ?? 0;
    usage.creation = readCount(details.cache_write_tokens) ?? 0;
    usage.input = Math.max(0, prompt - usage.cached - usage.creation);
  }
  usage.output = readCount(wire.completion_tokens) ?? usage.output;
  const details = isMapping(wire.completion_tokens_details) ? wire.completion_tokens_details : {};
  usage.reasoning = readCount(details.reasoning_tokens) ?? usage.reasoning;
}

export const METERS: Readonly<Record<ClientWire, WireMeter>> = {
  messages: messagesMeter,
  chat: chatMeter,
  responses: responsesMeter,
};
