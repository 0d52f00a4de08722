// The HTTP server: fastify with our gates, our errors and our routes (05).

import type { IncomingMessage } from 'node:http';
import websocket from '@fastify/websocket';
import fastify, { type FastifyRequest } from 'fastify';
import { countServerWork } from '#core/engine/manage-session.ts';
import { readBody } from '#core/policy/parsing/json.ts';
import { NO_FIGURES, NOTHING_WAITS } from '#core/ports/meter.ts';
import { validationError } from '#protocol/errors.ts';
import { toOriginForm } from './access.ts';
import { createBodyDiscard, createParserErrorAnswer, trackConnections } from './connections.ts';
import { createErrorHandler } from './error-handler.ts';
import { createReach, NO_NODES, PATIENCE } from './forward/other-nodes.ts';
import { installOwners } from './forward/owners.ts';
import { installGates } from './gates.ts';
import { createClientGate } from './gateway/identity.ts';
import type { HttpApp, HttpDeps } from './http-app.ts';
import { requestValidator } from './params.ts';
import { registerRoutes } from './register-routes.ts';
import { createRecent, NO_COUNTS } from './routes/meta-routes.ts';
import { createStreamHub } from './stream/hub.ts';
import { createIdempotency } from './submissions.ts';
import { createRefusalNotes, installVisibility } from './visibility.ts';

const MAX_HEADER_BYTES = 16_384;
const MAX_FRAME_BYTES = 64 * 1024;
/** Nothing longer passes the parser: the router refuses before the gates, and in words of its own. */
const MAX_PARAM_LENGTH = MAX_HEADER_BYTES;

/** For a request to arrive whole: who sends slower is cut off. */
const REQUEST_LIMIT_MS = 120_000;
/** Beside a connection for each stream: those that ask. */
const ASKING_CONNECTIONS = 500;

/** For the head of a request, the first one from the connection on. */
const HEAD_LIMIT_MS = 10_000;
const LATE_HEADS_EVERY_MS = 2000;

const HTTP_OPTIONS = {
  headersTimeout: HEAD_LIMIT_MS,
  connectionsCheckingInterval: LATE_HEADS_EVERY_MS,
  maxHeaderSize: MAX_HEADER_BYTES,
  requireHostHeader: false,
  // Any other upgrade, such as curl's offer of HTTP/2, is ignored. Node before 22.21 does not ask: the gates refuse it.
  shouldUpgradeCallback: ({ headers }: IncomingMessage) => headers.upgrade?.toLowerCase() === 'websocket',
};

/**
 * Handed over here, those that fastify would bring are not even loaded, two hundred files of them. Its types know only
 * schemas of ajv. Answers are wire objects already: they are written as they are, without a schema in the way.
 */
const COMPILERS = { buildValidator: () => requestValidator as never, buildSerializer: () => () => JSON.stringify };

/**
 * Builds the server; the caller listens and closes. Closing ends every stream with 1001 and every `Prefer: wait`.
 * Requests are refused once `draining` returns true or the close begins.
 */
