// The gates before a handler, in their order: shutdown, Host, Origin, token, rate, route, body (05 §1.2).
import type { Socket } from 'node:net';
import type { FastifyReply, FastifyRequest, HookHandlerDoneFunction, RouteOptions } from 'fastify';
import type { z } from 'zod';
import { shuttingDownError } from '#core/engine/lifecycle.ts';
import type { People } from '#core/engine/manage-people.ts';
import { type Awaitable, continueWith } from '#protocol/async/awaitable.ts';
import type { Config } from '#protocol/config.ts';
import { AppError, validationError } from '#protocol/errors.ts';
import { NAMELESS_ADMIN } from '#protocol/people/person.ts';
import { createHostRule, createOriginRule, isForeignLoad, isLoopback, parseAuthority, parseBearer } from './access.ts';
import { MAX_TARGET_BYTES, notFound, uriTooLong } from './error-handler.ts';
import { FORWARDED, markNotTaken } from './forward/headers.ts';
import type { HttpApp } from './http-app.ts';
import { getOperationRole, requireRole } from './roles.ts';

// The route table: paths and methods as 405, preflights and the body gate need them.

interface RouteTable {
  /** Every method that some path takes, but HEAD, which no page has to ask for. */
  methods(): readonly string[];
  /** Methods that the path of this request target takes; none when there is no such path. */
  allowed(target: string): readonly string[];
  /** Whether an empty object is not enough as the body of this route. */
  bodyRequired(method: string, pattern: string): boolean;
}

interface PathEntry {
  readonly match: RegExp;
  readonly methods: Set<string>;
}

/** Follows the registration of routes. Call it before the first one. */
function trackRoutes(app: HttpApp): RouteTable {
  const paths = new Map<string, PathEntry>();
  const needBody = new Set<string>();

  app.addHook('onRoute', ({ method, url, schema }: RouteOptions) => {
    const path = paths.get(url) ?? { match: toPattern(url), methods: new Set<string>() };
    paths.set(url, path);
    for (const one of [method].flat()) {
      path.methods.add(one);
      const body = schema?.body as z.ZodType | undefined;
      if (body !== undefined && !body.safeParse({}).success) needBody.add(`${one} ${url}`);
    }
  });

  return {
    methods: () =>
      [...new Set([...paths.values()].flatMap(({ methods }) => [...methods]))].filter((m) => m !== 'HEAD').sort(),
    allowed(target) {
      const path = target.split('?', 1)[0] ?? '';
      const entry = [...paths.values()].find(({ match }) => match.test(path));
      if (entry === undefined) return [];
      return [...entry.methods].sort();
    },
    bodyRequired: (method, pattern) => needBody.has(`${method} ${pattern}`),
  };
}

/** `/sessions/:session_id` as a pattern of whole paths. */
function toPattern(url: string): RegExp {
  const escaped = url.replace(/[.*+?^${}()|[\]\\]/g, '\\$&').replace(/:[A-Za-z_]+/g, '[^/]+');
  return new RegExp(`^${escaped}$`);
}

