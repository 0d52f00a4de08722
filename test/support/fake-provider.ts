// A real HTTP server on the loopback that speaks Anthropic Messages, Chat Completions and Responses, answering by a function
// of the request.
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createAnthropicEventEncoder, readAnthropicRequest } from '#models/wire/anthropic-client.ts';
import { createOpenAiEventEncoder, readOpenAiRequest } from '#models/wire/openai-client.ts';
import type { ToolUseId } from '#protocol/ids.ts';
import { joinText, type StopReason } from '#protocol/message.ts';
import { NO_TOKENS, type TokenUsage } from '#protocol/usage.ts';
import { type AnswerBlock, answerEvents } from './answer-events.ts';
import { renderResponses, toChatRequest } from './fake-responses.ts';

const WIRES = {
  anthropic: { name: 'msg', read: readAnthropicRequest, encoder: createAnthropicEventEncoder },
  openai: { name: 'chatcmpl', read: readOpenAiRequest, encoder: createOpenAiEventEncoder },
};

type Json = Readonly<Record<string, unknown>>;

/** A request as a test wants to look at it, whichever wire it came over. */
export interface FakeCall {
  readonly wire: 'anthropic' | 'openai';
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: Json;
  /** The body's bytes as text; `body` of Responses is in the form of Chat Completions. */
  readonly text: string;
  /** From 1, over all calls of the server. */
  readonly number: number;
  readonly model: string;
  /** All system text. */
  readonly system: string;
  /** Text of the last user message that has any. */
  readonly user: string;
  /** Texts of the tool results at the end of the history, in order. */
  readonly results: readonly string[];
  readonly tools: readonly string[];
  /** Resolves when the client closed the connection before the answer was whole. */
  readonly disconnected: Promise<void>;
}

export interface FakeUsage {
  readonly input?: number;
  readonly cached?: number;
  readonly creation?: number;
  readonly output?: number;
  readonly reasoning?: number;
}

export interface FakeToolCall {
  readonly name: string;
  readonly input?: unknown;
  /** The arguments' text as it is, in place of `input`: for what a model garbles. */
  readonly json?: string;
}

/** Where an answer stops: whole, connection reset, body ended early, or left open without another byte. */
type Ending = 'whole' | 'reset' | 'end' | 'stall';

export interface FakeMessage {
  readonly thinking?: { readonly text: string; readonly signature: string };
  readonly text?: string;
  readonly tool_calls?: readonly FakeToolCall[];
  readonly stop_reason?: StopReason;
  /** Null reports none. */
  readonly usage?: FakeUsage | null;
  /** Characters of one delta, 16 by default. */
  readonly delta?: number;
  /** Server-sent events after which `ending` happens. */
  readonly after?: number;
  readonly ending?: Ending;
  /** Cuts the bytes of the whole answer into writes; one write an event by default. */
  readonly split?: (bytes: Buffer) => readonly Uint8Array[];
}
/** Bytes as they are. */
export interface FakeRaw {
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly raw: readonly (string | Uint8Array)[];
  readonly ending?: Ending;
}
export interface FakeError {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly error: Json | string;
}
export type FakeAnswer = FakeMessage | FakeRaw | FakeError;

export interface FakeProvider {
  /** For an adapter of type anthropic. */
  readonly anthropicUrl: string;
  /** For an adapter of type openai or openrouter. */
  readonly openaiUrl: string;
  readonly calls: readonly FakeCall[];
  /** TCP connections accepted so far. */
  connections(): number;
  close(): Promise<void>;
}

/** Starts the server on a free port. */
export async function startFakeProvider(
  answer: (call: FakeCall) => FakeAnswer | Promise<FakeAnswer>,
): Promise<FakeProvider> {
  const calls: FakeCall[] = [];
  let connections = 0;
  const server = createServer((req, res) => {
    serve(req, res).catch((error: unknown) => res.destroy(error instanceof Error ? error : new Error(String(error))));
  });
  server.on('connection', () => connections++);

  async function serve(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const pieces: Buffer[] = [];
    for await (const piece of req) pieces.push(piece as Buffer);
    const call = describe(req, Buffer.concat(pieces).toString('utf8'), calls.length + 1, res);
    calls.push(call);
    const said = await answer(call);
    if ('error' in said) {
      const { status, headers = {}, error } = said;
      res.writeHead(status, { 'content-type': 'application/json', ...headers });
      res.end(typeof error === 'string' ? error : JSON.stringify({ error }));
      return;
    }
    const raw: FakeRaw =
      'raw' in said ? said : { raw: render(call, said), ...(said.ending ? { ending: said.ending } : {}) };
    res.writeHead(raw.status ?? 200, {
      'content-type': 'text/event-stream',
      'request-id': `req_${call.number}`,
      ...raw.headers,
    });
    res.flushHeaders();
    const gone = new Promise((resolve) => res.once('close', resolve));
    for (const piece of raw.raw) {
      if (res.destroyed) return;
      if (!res.write(piece)) await Promise.race([once(res, 'drain'), gone]);
    }
    await finish(res, raw.ending ?? 'whole');
  }

  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    anthropicUrl: origin,
    openaiUrl: `${origin}/v1`,
    calls,
    connections: () => connections,
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

async function finish(res: ServerResponse, ending: Ending): Promise<void> {
  if (ending === 'stall') return;
  if (ending === 'reset') {
    // What was written must be read before the reset, else there is nothing to break off: the reader is of this process.
    for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate);
    res.socket?.resetAndDestroy();
    return;
  }
  res.end();
}