export function createHttpServer(deps: HttpDeps): HttpApp {
  const { engine } = deps;
  const { config, log, clock, ids, store, bus, trees } = engine;
  const { server } = config;
  const { figures = NO_FIGURES } = deps;
  const closing = new AbortController();
  const draining = () => deps.draining() || closing.signal.aborted;
  const { people } = engine;
  const hub = createStreamHub({ store, bus, clock, log, people, maxConnections: config.stream.max_connections });
  const noteRefusal = createRefusalNotes(engine);

  const answerParserError = createParserErrorAnswer(clock);

  const app: HttpApp = fastify({
    logger: false,
    genReqId: () => ids.request(),
    bodyLimit: server.body_limit_bytes,
    exposeHeadRoutes: false,
    return503OnClosing: false,
    requestTimeout: REQUEST_LIMIT_MS,
    routerOptions: { maxParamLength: MAX_PARAM_LENGTH },
    http: HTTP_OPTIONS,
    schemaController: { compilersFactory: COMPILERS },
    clientErrorHandler: answerParserError,
    rewriteUrl: ({ url = '/' }) => (isDecodable(url) ? toOriginForm(url) : UNDECODABLE),
  });
  const connections = trackConnections(app.server, config.stream.max_connections + ASKING_CONNECTIONS);
  app.setErrorHandler(createErrorHandler(log, engine.secrets));
  readJson(app, engine.bodies);
  app.decorateRequest('bodyHash', '');
  const patience = deps.patience ?? PATIENCE;
  const reach = trees.several ? createReach(trees, { clock, log }, patience.probe_ms) : NO_NODES;
  app.addHook('onReady', () => people.refresh());
  app.addHook('onListen', async () => reach.start());
  app.addHook('onClose', () => reach.close());
  const counts = createRecent(clock, () => countServerWork(engine), NO_COUNTS);
  const waiting = createRecent(clock, figures.measure, NOTHING_WAITS);
  app.decorate('gauges', async () => {
    const [active, waits] = await Promise.all([counts(), waiting()]);
    return {
      ...active,
      active_streams: hub.size(),
      unreachable_nodes: reach.unreachable(),
      storage: { node: figures.node(), waiting: waits },
    };
  });

  app.register(websocket, {
    options: { maxPayload: MAX_FRAME_BYTES, perMessageDeflate: false },
    errorHandler: (error, socket) => {
      log.debug({ error: error.message }, 'socket failed');
      socket.close(1011);
    },
    preClose(done) {
      closing.abort();
      hub.close();
      connections.close();
      done();
    },
  });
  const discard = createBodyDiscard(clock);
  app.addHook('onSend', (request, reply, _payload, done) => {
    const discardRest = () => {
      discard(request, reply);
      done();
    };
    // A gate may answer while the parser is still in the packet: only behind it is known whether the body was all there.
    if (request.raw.complete) discardRest();
    else process.nextTick(discardRest);
  });
  // The gates judge it, in their order.
  app.server.on('checkExpectation', (request, response) => app.server.emit('request', request, response));
  installGates(app, {
    server,
    people,
    noteRefusal,
    isSpare: connections.isSpare,
    admitClient: createClientGate({ config, people, noteRefusal }),
    draining,
    nodeUrl: () => (trees.several ? trees.url : ''),
  });
  app.after(() => {
    app.websocketServer.on('wsClientError', answerParserError);
    const owners = installOwners(app, {
      ...deps,
      patience,
      reach,
      closing: closing.signal,
      discard,
      bodyLimit: server.body_limit_bytes,
    });
    installVisibility(app, engine);
    registerRoutes(app, {
      ...deps,
      owners,
      reach,
      hub,
      noteRefusal,
      counts,
      idempotency: createIdempotency({ store, clock }),
      started: { at: clock.now(), monotonic: clock.monotonic() },
      turnBodyLimit: server.turn_body_limit_bytes,
      gatewayBodyLimit: config.gateway.body_limit_bytes,
      documents: {
        openApi: async (version) => (await import('./openapi.ts')).openApiDocument(version),
        events: async () => (await import('./openapi.ts')).eventsDocument(),
        page: async (version) => (await import('./docs/docs-page.ts')).docsPage(version),
      },
      closing: closing.signal,
    });
  });
  return app;
}

/**
 * One parser for every media type: the gate has let JSON through only. An empty body is `{}`. What is nested without
 * end, or made of endless parts, ends here: everything behind may recurse. A large body is parsed on a thread.
 */
function readJson(app: HttpApp, bodies: HttpDeps['engine']['bodies']): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (_request: FastifyRequest, bytes: Buffer, done) => {
    const pass = (body: ReturnType<typeof readBody>) => {
      if (body.ok) done(null, body.value);
      else done(validationError([{ path: '', message: `the body ${body.error}` }]));
    };
    if (bytes.byteLength === 0) done(null, {});
    else if (bodies !== null && bytes.byteLength > bodies.above) bodies.readBody(bytes).then(pass, done);
    else pass(readBody(bytes));
  });
}

/** No route has this path: what cannot be decoded passes the gates and ends as `not_found`. */
const UNDECODABLE = '/%25';

function isDecodable(url: string): boolean {
  if (!url.includes('%')) return true;
  try {
    decodeURIComponent(url.split('?', 1)[0] ?? '');
    return true;
  } catch {
    return false;
  }
}
