// A real HTTP server on the loopback that speaks Anthropic Messages and Chat Completions, answering by a function of the request.
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

type Json = Readonly<Record<string, unknown>>;

/** A request as a test wants to look at it, whichever wire it came over. */
export interface FakeCall {
  readonly wire: 'anthropic' | 'openai';
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: Json;
  /** The body's bytes as text. */
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
  readonly stop_reason?: string;
  /** Null reports none. */
  readonly usage?: FakeUsage | null;
  /** Characters of one delta, 16 unless told. */
  readonly delta?: number;
  /** Server-sent events after which `ending` happens. */
  readonly after?: number;
  readonly ending?: Ending;
  /** Cuts the bytes of the whole answer into writes; one write an event unless told. */
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
    // What was written must arrive before the reset, else there is nothing to break off.
    await new Promise((resolve) => setTimeout(resolve, 20));
    res.socket?.resetAndDestroy();
    return;
  }
  res.end();
}

function describe(req: IncomingMessage, text: string, number: number, res: ServerResponse): FakeCall {
  const body: Json = JSON.parse(text);
  const path = req.url ?? '';
  const wire = path.endsWith('/messages') ? 'anthropic' : 'openai';
  const messages = (body.messages ?? []) as Json[];
  const users = messages.filter((m) => m.role === 'user').map((m) => textsOf(m.content).join('\n'));
  const system =
    wire === 'anthropic' ? body.system : messages.filter((m) => m.role === 'system').flatMap((m) => m.content);
  const tools = (body.tools ?? []) as Json[];
  return {
    wire,
    path,
    headers: req.headers,
    body,
    text,
    number,
    model: String(body.model),
    system: textsOf(system).join('\n\n'),
    user: users.findLast((text) => text !== '') ?? '',
    results: lastResults(messages),
    tools: tools.map((tool) => String(((tool.function ?? tool) as Json).name)),
    disconnected: new Promise((resolve) => {
      res.on('close', () => {
        if (!res.writableFinished) resolve();
      });
    }),
  };
}

function textsOf(content: unknown): string[] {
  if (typeof content === 'string') return [content];
  if (!Array.isArray(content)) return [];
  return content.flatMap((part: unknown) => {
    if (typeof part === 'string') return [part];
    const { type, text } = part as Json;
    return type === 'text' ? [String(text)] : [];
  });
}

function lastResults(messages: readonly Json[]): string[] {
  const last = messages.at(-1);
  if (last?.role === 'tool') {
    const from = messages.findLastIndex((m) => m.role !== 'tool') + 1;
    return messages.slice(from).map((m) => textsOf(m.content).join('\n'));
  }
  if (last?.role !== 'user' || !Array.isArray(last.content)) return [];
  return (last.content as Json[]).filter((b) => b.type === 'tool_result').map((b) => textsOf(b.content).join('\n'));
}

/** The writes of an answer. */
function render(call: FakeCall, message: FakeMessage): readonly (string | Uint8Array)[] {
  const events = (call.wire === 'anthropic' ? anthropicEvents(call, message) : openAiEvents(call, message)).slice(
    0,
    message.after,
  );
  return message.split ? message.split(Buffer.from(events.join(''))) : events;
}

function deltas(text: string, size = 16): string[] {
  const out: string[] = [];
  for (let i = 0; i < text.length; i += size) out.push(text.slice(i, i + size));
  return out;
}

function anthropicEvents(call: FakeCall, message: FakeMessage): string[] {
  const event = (type: string, data: Json) => `event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`;
  const usage = message.usage === null ? null : { input: 10, output: 5, ...message.usage };
  const out = [
    event('message_start', {
      message: {
        id: `msg_${call.number}`,
        role: 'assistant',
        model: call.model,
        content: [],
        ...(usage && {
          usage: {
            input_tokens: usage.input,
            cache_read_input_tokens: usage.cached ?? 0,
            cache_creation_input_tokens: usage.creation ?? 0,
            output_tokens: 1,
          },
        }),
      },
    }),
  ];
  let index = 0;
  const block = (start: Json, ...inner: Json[]) => {
    out.push(event('content_block_start', { index, content_block: start }));
    for (const delta of inner) out.push(event('content_block_delta', { index, delta }));
    out.push(event('content_block_stop', { index: index++ }));
  };
  if (message.thinking) {
    const { text, signature } = message.thinking;
    const pieces = deltas(text, message.delta).map((thinking) => ({ type: 'thinking_delta', thinking }));
    block({ type: 'thinking', thinking: '', signature: '' }, ...pieces, { type: 'signature_delta', signature });
  }
  if (message.text)
    block(
      { type: 'text', text: '' },
      ...deltas(message.text, message.delta).map((text) => ({ type: 'text_delta', text })),
    );
  for (const { name, input, json = JSON.stringify(input) } of message.tool_calls ?? []) {
    const pieces = deltas(json, message.delta).map((partial_json) => ({
      type: 'input_json_delta',
      partial_json,
    }));
    block({ type: 'tool_use', id: `toolu_${call.number}_${index}`, name, input: {} }, ...pieces);
  }
  const stop_reason = message.stop_reason ?? (message.tool_calls?.length ? 'tool_use' : 'end_turn');
  out.push(
    event('message_delta', {
      delta: { stop_reason, stop_sequence: null },
      ...(usage && {
        usage: {
          output_tokens: usage.output,
          ...(usage.reasoning !== undefined && { output_tokens_details: { thinking_tokens: usage.reasoning } }),
        },
      }),
    }),
    event('message_stop', {}),
  );
  return out;
}

function openAiEvents(call: FakeCall, message: FakeMessage): string[] {
  const chunk = (rest: Json) =>
    `data: ${JSON.stringify({ id: `chatcmpl-${call.number}`, object: 'chat.completion.chunk', model: call.model, ...rest })}\n\n`;
  const delta = (value: Json, finish_reason: string | null = null) =>
    chunk({ choices: [{ index: 0, delta: value, finish_reason }] });
  const out = [delta({ role: 'assistant', content: '' })];
  for (const content of deltas(message.text ?? '', message.delta)) out.push(delta({ content }));
  for (const [index, { name, input, json = JSON.stringify(input) }] of (message.tool_calls ?? []).entries()) {
    const id = `call_${call.number}_${index}`;
    out.push(delta({ tool_calls: [{ index, id, type: 'function', function: { name, arguments: '' } }] }));
    for (const args of deltas(json, message.delta))
      out.push(delta({ tool_calls: [{ index, function: { arguments: args } }] }));
  }
  out.push(delta({}, message.stop_reason ?? (message.tool_calls?.length ? 'tool_calls' : 'stop')));
  if (message.usage !== null) {
    const { input = 10, cached = 0, creation = 0, output = 5, reasoning = 0 } = message.usage ?? {};
    out.push(
      chunk({
        choices: [],
        usage: {
          prompt_tokens: input + cached + creation,
          completion_tokens: output,
          total_tokens: input + cached + creation + output,
          prompt_tokens_details: { cached_tokens: cached, cache_write_tokens: creation },
          completion_tokens_details: { reasoning_tokens: reasoning },
        },
      }),
    );
  }
  out.push('data: [DONE]\n\n');
  return out;
}
