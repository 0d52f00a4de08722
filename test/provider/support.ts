// What provider tests share: requests, a reader that keeps everything, a clock that tests drive.
import { type Logger, silentLogger } from '#core/ports/logger.ts';
import { AdapterError, type ProviderAdapter } from '#core/ports/provider.ts';
import { type BaseOptions, createAdapter } from '#models/adapters/adapter-loop.ts';
import { anthropicWire, openAiWire, responsesWire } from '#models/adapters/provider-wires.ts';
import { createHttpClient } from '#models/http/http-client.ts';
import { createHttpTransport, type HttpResponse, readOneByOne, type Send } from '#models/http/provider-http.ts';
import { parseScenario } from '#models/scripted/scenario.ts';
import { createScriptedAdapter } from '#models/scripted/scripted-adapter.ts';
import type { AnthropicOptions } from '#models/wire/anthropic-request.ts';
import type { OpenAiOptions } from '#models/wire/openai-request.ts';
import { orAbort } from '#protocol/abort.ts';
import { type Clock, systemClock } from '#protocol/clock.ts';
import { createIdGenerator, type RequestId } from '#protocol/ids.ts';
import type { ContentBlock, StoredMessage } from '#protocol/message.ts';
import type { ModelEntry } from '#protocol/model.ts';
import type { CanonicalRequest, MessageComplete, StreamEvent } from '#protocol/model-call.ts';
import { message, text, ulidOf } from '../support/messages.ts';

export const user = (value: string): StoredMessage => message(1, 'user', [text(value)]);
export const toolMessage = (value: string): StoredMessage =>
  message(3, 'tool', [
    {
      type: 'tool_result',
      tool_use_id: `tu_${ulidOf(1)}` as never,
      content: [{ type: 'text', text: value }],
      is_error: false,
    },
  ]);
export const assistant = (...content: ContentBlock[]): StoredMessage => message(2, 'assistant', content);

export function modelEntry(
  id: string,
  over: Partial<Omit<ModelEntry, 'capabilities'>> & { capabilities?: Partial<ModelEntry['capabilities']> } = {},
): ModelEntry {
  return {
    id,
    tier: null,
    can_delegate: true,
    aliases: [],
    adapter: id.slice(0, id.indexOf(':')),
    wire_name: id.slice(id.indexOf(':') + 1),
    pricing_id: id,
    thinking: null,
    tokenizer: null,
    extra_body: null,
    efforts: null,
    default_effort: null,
    superseded_by: null,
    ...over,
    capabilities: {
      max_context_tokens: 200_000,
      max_output_tokens: 8192,
      max_image_tokens: 1500,
      supports_tools: true,
      supports_system_prompt: true,
      supports_images: true,
      supports_structured_output: true,
      supports_thinking: true,
      supports_prompt_caching: true,
      accepted_image_media_types: ['image/png'],
      accepted_document_media_types: ['application/pdf'],
      ...over.capabilities,
    },
  };
}

export const plannerCaller: CanonicalRequest['caller'] = {
  session_id: `sess_${ulidOf(1)}`,
  turn_id: ulidOf(2),
  is_worker: false,
  parent_session_id: null,
  turn_index: 1,
  call_index: 1,
};
export const workerCaller: CanonicalRequest['caller'] = {
  ...plannerCaller,
  is_worker: true,
  parent_session_id: `sess_${ulidOf(9)}`,
};

export interface RequestOverrides {
  readonly messages?: readonly StoredMessage[];
  readonly tools?: readonly string[];
  readonly model?: string;
  readonly entry?: ModelEntry;
  readonly turn?: number;
  readonly caller?: CanonicalRequest['caller'];
  readonly volatile?: string;
  readonly rest?: Partial<CanonicalRequest>;
}

export function request(over: RequestOverrides = {}): CanonicalRequest {
  const caller = over.caller ?? plannerCaller;
  return {
    request_id: ulidOf(77) as RequestId,
    model: over.entry ?? modelEntry(over.model ?? 'scripted:deep'),
    messages: over.messages ?? [user('hi')],
    tools: (over.tools ?? []).map((name) => ({ name, description: `does ${name}`, input_schema: { type: 'object' } })),
    system_prompt: null,
    system_prompt_volatile: over.volatile ?? null,
    max_output_tokens: 1000,
    stop_sequences: [],
    temperature: null,
    effort: null,
    output_schema: null,
    cache_ttl: '5m',
    caller: over.turn === undefined ? caller : { ...caller, turn_index: over.turn },
    ...over.rest,
  };
}

/** The body of a request as text. */
export function bodyText(pieces: readonly Uint8Array[]): string {
  return Buffer.concat(pieces).toString('utf8');
}

