// A provider on the loopback that keeps the bytes it gets and answers on each of the three wires, in a stream or whole.
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface Received {
  /** With its query. */
  readonly path: string;
  readonly method: string;
  readonly headers: IncomingMessage['headers'];
  readonly bytes: Buffer;
  readonly body: Readonly<Record<string, unknown>>;
  /** Resolves when the connection closed before the answer was whole. */
  readonly cut: Promise<void>;
}

export interface Usage {
  readonly input?: number;
  readonly cached?: number;
  readonly written?: number;
  readonly output?: number;
}

/** What a provider says: text with counts, or bytes as they are. */
export interface Said {
  readonly text?: string;
  readonly usage?: Usage | null;
  /** Before anything of the answer is sent. */
  readonly before?: Promise<unknown>;
  /** Behind the first pieces of a stream. */
  readonly midway?: Promise<unknown>;
  /** The connection breaks behind the first pieces. */
  readonly breaks?: boolean;
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly raw?: string | readonly string[];
  /** Called for each piece that is sent. */
  readonly sends?: () => void;
}

export interface ByteProvider {
  readonly anthropicUrl: string;
  readonly openaiUrl: string;
  readonly received: readonly Received[];
  /** What each answer sent, in full. */
  readonly sent: readonly string[];
  close(): Promise<void>;
}

export async function startByteProvider(
  answer: (call: Received) => Said | Promise<Said> = () => ({}),
): Promise<ByteProvider> {
  const received: Received[] = [];
  const sent: string[] = [];
  const server = createServer((req, res) => {
    serve(req, res).catch(() => res.destroy());
  });

  async function serve(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const pieces: Buffer[] = [];
    for await (const piece of req) pieces.push(piece as Buffer);
    const bytes = Buffer.concat(pieces);
    const gone = new Promise((resolve) => res.once('close', resolve));
    const cut = new Promise<void>((resolve) => {
      res.once('close', () => {
        if (!res.writableFinished) resolve();
      });
    });
    const { url = '', method = '', headers } = req;
    const call = { path: url, method, headers, bytes, body: JSON.parse(bytes.toString() || '{}'), cut };
    received.push(call);
    const said = await answer(call);
    await said.before;
    const parts = said.raw === undefined ? partsOf(call, said) : [said.raw].flat();
    sent.push(parts.join(''));
    const type = call.body.stream === true ? 'text/event-stream' : 'application/json';
    res.writeHead(said.status ?? 200, { 'content-type': type, ...said.headers });
    for (const [i, part] of parts.entries()) {
      if (i === 2) await said.midway;
      if (i === 2 && said.breaks === true) {
        // What was written is to be read before it breaks.
        for (let turn = 0; turn < 30; turn++) await new Promise(setImmediate);
        res.destroy();
        return;
      }
      if (res.destroyed) return;
      said.sends?.();
      if (!res.write(part)) await Promise.race([once(res, 'drain'), gone]);
    }
    res.end();
  }

  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    anthropicUrl: origin,
    openaiUrl: `${origin}/v1`,
    received,
    sent,
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

/** The pieces of an answer as that wire sends them. */
export function partsOf({ path, body }: Pick<Received, 'path' | 'body'>, said: Said): readonly string[] {
  const text = said.text ?? 'hello';
  const usage = said.usage === undefined ? {} : said.usage;
  const stream = body.stream === true;
  if (path.includes('/count_tokens')) return ['{"input_tokens":7}'];
  if (path.includes('/messages')) return stream ? messagesStream(body, text, usage) : [messagesBody(body, text, usage)];
  if (path.includes('/responses'))
    return stream ? responsesStream(body, text, usage) : [responsesBody(body, text, usage)];
  return stream ? chatStream(body, text, usage) : [chatBody(body, text, usage)];
}

type Body = Readonly<Record<string, unknown>>;

function messagesUsage({ input = 100, cached = 0, written = 0, output = 20 }: Usage) {
  return {
    input_tokens: input,
    cache_read_input_tokens: cached,
    cache_creation_input_tokens: written,
    output_tokens: output,
  };
}

function messagesBody({ model }: Body, text: string, usage: Usage | null): string {
  return JSON.stringify({
    id: 'msg_1',
    type: 'message',
    role: 'assistant',
    model,
    content: [{ type: 'text', text }],
    stop_reason: 'end_turn',
    stop_sequence: null,
    ...(usage === null ? {} : { usage: messagesUsage(usage) }),
  });
}

function messagesStream({ model }: Body, text: string, usage: Usage | null): string[] {
  const event = (data: { readonly type: string }) => `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`;
  const counts = usage === null ? undefined : messagesUsage(usage);
  const message = { id: 'msg_1', type: 'message', role: 'assistant', model, content: [], stop_reason: null };
  const started = { ...message, ...(counts === undefined ? {} : { usage: { ...counts, output_tokens: 1 } }) };
  return [
    event({ type: 'message_start', message: started } as { type: string }),
    event({ type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } } as { type: string }),
    'event: ping\ndata: {"type": "ping"}\n\n',
    event({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } } as { type: string }),
    event({ type: 'content_block_stop', index: 0 } as { type: string }),
    event({ type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: counts } as { type: string }),
    event({ type: 'message_stop' }),
  ];
}

