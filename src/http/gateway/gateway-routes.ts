// The routes that other programs' base URLs lead to: one model call each, relayed unchanged (19 §2.1).
import { once } from 'node:events';
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify';
import {
  type GatewaySink,
  gatewayModel,
  gatewayModels,
  relayAnswer,
  relayCall,
  relayCount,
  takePlace,
} from '#core/engine/gateway-call.ts';
import { shownName } from '#core/policy/cut.ts';
import { RelayFault } from '#core/ports/gateway-relay.ts';
import { Cancelled } from '#protocol/abort.ts';
import { type ClientWire, ClientWireSchema, WIRE_PATHS } from '#protocol/client-wire.ts';
import { AppError } from '#protocol/errors.ts';
import { detectAbortedBody, notFound, toAppError } from '../error-handler.ts';
import { ANSWER_HEADERS } from '../gates.ts';
import type { HttpApp, RouteDeps } from '../http-app.ts';
import { readClient } from './identity.ts';
import { wireError } from './wire-errors.ts';

const COUNT = '/count_tokens';
/** Becomes part of a path. */
const ANSWER_ID = /^[A-Za-z0-9_-]{1,256}$/;

export function gatewayRoutes(root: HttpApp, { engine, gatewayBodyLimit }: RouteDeps): void {
  root.register(async (scope) => {
    const app = scope as HttpApp;
    app.removeAllContentTypeParsers();
    // The bytes themselves go on.
    app.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body));
    app.setErrorHandler((error: FastifyError | Error, request, reply) => {
      const wire = resolveWire(request);
      const known =
        error instanceof RelayFault
          ? error
          : (toAppError(error as FastifyError) ?? detectAbortedBody(engine.log, request));
      if (known === null) engine.log.error({ err: error, request_id: request.id }, 'a call of the gateway failed');
      const bug = new AppError('internal_error', 'an unexpected error; the log of Metis has it under this request id');
      const answer = wireError(wire, known ?? bug, request.id);
      reply.status(answer.status).headers(answer.headers).send(answer.body);
    });

    // Their contract is that of the wires; ours describes the server's own paths.
    const options = (wire: ClientWire) => ({
      config: { gateway: wire },
      bodyLimit: gatewayBodyLimit,
      schema: { hide: true },
    });
    const calls = (wire: ClientWire, repeatable = false) => ({
      ...options(wire),
      config: { gateway: wire, gateway_call: true, repeatable },
      // Before the body: it is what a call holds most of.
      preParsing: async (_request: FastifyRequest, reply: FastifyReply) => {
        requireEnabled(engine);
        const leave = takePlace(engine);
        if (reply.raw.closed) leave();
        else reply.raw.once('close', leave);
      },
    });
    for (const wire of ClientWireSchema.options)
      app.post(WIRE_PATHS[wire], calls(wire), (request, reply) =>
        relayRequest(engine, request, reply, { wire, below: '', run: relayCall }),
      );
    app.post(`${WIRE_PATHS.messages}${COUNT}`, calls('messages', true), (request, reply) =>
      relayRequest(engine, request, reply, { wire: 'messages', below: COUNT, run: relayCount }),
    );
    const answer = (method: 'GET' | 'POST' | 'DELETE', action = '') =>
      app.route<{ Params: { id: string } }>({
        ...calls('responses', true),
        method,
        url: `${WIRE_PATHS.responses}/:id${action}`,
        handler: (request, reply) => {
          const answer_id = request.params.id;
          if (!ANSWER_ID.test(answer_id)) throw new AppError('not_found', `no response ${shownName(answer_id)}`);
          const run: RelayTarget['run'] = (to, call, sink) => relayAnswer(to, { ...call, method, answer_id }, sink);
          return relayRequest(engine, request, reply, { wire: 'responses', below: `/${answer_id}${action}`, run });
        },
      });
    answer('GET');
    answer('DELETE');
    answer('POST', '/cancel');
    app.get('/v1/models', options('messages'), async (_request, reply) => {
      requireEnabled(engine);
      return reply.send(gatewayModels(engine));
    });
    // A name may hold a slash that its client does not escape.
    app.get<{ Params: { '*': string } }>('/v1/models/*', options('messages'), async (request, reply) => {
      requireEnabled(engine);
      const name = request.params['*'];
      const listed = gatewayModel(engine, name, [resolveWire(request), ...ClientWireSchema.options]);
      if (listed === null)
        throw new AppError('not_found', `no model ${shownName(name)}; GET /v1/models shows what there is`);
      return reply.send(listed);
    });
    app.route({
      ...options('messages'),
      method: ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'],
      url: '/v1/*',
      handler: async ({ originalUrl }) => {
        if (!originalUrl.startsWith('/v1/v1/')) throw notFound('route');
        throw new AppError('not_found', 'this client adds /v1 to its base URL by itself: set it without /v1');
      },
    });
  });
}

