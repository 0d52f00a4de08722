// What Anthropic Messages says of an answer's tokens (11.5, 19 §2.2).
import { isMapping } from '../../policy/parsing/yaml.ts';
import { STOP_REASONS } from '../anthropic/decode-stream.ts';
import { nameOf } from '../event-data.ts';
import { count, type UsageReport } from '../usage-report.ts';
import { faultOf, type Reading, type WireMeter } from './meter.ts';

type Json = Readonly<Record<string, unknown>>;

export const messagesMeter: WireMeter = {
  event(value, reading) {
    if (!isMapping(value)) return;
    switch (value.type) {
      case 'message_start':
        if (!isMapping(value.message)) return;
        reading.served_model = nameOf(value.message.model);
        readUsage(value.message.usage, reading.usage);
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
        readUsage(value.usage, reading.usage);
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
    reading.served_model = nameOf(value.model);
    readStop(value.stop_reason, reading);
    readUsage(value.usage, reading.usage);
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
function readUsage(wire: unknown, usage: UsageReport): void {
  if (!isMapping(wire)) return;
  const rounds = Array.isArray(wire.iterations) ? wire.iterations.filter(isMapping) : [];
  const given = rounds.length === 0 ? [wire] : rounds;
  const sum = (read: (one: Json) => unknown): number | null => {
    const counts = given.map((one) => count(read(one))).filter((n) => n !== null);
    return counts.length === 0 ? null : counts.reduce((a, b) => a + b, 0);
  };
  usage.input = sum((one) => one.input_tokens) ?? usage.input;
  usage.output = sum((one) => one.output_tokens) ?? usage.output;
  usage.cached = sum((one) => one.cache_read_input_tokens) ?? usage.cached;
  usage.creation = sum((one) => one.cache_creation_input_tokens) ?? usage.creation;
  usage.creation1h = sum((one) => inner(one.cache_creation, 'ephemeral_1h_input_tokens')) ?? usage.creation1h;
  usage.reasoning = sum((one) => inner(one.output_tokens_details, 'thinking_tokens')) ?? usage.reasoning;
}

function inner(value: unknown, key: string): unknown {
  return isMapping(value) ? value[key] : undefined;
}

function length(value: unknown): number {
  return typeof value === 'string' ? value.length : 0;
}