function chatUsage({ input = 100, cached = 0, written = 0, output = 20 }: Usage) {
  return {
    prompt_tokens: input + cached + written,
    completion_tokens: output,
    total_tokens: input + cached + written + output,
    prompt_tokens_details: { cached_tokens: cached },
  };
}

function chatBody({ model }: Body, text: string, usage: Usage | null): string {
  return JSON.stringify({
    id: 'chatcmpl_1',
    object: 'chat.completion',
    created: 1,
    model,
    choices: [{ index: 0, message: { role: 'assistant', content: text }, finish_reason: 'stop' }],
    ...(usage === null ? {} : { usage: chatUsage(usage) }),
  });
}

function chatStream({ model, stream_options }: Body, text: string, usage: Usage | null): string[] {
  const chunk = (rest: object) =>
    `data: ${JSON.stringify({ id: 'chatcmpl_1', object: 'chat.completion.chunk', created: 1, model, ...rest })}\n\n`;
  const choice = (delta: object, finish_reason: string | null) => ({ choices: [{ index: 0, delta, finish_reason }] });
  const asked = (stream_options as { include_usage?: boolean } | undefined)?.include_usage === true;
  return [
    chunk(choice({ role: 'assistant', content: '' }, null)),
    chunk(choice({ content: text }, null)),
    chunk(choice({}, 'stop')),
    ...(asked && usage !== null ? [chunk({ choices: [], usage: chatUsage(usage) })] : []),
    'data: [DONE]\n\n',
  ];
}

function responseObject({ model }: Body, text: string, usage: Usage | null) {
  const { input = 100, cached = 0, output = 20 } = usage ?? {};
  return {
    id: 'resp_1',
    object: 'response',
    created_at: 1,
    status: 'completed',
    model,
    output: [
      {
        type: 'message',
        id: 'item_1',
        role: 'assistant',
        status: 'completed',
        content: [{ type: 'output_text', text, annotations: [] }],
      },
    ],
    ...(usage === null
      ? {}
      : {
          usage: {
            input_tokens: input + cached,
            input_tokens_details: { cached_tokens: cached },
            output_tokens: output,
            output_tokens_details: { reasoning_tokens: 0 },
            total_tokens: input + cached + output,
          },
        }),
  };
}

function responsesBody(body: Body, text: string, usage: Usage | null): string {
  return JSON.stringify(responseObject(body, text, usage));
}

function responsesStream(body: Body, text: string, usage: Usage | null): string[] {
  const event = (type: string, rest: object) => `event: ${type}\ndata: ${JSON.stringify({ type, ...rest })}\n\n`;
  const whole = responseObject(body, text, usage);
  const item = whole.output[0]!;
  const at = { item_id: 'item_1', output_index: 0, content_index: 0 };
  return [
    event('response.created', { response: { ...whole, status: 'in_progress', output: [], usage: null } }),
    event('response.output_item.added', { output_index: 0, item: { ...item, content: [] } }),
    event('response.output_text.delta', { ...at, delta: text }),
    event('response.output_text.done', { ...at, text }),
    event('response.output_item.done', { output_index: 0, item }),
    event('response.completed', { response: whole }),
  ];
}
