// The HTTP server: fastify with our gates, our errors and our routes (05).
import type { IncomingMessage } from 'node:http';
import websocket from '@fastify/websocket';
import fastify from 'fastify';
import { serverCounts } from '../engine/show-session.ts';
import { validationError } from '../kernel/errors.ts';
import { faultOfJson } from '../policy/parsing/json.ts';
import { BODY } from '../policy/parsing/limits.ts';
import type { HttpApp } from './app.ts';
import { createTokenCheck } from './auth.ts';
import type { HttpDeps } from './deps.ts';
import { createErrorHandler } from './error-handler.ts';
import { installOwners } from './forward/owners.ts';
import { PATIENCE } from './forward/patience.ts';
import { installGates } from './gates.ts';
import { createClientGate } from './gateway/identity.ts';
import { createIdempotency } from './idempotency.ts';
import { pathOf } from './origin.ts';
import { requestValidator } from './params.ts';
import { createParserErrorAnswer } from './parser-error.ts';
import { registerRoutes } from './register-routes.ts';
import { trackSilentConnections } from './silent-connections.ts';
import { createStreamHub } from './stream/hub.ts';
import { createBodyDiscard } from './unread-body.ts';

const MAX_HEADER_BYTES = 16_384;
const MAX_FRAME_BYTES = 64 * 1024;
/** Nothing longer passes the parser: the router refuses before the gates, and in words of its own. */
const MAX_PARAM_LENGTH = MAX_HEADER_BYTES;

/** For a request to arrive whole: who sends slower is cut off. */
const REQUEST_LIMIT_MS = 120_000;
/** Beside a connection for each stream: those that ask. */
const ASKING_CONNECTIONS = 500;

const HTTP_OPTIONS = {
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
 * Requests are refused from the moment on that `draining` says so, or the close begins.
 */
export function createHttpServer(deps: HttpDeps): HttpApp {
  const { engine } = deps;
  const { config, log, clock, ids, store, bus, trees } = engine;
  const { server } = config;
  const closing = new AbortController();
  const draining = () => deps.draining() || closing.signal.aborted;
  const tokens = createTokenCheck(server.auth_tokens);
  const hub = createStreamHub({ store, bus, clock, log, maxConnections: config.stream.max_connections });

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
    rewriteUrl: ({ url = '/' }) => (isDecodable(url) ? pathOf(url) : UNDECODABLE),
  });
  const cutSilent = trackSilentConnections(app.server);
  app.server.maxConnections = config.stream.max_connections + ASKING_CONNECTIONS;
  app.setErrorHandler(createErrorHandler(log, engine.secrets));
  readJson(app);
  app.decorateRequest('bodyHash', '');
  app.decorate('gauges', async () => ({ ...(await serverCounts(engine)), active_streams: hub.size() }));

  app.register(websocket, {
    options: { maxPayload: MAX_FRAME_BYTES, perMessageDeflate: false },
    errorHandler: (error, socket) => {
      log.debug({ error: error.message }, 'socket failed');
      socket.close(1011);
    },
    preClose(done) {
      closing.abort();
      hub.close();
      cutSilent();
      done();
    },
  });
  const discard = createBodyDiscard(clock);
  app.addHook('onSend', async (request, reply) => discard(request, reply));
  // The gates judge it, in their order.
  app.server.on('checkExpectation', (request, response) => app.server.emit('request', request, response));
  installGates(app, {
    server,
    tokens,
    admitClient: createClientGate(config, tokens),
    draining,
    nodeUrl: () => (trees.several ? trees.url : ''),
  });
  app.after(() => {
    app.websocketServer.on('wsClientError', answerParserError);
    const owners = installOwners(app, {
      ...deps,
      patience: deps.patience ?? PATIENCE,
      closing: closing.signal,
      discard,
      bodyLimit: server.body_limit_bytes,
    });
    registerRoutes(app, {
      ...deps,
      owners,
      hub,
      tokens,
      idempotency: createIdempotency({ store, clock }),
      started: { at: clock.now(), monotonic: clock.monotonic() },
      turnBodyLimit: server.turn_body_limit_bytes,
      gatewayBodyLimit: config.gateway.body_limit_bytes,
      documents: {
        openApi: async (version) => (await import('./openapi.ts')).openApiDocument(version),
        events: async () => (await import('./openapi.ts')).eventsDocument(),
        page: async (version) => (await import('./docs/page.ts')).docsPage(version),
      },
      closing: closing.signal,
    });
  });
  return app;
}

/**
 * One parser for every media type: the gate has let JSON through only. An empty body is `{}`. What is nested without
 * end, or made of endless parts, ends here: everything behind may recurse.
 */
function readJson(app: HttpApp): void {
  const parse = app.getDefaultJsonParser('error', 'error');
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', { parseAs: 'string' }, (request, body, done) => {
    const text = body.toString();
    const fault = faultOfJson(text, BODY);
    if (text.length === 0) done(null, {});
    else if (fault !== null) done(validationError([{ path: '', message: `the body ${fault}` }]), undefined);
    else void parse(request, text, done);
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