export interface Drained {
  readonly events: readonly StreamEvent[];
  readonly complete: MessageComplete | null;
  /** Text blocks of the final content. */
  readonly text: string;
  readonly error: AdapterError | null;
}

/** Reads a stream to its end and checks what holds for every stream. */
export async function drain(
  adapter: ProviderAdapter,
  req: CanonicalRequest,
  signal: AbortSignal = new AbortController().signal,
  onEvent: (event: StreamEvent) => void = () => {},
): Promise<Drained> {
  const events: StreamEvent[] = [];
  let error: AdapterError | null = null;
  try {
    await adapter.stream(req, signal, (event) => {
      events.push(event);
      onEvent(event);
    });
  } catch (thrown) {
    if (!(thrown instanceof AdapterError)) throw thrown;
    error = thrown;
  }
  assertContract(events, error);
  const last = events.at(-1);
  const complete = last?.type === 'message.complete' ? last : null;
  const blocks = complete?.final_content ?? [];
  return { events, complete, text: blocks.map((b) => (b.type === 'text' ? b.text : '')).join(''), error };
}

/** The promises of 11.3 that need no knowledge of the wire. */
export function assertContract(events: readonly StreamEvent[], error: AdapterError | null): void {
  const fail: (why: string) => never = (why) => {
    throw new Error(`${why}\n${events.map((e) => JSON.stringify(e).slice(0, 200)).join('\n')}`);
  };
  if (events.length === 0) {
    if (error === null) fail('nothing yielded and nothing thrown');
    return;
  }
  if (events[0]!.type !== 'message.start') fail('message.start is not first');
  if (events.at(-1)!.type !== 'message.complete') fail('message.complete is not last');
  if (new Set(events.map((e) => e.message_id)).size !== 1) fail('more than one message id');
  let index = 0;
  let open: { id: string; json: string } | null = null;
  const fold: { index: number; block: Record<string, unknown> }[] = [];
  const at = (i: number, type: string): Record<string, unknown> => {
    let found = fold.find((f) => f.index === i);
    if (found === undefined) {
      found = { index: i, block: { type, text: '', signature: null } };
      fold.push(found);
    }
    if (found.block.type !== type) fail(`block ${i} changes its type`);
    return found.block;
  };
  for (const [n, event] of events.entries()) {
    if (event.type === 'message.start' && n > 0) fail('a second message.start');
    if (event.type === 'message.complete' && n < events.length - 1) fail('message.complete before the end');
    if (!('content_block_index' in event)) continue;
    if (event.content_block_index < index) fail(`content_block_index falls at event ${n}`);
    index = event.content_block_index;
    if (event.type === 'text.delta') at(index, 'text').text += event.text;
    else if (event.type === 'thinking.delta') {
      const block = at(index, 'thinking');
      if (block.signature !== null) fail('a thinking delta after the signature');
      block.text += event.text;
      block.signature = event.signature;
    } else if (event.type === 'tool.use_start') {
      if (open !== null) fail('a call starts inside another');
      open = { id: event.tool_use_id, json: '' };
      Object.assign(at(index, 'tool_use'), { id: event.tool_use_id, name: event.tool_name });
    } else {
      if (open === null || open.id !== event.tool_use_id) fail('a call event without its start');
      if (event.type === 'tool.use_input_delta') open.json += event.partial_json;
      else {
        if (event.input_error === null && open.json.trim() !== '') {
          if (JSON.stringify(JSON.parse(open.json)) !== JSON.stringify(event.final_input))
            fail('final_input is not the deltas');
        }
        at(index, 'tool_use').input = event.final_input;
        open = null;
      }
    }
  }
  if (open !== null) fail('a call without its end');
  const complete = events.at(-1)!;
  if (complete.type !== 'message.complete') return;
  const broken = complete.stop_reason === 'error' || complete.stop_reason === 'cancelled';
  if (broken !== (error !== null)) fail('a broken-off message must throw, a whole one must not');
  for (const [i, block] of complete.final_content.entries()) {
    if (block.type === 'redacted_thinking') continue;
    const folded = fold.find((f) => f.index === i)?.block;
    if (folded === undefined) fail(`block ${i} has no events`);
    const same =
      block.type === 'text'
        ? folded.text === block.text
        : block.type === 'thinking'
          ? folded.text === block.text && folded.signature === block.signature
          : block.type === 'tool_use' &&
            folded.id === block.id &&
            folded.name === block.name &&
            JSON.stringify(folded.input) === JSON.stringify(block.input);
    if (folded.type !== block.type || !same) fail(`block ${i} is not the fold of its events`);
  }
  for (const { index: i } of fold)
    if (complete.final_content[i] === undefined) fail(`block ${i} is missing in final_content`);
}

