// What Chat Completions says of an answer's tokens, and the chunk of counts that a client did not ask for (11.6, 19 §2.2).
import { isMapping } from '#core/policy/parsing/yaml.ts';
import { nameOf } from '../event-data.ts';
import { cachedTokens, STOP_REASONS } from '../openai/decode-stream.ts';
import { count } from '../usage-report.ts';
import { faultOf, type Reading, type WireMeter } from './meter.ts';

export const chatMeter: WireMeter = {
  mark(data, reading) {
    if (data !== '[DONE]') return false;
    reading.whole = reading.stop_reason !== null;
    return true;
  },
  event(value, reading) {
    if (!isMapping(value)) return;
    readAnswer(value, 'delta', reading);
    // Servers exist that leave the mark at the end out.
    if (reading.stop_reason !== null && reading.fault === null) reading.whole = true;
  },
  body(value, reading) {
    if (isMapping(value)) readAnswer(value, 'message', reading);
  },
};

function readAnswer(value: Readonly<Record<string, unknown>>, part: 'delta' | 'message', reading: Reading): void {
  reading.served_model = nameOf(value.model) ?? reading.served_model;
  reading.response_id = nameOf(value.id) ?? reading.response_id;
  readUsage(value.usage ?? (isMapping(value.x_groq) ? value.x_groq.usage : null), reading);
  if (value.error != null) reading.fault = faultOf(value, null);
  for (const choice of Array.isArray(value.choices) ? value.choices : []) {
    if (!isMapping(choice)) continue;
    const { finish_reason } = choice;
    if (finish_reason === 'error' || choice.error != null)
      reading.fault =
        choice.error == null ? { error_class: 'server_error', error_detail: null, name: null } : faultOf(choice, null);
    else if (typeof finish_reason === 'string' && finish_reason !== '')
      reading.stop_reason = STOP_REASONS.get(finish_reason) ?? 'end_turn';
    const said = choice[part];
    if (isMapping(said)) readSaid(said, reading);
  }
}

function readSaid(said: Readonly<Record<string, unknown>>, reading: Reading): void {
  for (const text of [said.content, said.refusal, said.reasoning, said.reasoning_content]) add(text, reading);
  for (const call of Array.isArray(said.tool_calls) ? said.tool_calls : []) {
    if (!isMapping(call) || !isMapping(call.function)) continue;
    if (typeof call.function.name === 'string' && call.function.name !== '') reading.tool_calls++;
    add(call.function.name, reading);
    add(call.function.arguments, reading);
  }
}

function add(text: unknown, reading: Reading): void {
  if (typeof text === 'string') reading.characters += text.length;
}

/** The prompt count holds what was read from and written to a cache; the classes we keep are disjoint. */
function readUsage(wire: unknown, { usage }: Reading): void {
  if (!isMapping(wire)) return;
  const prompt = count(wire.prompt_tokens);
  if (prompt !== null) {
    const details = isMapping(wire.prompt_tokens_details) ? wire.prompt_tokens_details : {};
    usage.cached = cachedTokens(wire) ?? 0;
    usage.creation = count(details.cache_write_tokens) ?? 0;
    usage.input = Math.max(0, prompt - usage.cached - usage.creation);
  }
  usage.output = count(wire.completion_tokens) ?? usage.output;
  const details = isMapping(wire.completion_tokens_details) ? wire.completion_tokens_details : {};
  usage.reasoning = count(details.reasoning_tokens) ?? usage.reasoning;
}