/** The wire of the path; elsewhere that of the client, as Anthropic's name their version or send their key in a header of its own. */
function resolveWire({ originalUrl, headers, routeOptions }: FastifyRequest): ClientWire {
  const { config } = routeOptions;
  if (config.gateway_call === true && config.gateway !== undefined) return config.gateway;
  const below = originalUrl.replace(/^\/v1(?=\/v1\/)/, '');
  const ofPath = ClientWireSchema.options.find((wire) => below.startsWith(WIRE_PATHS[wire]));
  if (ofPath !== undefined) return ofPath;
  if (headers['anthropic-version'] !== undefined || headers['x-api-key'] !== undefined) return 'messages';
  return 'chat';
}

/** `gateway.max_streams: 0` switches it off. */
function requireEnabled({ config }: RouteDeps['engine']): void {
  if (config.gateway.max_streams === 0) throw notFound('route');
}

interface RelayTarget {
  readonly wire: ClientWire;
  /** Path behind the wire's endpoint. */
  readonly below: string;
  readonly run: typeof relayCall;
}

async function relayRequest(
  engine: RouteDeps['engine'],
  request: FastifyRequest,
  reply: FastifyReply,
  { wire, below, run }: RelayTarget,
): Promise<FastifyReply> {
  const gone = new AbortController();
  const { raw } = reply;
  raw.once('close', () => {
    if (!raw.writableFinished) gone.abort(new Cancelled('user_cancel', 'the client closed the connection'));
  });
  const held = { body: request.body as Buffer | null };
  request.body = null;
  const takeBody = () => {
    const { body } = held;
    held.body = null;
    if (Buffer.isBuffer(body)) return body;
    return Buffer.alloc(0);
  };
  const call = {
    wire,
    // The path is the route's, since the client may have written it with escapes.
    tail: below + readQuery(request.originalUrl),
    headers: readHeaders(request),
    client: readClient(request),
    takeBody,
    signal: gone.signal,
  };
  try {
    await run(engine, call, createSink(reply));
  } catch (error) {
    // A reply that was hijacked has no other end than this one.
    if (!reply.sent && !raw.destroyed) throw error;
    if (!(error instanceof RelayFault)) engine.log.error({ err: error, request_id: request.id }, 'an answer broke off');
    raw.destroy();
  }
  return reply;
}

/** From its question mark on, as it came. */
function readQuery(url: string): string {
  const at = url.indexOf('?');
  if (at < 0) return '';
  return url.slice(at);
}

/** Names in lower case, as they came. */
function readHeaders({ raw }: FastifyRequest): [string, string][] {
  const found: [string, string][] = [];
  for (let i = 0; i + 1 < raw.rawHeaders.length; i += 2)
    found.push([raw.rawHeaders[i]!.toLowerCase(), raw.rawHeaders[i + 1]!]);
  return found;
}

function createSink(reply: FastifyReply): GatewaySink {
  const { raw } = reply;
  return {
    head(status, headers) {
      const own = Object.entries(reply.getHeaders()).filter(
        ([name]) => name === 'vary' || name.startsWith('access-control-') || name in ANSWER_HEADERS,
      );
      reply.hijack();
      const all = [...own, ...headers].map(([name, value]) => [name, encodeHeader(String(value))]);
      const { socket } = raw;
      // What has come of the answer by now goes out with its head.
      socket?.cork();
      raw.writeHead(status, all.flat() as string[]);
      raw.flushHeaders();
      process.nextTick(() => socket?.uncork());
    },
    write(piece) {
      if (raw.destroyed) return undefined;
      const more = raw.write(piece);
      // Now, not behind what the meter makes of the piece: 0.1 ms until the first byte.
      raw.socket?.uncork();
      if (more) return undefined;
      return waitForDrain(raw);
    },
    end: () => void raw.end(),
    abort: () => void raw.destroy(),
  };
}

/** The value as a header can hold it: a registry may name a model in any script. */
function encodeHeader(value: string): string {
  return value.replaceAll(/[^\t\x20-\x7e\x80-\xff]/gu, (letter) => encodeURIComponent(Buffer.from(letter).toString()));
}

/** Resolves when more can be written, or never will be. */
async function waitForDrain(raw: FastifyReply['raw']): Promise<void> {
  const over = new AbortController();
  const { signal } = over;
  const ignoreFailure = (wait: Promise<unknown>) => wait.catch(() => {});
  await Promise.race([ignoreFailure(once(raw, 'drain', { signal })), ignoreFailure(once(raw, 'close', { signal }))]);
  over.abort();
}
