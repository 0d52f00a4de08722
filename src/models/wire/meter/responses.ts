// What OpenAI Responses says of an answer's tokens (19 §2.2).
import { isMapping } from '#core/policy/parsing/yaml.ts';
import { nameOf } from '../event-data.ts';
import { count } from '../usage-report.ts';
import { faultOf, type Reading, type WireMeter } from './meter.ts';

type Json = Readonly<Record<string, unknown>>;

const ENDS: ReadonlySet<unknown> = new Set(['response.completed', 'response.incomplete', 'response.failed']);
/** States of an answer that is still to be made, and of one that is over. */
const UNDER_WAY: ReadonlySet<unknown> = new Set(['queued', 'in_progress']);
const OVER: ReadonlySet<unknown> = new Set(['completed', 'incomplete', 'failed', 'cancelled']);
const BEGINNINGS: ReadonlySet<unknown> = new Set(['response.created', 'response.queued', 'response.in_progress']);
/** Events whose `delta` is a piece of the answer. */
const PIECE = /^response\.(output_text|refusal|function_call_arguments|custom_tool_call_input|reasoning_\w+)\.delta$/;
const CALLS: ReadonlySet<unknown> = new Set(['function_call', 'custom_tool_call', 'local_shell_call', 'shell_call']);

export const responsesMeter: WireMeter = {
  event(value, reading) {
    if (!isMapping(value)) return;
    const { type, response } = value;
    if (ENDS.has(type) && isMapping(response)) {
      readResponse(response, reading);
      reading.background = backgroundOf(response, true);
      reading.whole = true;
    } else if (BEGINNINGS.has(type) && isMapping(response)) {
      reading.served_model = nameOf(response.model);
      reading.response_id = nameOf(response.id);
      if (response.background === true) reading.background = backgroundOf(response, false);
    } else if (type === 'response.output_item.added') readItem(value.item, reading);
    else if (type === 'error') reading.fault = faultOf(isMapping(value.error) ? value : { error: value }, null);
    else if (typeof type === 'string' && PIECE.test(type)) reading.characters += length(value.delta);
  },
  body(value, reading) {
    if (!isMapping(value)) return;
    if (UNDER_WAY.has(value.status)) {
      reading.whole = false;
      reading.background = backgroundOf(value, false);
      return;
    }
    if (value.error != null) reading.fault = faultOf(value, null);
    if (OVER.has(value.status)) reading.background = backgroundOf(value, true);
    for (const item of Array.isArray(value.output) ? value.output : []) {
      readItem(item, reading);
      reading.characters += JSON.stringify(item).length;
    }
    readResponse(value, reading);
  },
};

function backgroundOf({ id }: Json, done: boolean): Reading['background'] {
  const name = nameOf(id);
  return name === null ? null : { id: name, done };
}

function readResponse(response: Json, reading: Reading): void {
  reading.served_model = nameOf(response.model) ?? reading.served_model;
  reading.response_id = nameOf(response.id) ?? reading.response_id;
  readUsage(response.usage, reading);
  if (response.status === 'failed') reading.fault = faultOf(response, null);
  else if (response.status === 'cancelled')
    reading.fault = { error_class: 'cancelled', error_detail: null, name: 'cancelled' };
  else if (response.status === 'incomplete') {
    const details = isMapping(response.incomplete_details) ? response.incomplete_details : {};
    reading.stop_reason = details.reason === 'max_output_tokens' ? 'max_tokens' : 'end_turn';
  } else reading.stop_reason = reading.tool_calls > 0 ? 'tool_use' : 'end_turn';
}

function readItem(item: unknown, reading: Reading): void {
  if (!isMapping(item)) return;
  if (CALLS.has(item.type)) reading.tool_calls++;
  else if (item.type === 'reasoning') reading.thinking_blocks++;
}

/** The prompt count holds what was read from and written to a cache. */
function readUsage(wire: unknown, { usage }: Reading): void {
  if (!isMapping(wire)) return;
  const prompt = count(wire.input_tokens);
  if (prompt !== null) {
    const details = isMapping(wire.input_tokens_details) ? wire.input_tokens_details : {};
    usage.cached = count(details.cached_tokens) ?? 0;
    usage.creation = count(details.cache_write_tokens) ?? 0;
    usage.input = Math.max(0, prompt - usage.cached - usage.creation);
  }
  usage.output = count(wire.output_tokens) ?? usage.output;
  const details = isMapping(wire.output_tokens_details) ? wire.output_tokens_details : {};
  usage.reasoning = count(details.reasoning_tokens) ?? usage.reasoning;
}

function length(value: unknown): number {
  return typeof value === 'string' ? value.length : 0;
}
