// What Anthropic Messages says of an answer's tokens (11.5, 19 §2.2).
import { isMapping } from '#core/policy/parsing/yaml.ts';
import { STOP_REASONS } from '../anthropic/decode-stream.ts';
import { nameOf } from '../event-data.ts';
import { count, type UsageRound } from '../usage-report.ts';
import { faultOf, type Reading, type WireMeter } from './meter.ts';

type Json = Readonly<Record<string, unknown>>;

export const messagesMeter: WireMeter = {
  event(value, reading) {
    if (!isMapping(value)) return;
    switch (value.type) {
      case 'message_start':
        if (!isMapping(value.message)) return;
        reading.served_model = nameOf(value.message.model);
        reading.response_id = nameOf(value.message.id);
        readUsage(value.message.usage, reading);
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
        readUsage(value.usage, reading);
        if (count(value.usage.output_tokens) !== null) reading.usage.early = false;
        return;
      }
      case 'message_stop':
        reading.whole = true;
        return;
      case 'error':
        reading.fault = faultOf(value, null);
        return;
      default:
        if ('error' in value) reading.fault = faultOf(value, null);
    }
  },
  body(value, reading) {
    if (!isMapping(value)) return;
    if (value.error != null) reading.fault = faultOf(value, null);
    reading.served_model = nameOf(value.model);
    reading.response_id = nameOf(value.id);
    readStop(value.stop_reason, reading);
    readUsage(value.usage, reading);
    for (const block of Array.isArray(value.content) ? value.content : []) {
      readBlock(block, reading);
      if (isMapping(block) && isMapping(block.input)) reading.characters += JSON.stringify(block.input).length;
    }
  },
};

function readStop(reason: unknown, reading: Reading): void {
  if (typeof reason === 'string') reading.stop_reason = STOP_REASONS.get(reason) ?? 'end_turn';
}

function readBlock(block: unknown, reading: Reading): void {
  if (!isMapping(block)) return;
  if (block.type === 'tool_use') reading.tool_calls++;
  else if (block.type === 'thinking' || block.type === 'redacted_thinking') reading.thinking_blocks++;
  reading.characters += length(block.text) + length(block.thinking) + length(block.name);
}

/** Counts are cumulative: what is given replaces what was known. Several rounds of one call are added up. */
function readUsage(wire: unknown, reading: Reading): void {
  if (!isMapping(wire)) return;
  const rounds = Array.isArray(wire.iterations) ? wire.iterations.filter(isMapping).filter(isBilled) : [];
  if (rounds.length > 0) reading.rounds = rounds.map((one) => ({ model: nameOf(one.model), usage: countsOf(one) }));
  const given = rounds.length > 0 ? reading.rounds.map(({ usage }) => usage) : [countsOf(wire)];
  for (const key of CLASSES) {
    const counts = given.map((usage) => usage[key]).filter((n) => n !== null);
    if (counts.length > 0) reading.usage[key] = counts.reduce((a, b) => a + b, 0);
  }
}

/** A model that declined and wrote nothing is not billed: another one answered behind it. */
function isBilled({ type, output_tokens }: Json, at: number, all: readonly Json[]): boolean {
  const declined = type === 'message' && output_tokens === 0;
  return !declined || !all.slice(at + 1).some((later) => later.type === 'fallback_message');
}

const CLASSES = ['input', 'output', 'cached', 'creation', 'creation1h', 'reasoning'] as const;

function countsOf(one: Json): UsageRound['usage'] {
  return {
    input: count(one.input_tokens),
    output: count(one.output_tokens),
    cached: count(one.cache_read_input_tokens),
    creation: count(one.cache_creation_input_tokens),
    creation1h: count(inner(one.cache_creation, 'ephemeral_1h_input_tokens')),
    reasoning: count(inner(one.output_tokens_details, 'thinking_tokens')),
  };
}

function inner(value: unknown, key: string): unknown {
  return isMapping(value) ? value[key] : undefined;
}

function length(value: unknown): number {
  return typeof value === 'string' ? value.length : 0;
}