const MAX_HEADER_BYTES = 16_384;
const PREFLIGHT_SECONDS = 600;
const MINUTE_MS = 60_000;
/** Parameters of a path that name the tree of a request. */
const TARGETS = ['session_id', 'worker_session_id', 'confirmation_id'];
/** Sent with every answer: no caching, no type sniffing. A route may override them. */
export const ANSWER_HEADERS = { 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' } as const;
const JSON_TYPE = /^application\/json\s*(;\s*charset\s*=\s*"?utf-8"?\s*)?$/i;

interface GateSettings {
  readonly server: Config['server'];
  readonly people: People;
  /** Of the gateway: sets the person. Throws `unauthorized` and `forbidden`. */
  readonly admitClient: (request: FastifyRequest) => Promise<void>;
  /** Records a token that was refused. */
  readonly noteRefusal: (request: FastifyRequest) => void;
  readonly draining: () => boolean;
  /** Whether the connection exceeds the limit. */
  readonly isSpare: (socket: Socket) => boolean;
  /** Where other nodes reach this one; '' = none do. */
  readonly nodeUrl: () => string;
}

/** Installs every gate on the root instance. Call it after the WebSocket plugin and before any route. */
export function installGates(app: HttpApp, settings: GateSettings): void {
  const table = trackRoutes(app);
  app.decorateRequest('tokenHash', '');
  app.decorateRequest('person');
  app.decorateRequest('authorised', true);
  app.after(() => {
    app.addHook('onRequest', callerGates(settings, table));
  });
  installRateLimit(app, settings.server);
  app.after(() => {
    app.addHook('onRequest', (request, reply, done) => {
      judgeTarget(request, reply, table);
      judgeBody(request, table);
      done();
    });
  });
  app.addHook('preValidation', (request, _reply, done) => {
    request.body ??= {};
    done();
  });
}

/** Gates 1 to 4: they look at the caller, not at what is asked. */
function callerGates(settings: GateSettings, table: RouteTable) {
  const { server, people, isSpare, admitClient, draining, nodeUrl } = settings;
  const hostIsOurs = createHostRule(server);
  const isNode = (host: string | undefined) => nodeUrl() !== '' && new URL(nodeUrl()).host === host?.toLowerCase();
  const judgeOrigin = createOriginRule(server.cors_allowed_origins);
  const onLoopback = isLoopback(server.host);
  const isOpen = ({ routeOptions: { config } }: FastifyRequest) =>
    config.open === 'everywhere' || (onLoopback && config.open === 'on_loopback');

  function admitCaller(request: FastifyRequest): Awaitable<void> {
    if (request.routeOptions.config.gateway !== undefined) return admitClient(request);
    if (people.isRequired()) return authenticate(request, settings);
  }

  return (request: FastifyRequest, reply: FastifyReply, done: HookHandlerDoneFunction): void => {
    reply.headers(ANSWER_HEADERS);
    request.person = NAMELESS_ADMIN;
    const { headers } = request;
    const { origin } = headers;
    const host = parseAuthority(request.originalUrl) ?? headers.host;
    if (draining() && !(nodeUrl() !== '' && isServedWhileDraining(request))) {
      markNotTaken(request, reply);
      throw shuttingDownError();
    }
    if (isSpare(request.socket) && request.routeOptions.config.unlimited !== true) {
      reply.header('connection', 'close');
      throw new AppError('too_many_connections', 'the server has no free connection; try again');
    }
    const ours = hostIsOurs(host, request.socket.localPort ?? server.port) || isNode(host);
    if (isRepeated(request, 'host') || !ours) {
      throw new AppError('host_not_allowed', 'this Host is not served here; see server.allowed_hosts');
    }
    const verdict = judgeOrigin(origin, host);
    if (verdict === 'foreign' || (verdict === 'none' && isForeignLoad(headers))) {
      throw new AppError('origin_not_allowed', 'pages of this origin may not call; see server.cors_allowed_origins');
    }
    if (verdict === 'listed') {
      reply.header('access-control-allow-origin', origin).header('vary', 'Origin');
      reply.header('access-control-expose-headers', 'Retry-After, Idempotency-Replayed, Location');
      if (isPreflight(request)) {
        answerPreflight(reply, table);
        return;
      }
    }
    if (isOpen(request)) {
      done();
      return;
    }
    // Another node may have made the first token.
    const current = people.isRequired() ? undefined : people.keepCurrent();
    endHook(
      continueWith(current, () => admitCaller(request)),
      done,
    );
  };
}

/** Ends a hook that rarely waits: at once, or when its work is done. A promise for each hook of each request costs more than most hooks. */
export function endHook(work: Awaitable<void>, done: HookHandlerDoneFunction): void {
  if (work instanceof Promise) work.then(() => done(), done);
  else done();
}

/** Paths that a supervisor asks: the process lives and has work. */
const OF_SUPERVISORS: readonly unknown[] = ['/healthz', '/metrics'];

/**
 * Of a node that goes down: what it still runs can be read, cancelled and changed through the other nodes, which all
 * new requests go to (16 §4.6).
 */
function isServedWhileDraining({ headers, params, routeOptions }: FastifyRequest): boolean {
  if (OF_SUPERVISORS.includes(routeOptions.url)) return true;
  return headers[FORWARDED] !== undefined && TARGETS.some((name) => Object.hasOwn((params ?? {}) as object, name));
}

/** Whether a header with a single value was sent more than once. */
export function isRepeated({ raw }: FastifyRequest, name: string): boolean {
  return (raw.headersDistinct[name]?.length ?? 0) > 1;
}

function isPreflight(request: FastifyRequest): boolean {
  return request.method === 'OPTIONS' && request.headers['access-control-request-method'] !== undefined;
}

function answerPreflight(reply: FastifyReply, table: RouteTable): FastifyReply {
  return reply
    .header('access-control-allow-methods', table.methods().join(', '))
    .header('access-control-allow-headers', 'Authorization, Content-Type, Idempotency-Key, Last-Event-ID, Prefer')
    .header('access-control-max-age', PREFLIGHT_SECONDS)
    .status(204)
    .send();
}

async function authenticate(request: FastifyRequest, { people, noteRefusal }: GateSettings): Promise<void> {
  const { config } = request.routeOptions;
  // Node takes the first of two, a proxy in front may have judged the other.
  const header = isRepeated(request, 'authorization') ? '' : request.headers.authorization;
  if (header === undefined && config.upgrade === true && request.ws) {
    request.authorised = false;
    return;
  }
  const token = parseBearer(header);
  const caller = token === null ? null : await people.recognize(token);
  if (caller === null) {
    if (token !== null) noteRefusal(request);
    throw new AppError('unauthorized', 'send a valid token as Authorization: Bearer <token>');
  }
  request.tokenHash = caller.digest;
  request.person = caller.person;
  const role = getOperationRole(request);
  if (role !== null) requireRole(caller.person, role);
}

/** Gate 5, as a hook of the root, so that unknown paths count as well. */
function installRateLimit(app: HttpApp, server: Config['server']): void {
  const max = server.rate_limit_rpm;
  if (max === null) return;
  app.register(import('@fastify/rate-limit'), {
    global: false,
    max,
    timeWindow: MINUTE_MS,
    keyGenerator: (request) => request.tokenHash || request.ip,
    allowList: (request) => request.routeOptions.config.unlimited === true,
    errorResponseBuilder: (_request, { after }) =>
      new AppError('rate_limit_exceeded', `more than ${max} requests in a minute; try again in ${after}`),
  });
  app.after(() => {
    app.addHook('onRequest', app.rateLimit());
  });
}

/** Gate 6, and the limits of what stands before the body. */
function judgeTarget(request: FastifyRequest, reply: FastifyReply, table: RouteTable): void {
  if (Buffer.byteLength(request.originalUrl) > MAX_TARGET_BYTES) throw uriTooLong();
  if (headerBytes(request.raw.rawHeaders) > MAX_HEADER_BYTES) {
    throw new AppError('headers_too_large', 'the headers are larger than 16 KiB');
  }
  if (request.is404) {
    const allowedMethods = table.allowed(request.url);
    if (allowedMethods.length === 0) throw notFound('route');
    reply.header('allow', allowedMethods.join(', '));
    throw new AppError('method_not_allowed', `this path takes ${allowedMethods.join(', ')}`);
  }
  const { expect } = request.headers;
  if (expect !== undefined && expect.toLowerCase() !== '100-continue') {
    throw new AppError('expectation_failed', 'of Expect only 100-continue is met here; leave the header out');
  }
  if (request.ws && !takesUpgrade(request)) {
    throw validationError([{ path: 'Upgrade', message: 'this path takes no such upgrade' }]);
  }
}

function takesUpgrade(request: FastifyRequest): boolean {
  return request.routeOptions.config.upgrade === true && request.headers.upgrade?.toLowerCase() === 'websocket';
}

function headerBytes(raw: readonly string[]): number {
  // Each part is followed by two bytes: ": " or the end of the line.
  return raw.reduce((sum, part) => sum + part.length + 2, 0);
}

/** Gate 7, before the body is read: media type, then the announced size. What was not announced is counted later. */
function judgeBody(request: FastifyRequest, table: RouteTable): void {
  const { method, headers } = request;
  if (method === 'GET') return;
  const length = Number(headers['content-length'] ?? 0);
  const present = length > 0 || headers['transfer-encoding'] !== undefined;
  const required = table.bodyRequired(method, request.routeOptions.url ?? '');
  const encoding = headers['content-encoding']?.toLowerCase() ?? 'identity';
  if (present && encoding !== 'identity') {
    throw new AppError('unsupported_media_type', 'send the body as it is, without Content-Encoding');
  }
  if ((present || required) && !JSON_TYPE.test(headers['content-type'] ?? '')) {
    throw new AppError('unsupported_media_type', 'send the body as Content-Type: application/json');
  }
  const limit = request.routeOptions.bodyLimit;
  // Refused here the connection stays open, and a client that is still writing gets to read the answer.
  if (limit !== undefined && length > limit) {
    throw new AppError('payload_too_large', `the body is larger than the ${limit} bytes this path accepts`);
  }
}