export interface FakeClock extends Clock {
  /** Moves time, firing timers in order, and lets what they woke run. */
  advance(ms: number): Promise<void>;
  /** Timers not fired yet. */
  pending(): number;
  /** Durations asked for, in order. */
  readonly asked: readonly number[];
}

export function fakeClock(): FakeClock {
  let now = 0;
  const asked: number[] = [];
  const timers = new Set<{ at: number; fn: () => void }>();
  const settle = async () => {
    for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve));
  };
  return {
    asked,
    now: () => 1_700_000_000_000 + now,
    monotonic: () => now,
    after(ms, fn) {
      asked.push(ms);
      const timer = { at: now + ms, fn };
      timers.add(timer);
      return { cancel: () => timers.delete(timer) };
    },
    pending: () => timers.size,
    async advance(ms) {
      await settle();
      const end = now + ms;
      for (;;) {
        const next = [...timers].filter((t) => t.at <= end).sort((a, b) => a.at - b.at)[0];
        if (next === undefined) break;
        timers.delete(next);
        now = next.at;
        next.fn();
        await settle();
      }
      now = end;
      await settle();
    },
  };
}

/** Log lines as they were written. */
export function recordingLog(): {
  readonly log: Logger;
  readonly lines: { level: string; fields: Record<string, unknown>; message: string }[];
} {
  const lines: { level: string; fields: Record<string, unknown>; message: string }[] = [];
  const at = (level: string) => (fields: Readonly<Record<string, unknown>>, text_: string) => {
    lines.push({ level, fields, message: text_ });
  };
  const log: Logger = {
    trace: at('trace'),
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    child: () => log,
  };
  return { log, lines };
}

export function baseOptions(over: Partial<BaseOptions> = {}): BaseOptions {
  return {
    name: 'test',
    limits: { total: 600, connect: 30, idle: 120 },
    maxRetries: 2,
    clock: systemClock,
    random: () => 0.5,
    ids: createIdGenerator(() => Date.now(), Math.random),
    log: silentLogger,
    secrets: [],
    ...over,
  };
}

export function adapterOf(yaml: string, over: Partial<BaseOptions> = {}) {
  const parsed = parseScenario(yaml, 'test.yaml');
  if (!parsed.ok) throw new Error(parsed.error.join('\n'));
  return createScriptedAdapter({ ...baseOptions(over), name: 'scripted', scenario: parsed.value });
}

export interface RealOptions extends Partial<BaseOptions> {
  readonly type: 'anthropic' | 'openai' | 'openrouter';
  readonly baseUrl?: string;
  readonly send?: Send;
  readonly key?: string | null;
  readonly options?: AnthropicOptions & OpenAiOptions;
  /** Of type openai: OpenAI Responses instead of Chat Completions. */
  readonly responses?: boolean;
  readonly headers?: Record<string, string>;
}

/** One for all adapters, as in a server. */
const network = createHttpClient({});

/** A real adapter against an address, or against answers of the test's. */
export function realAdapter(over: RealOptions): ProviderAdapter {
  const {
    type,
    baseUrl = 'http://127.0.0.1:9',
    send = network,
    key = 'k-test',
    options = {},
    headers = {},
    responses = false,
    ...rest
  } = over;
  const base = { ...baseOptions(), name: type, ...rest };
  const wire = createWire(type, responses, { key, options, log: base.log });
  return createAdapter(base, createHttpTransport(wire, { baseUrl, extraHeaders: headers, send, clock: base.clock }));
}

function createWire(
  type: RealOptions['type'],
  responses: boolean,
  { key, options, log }: { key: string | null; options: AnthropicOptions & OpenAiOptions; log: BaseOptions['log'] },
) {
  if (type === 'anthropic') return anthropicWire(key, options, log);
  if (responses) return responsesWire(key, log);
  return openAiWire(type, key, options, log);
}

/** Answers every request with these pieces of a body. */
export function bodySend(
  pieces: readonly Uint8Array[],
  { status = 200, headers = { 'content-type': 'text/event-stream' } as Record<string, string> } = {},
): Send {
  return async ({ signal }) => {
    let next = 0;
    return answer({ status, headers, signal }, async () => pieces[next++] ?? null);
  };
}

/** An answer whose pieces come from a function; like the network's, it ends when the signal aborts. */
export function answer(
  { status = 200, headers = { 'content-type': 'text/event-stream' }, signal }: AnswerHead,
  next: () => Promise<Uint8Array | null>,
): HttpResponse {
  let ended = false;
  return {
    status,
    header: (name) => headers[name] ?? null,
    headers: Object.entries(headers),
    async readPiece() {
      const piece = await orAbort(next(), signal);
      ended = piece === null;
      return piece;
    },
    readPieces(take) {
      return readOneByOne(this, take);
    },
    isEnded: () => ended,
    cancel() {
      ended = true;
    },
  };
}
interface AnswerHead {
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
}