function describe(req: IncomingMessage, text: string, number: number, res: ServerResponse): FakeCall {
  const path = req.url ?? '';
  const wire = path.endsWith('/messages') ? 'anthropic' : 'openai';
  const chat = path.endsWith('/responses') ? toChatRequest(text) : text;
  const read = WIRES[wire].read(chat, (id) => id as ToolUseId);
  if (!read.ok) throw new Error(read.error);
  const asked = read.value;
  const users = asked.messages.filter((m) => m.role === 'user').map((m) => joinText(m.content));
  const spoken = asked.messages.findLastIndex((m) => m.role === 'assistant');
  const results = asked.messages.slice(spoken + 1).flatMap((m) => m.content.filter((b) => b.type === 'tool_result'));
  return {
    wire,
    path,
    headers: req.headers,
    body: JSON.parse(chat),
    text,
    number,
    model: asked.model,
    system: asked.system ?? '',
    user: users.findLast((text) => text !== '') ?? '',
    results: results.map((result) => joinText(result.content)),
    tools: asked.tools.map((tool) => tool.name),
    disconnected: new Promise((resolve) => {
      res.on('close', () => {
        if (!res.writableFinished) resolve();
      });
    }),
  };
}

/** The writes of an answer. */
function render(call: FakeCall, message: FakeMessage): readonly (string | Uint8Array)[] {
  if (call.path.endsWith('/responses')) return renderWhole(call, message);
  const { encoder, name } = WIRES[call.wire];
  const usage = message.usage === null ? null : tokens(message.usage ?? {});
  const stop = message.stop_reason ?? (message.tool_calls?.length ? 'tool_use' : 'end_turn');
  const encode = encoder({ id: `${name}_${call.number}`, model: call.model, usage });
  const events = answerEvents(call.model, blocksOf(call, message), { stop, rawStop: null, usage })
    .flatMap(encode)
    .slice(0, message.after);
  return message.split ? message.split(Buffer.from(events.join(''))) : events;
}

function renderWhole(call: FakeCall, { text, tool_calls = [], usage = {} }: FakeMessage): readonly string[] {
  return renderResponses({
    id: `resp_${call.number}`,
    model: call.model,
    text,
    calls: tool_calls.map(({ name, input, json = JSON.stringify(input) }, i) => ({
      id: `call_${call.number}_${i}`,
      name,
      json,
    })),
    usage: usage && { input: usage.input ?? 10, cached: usage.cached ?? 0, output: usage.output ?? 5 },
  });
}

function tokens({ input = 10, cached = 0, creation = 0, output = 5, reasoning = 0 }: FakeUsage): TokenUsage {
  return {
    ...NO_TOKENS,
    input_tokens: input,
    cached_input_tokens: cached,
    cache_creation_input_tokens: creation,
    output_tokens: output,
    reasoning_tokens: reasoning,
  };
}

function blocksOf(call: FakeCall, { thinking, text, tool_calls = [], delta }: FakeMessage): AnswerBlock[] {
  const out: AnswerBlock[] = [];
  if (thinking) out.push({ kind: 'thinking', pieces: deltas(thinking.text, delta), signature: thinking.signature });
  if (text) out.push({ kind: 'text', pieces: deltas(text, delta) });
  for (const [i, { name, input, json = JSON.stringify(input) }] of tool_calls.entries())
    out.push({ kind: 'tool', name, id: `call_${call.number}_${i}`, pieces: deltas(json, delta) });
  return out;
}

function deltas(text: string, size = 16): string[] {
  const out: string[] = [];
  for (let i = 0; i < text.length; i += size) out.push(text.slice(i, i + size));
  return out;
}
