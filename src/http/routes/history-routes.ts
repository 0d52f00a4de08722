// The history of a session: messages, events, workers, and the upgrade to its live stream (05 §3.4, 06 §2).
import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { CallListReply, EventListReply, MessageListReply, WorkerListReply } from '#protocol/api/session-bodies.ts';
import { AppError, validationError } from '#protocol/errors.ts';
import { EVENT_TYPES } from '#protocol/event.ts';
import { type StoredMessage, withoutRaw } from '#protocol/message.ts';
import { EventIdSchema, MessageIdSchema, ToolUseIdSchema } from '#protocol/scalars.ts';
import { isDelivery } from '#protocol/text/delivery.ts';
import { scrubValue } from '#protocol/text/scrub.ts';
import { CaseReplySchema } from '#protocol/what-if/case.ts';
import { requireFound } from '../error-handler.ts';
import type { HttpApp, RouteDeps } from '../http-app.ts';
import { operation } from '../operation.ts';
import {
  CursorSchema,
  decodeCursor,
  encodeCursor,
  flag,
  limit,
  nameList,
  PageQuery,
  parseOrThrow,
  SessionParams,
} from '../params.ts';
import { serveSocket } from '../stream/socket.ts';
import { serveEventStream, tooManyConnections } from '../stream/sse.ts';
import { parseQuerySubscription } from '../stream/subscription.ts';

const MessagesQuery = z.strictObject({
  before: MessageIdSchema.optional().describe('Messages below this id, the newest of them.'),
  after: MessageIdSchema.optional().describe('Messages above this id, the oldest of them.'),
  limit: limit(50, 200),
  prefix: flag(false, 'Of a fork: the messages of other sessions that it begins with, in place of its own.'),
});

const EventsQuery = z.strictObject({
  types: nameList(EVENT_TYPES).optional(),
  since: EventIdSchema.optional(),
  until: EventIdSchema.optional(),
  include_worker_sessions: flag(false, 'Events of worker sessions too.'),
  cursor: CursorSchema,
  limit: limit(100, 1000),
});

const text = z.string().optional();
/** The union of both forms, for readers; each form is checked strictly by its own schema. */
const EventsOrStreamQuery = z.strictObject({
  types: text.describe('Comma-separated types; a stream also takes the transient ones.'),
  since: text.describe('Events above this id.'),
  until: text.describe('JSON only: events up to this id.'),
  include_worker_sessions: text.describe('true or false (default).'),
  cursor: text.describe('JSON only.'),
  limit: text.describe('JSON only: default 100, at most 1000.'),
  preset: text.describe('Stream only: chat.'),
  snapshot: text.describe('Stream only: true or false (default).'),
});

const WorkersQuery = z.strictObject({
  tool_use_id: ToolUseIdSchema.optional().describe('The delegation of this call alone.'),
  recursive: flag(false, 'Workers of workers too.'),
  ...PageQuery,
});

/** The newest messages within the boundaries, or behind `after` the oldest. */
function cutPage(
  messages: readonly StoredMessage[],
  {
    before,
    after,
    limit: rows,
  }: { readonly before: string | null; readonly after: string | null; readonly limit: number },
): z.infer<typeof MessageListReply> {
  const from = after === null ? 0 : messages.filter(({ id }) => id <= after).length;
  const to = before === null ? messages.length : messages.filter(({ id }) => id < before).length;
  const [start, end] = after === null ? [Math.max(from, to - rows), to] : [from, Math.min(to, from + rows)];
  return {
    messages: messages.slice(start, end).map(withoutRaw),
    has_more_before: start > 0,
    has_more_after: end < messages.length,
  };
}

function isFromPerson(message: StoredMessage): boolean {
  return message.role === 'user' && !isDelivery(message);
}

/** What a recorded session needs to run again (21 §3): messages and approvals on the first page alone. */
export function caseRoutes(app: HttpApp, { engine }: RouteDeps): void {
  app.get(
    '/sessions/:session_id/case',
    {
      schema: {
        params: SessionParams,
        querystring: z.strictObject({ cursor: CursorSchema, limit: limit(20, 100) }),
        ...operation({
          id: 'getCase',
          tag: 'history',
          summary: 'List the recorded model calls of a session and its workers, and where its workspace began.',
          results: { 200: CaseReplySchema },
          errors: ['validation_error', 'not_found', 'session_is_worker', 'case_not_recorded'],
        }),
      },
    },
    async (request, reply) => {
      const { session_id } = request.params;
      const { cursor, limit: rows } = request.query;
      const { cases, messages, sessions } = engine.store;
      const { id, is_worker } = requireFound(await sessions.record(session_id), 'session', session_id);
      if (is_worker) throw new AppError('session_is_worker', 'the case of a worker is that of its planner');
      const start = await cases.start(id);
      if (start === null)
        throw new AppError('case_not_recorded', `session ${id} noted no start; open it with record_case: true`);
      const filter = { session_id };
      const after = decodeCursor(cursor, filter);
      const { rows: calls, next } = await cases.calls(id, after, rows);
      const own = after === null ? (await messages.history(id)).filter(isFromPerson) : [];
      const found = {
        messages: own.map(({ id: message_id, turn_id, content }) => ({ message_id, turn_id, content })),
        approvals: after === null ? [...(await cases.approvals(id))] : [],
        calls: calls.map((call) => ({ ...call })),
      };
      return reply.send({ start, ...scrubValue(found, engine.secrets), next_cursor: encodeCursor(next, filter) });
    },
  );
}

export function historyRoutes(app: HttpApp, deps: RouteDeps): void {
  const { engine } = deps;

  app.get(
    '/sessions/:session_id/messages',
    {
      schema: {
        params: SessionParams,
        querystring: MessagesQuery,
        ...operation({
          id: 'listMessages',
          tag: 'history',
          summary: 'List messages, ascending: the newest, or those around a boundary.',
          results: {
            200: MessageListReply,
          },
          errors: ['validation_error', 'not_found'],
        }),
      },
    },
    async (request, reply) => {
      const { session_id } = request.params;
      const { before = null, after = null, limit: rows, prefix } = request.query;
      const { id } = requireFound(await engine.store.sessions.record(session_id), 'session', session_id);
      const { messages } = engine.store;
      if (prefix) return reply.send(cutPage(await messages.prefix(id), { before, after, limit: rows }));
      return reply.send(await messages.page(id, { before, after, limit: rows }));
    },
  );

  app.get(
    '/sessions/:session_id/events',
    {
      schema: {
        params: SessionParams,
        querystring: EventsOrStreamQuery,
        ...operation({
          id: 'listEvents',
          headers: ['Last-Event-ID'],
          tag: 'history',
          summary: 'List events, ascending. With Accept: text/event-stream the reply is a live stream of frames.',
          results: {
            200: {
              content: {
                'application/json': {
                  schema: EventListReply,
                },
                'text/event-stream': { schema: z.string() },
              },
            },
            204: null,
          },
          errors: ['validation_error', 'not_found', 'cursor_expired', 'too_many_connections'],
        }),
      },
    },
    async (request, reply) => {
      const { session_id } = request.params;
      if (wantsStream(request)) return sendEventStream(deps, request, reply, session_id);
      return sendEvents(deps, request, reply, session_id);
    },
  );

  app.get(
    '/sessions/:session_id/calls',
    {
      schema: {
        params: SessionParams,
        querystring: z.strictObject(PageQuery),
        ...operation({
          id: 'listCalls',
          tag: 'history',
          summary: 'List the model calls of a session with their cost and rounds, ascending.',
          results: { 200: CallListReply },
          errors: ['validation_error', 'not_found'],
        }),
      },
    },
    async (request, reply) => {
      const { session_id } = request.params;
      const { cursor, limit: rows } = request.query;
      const scope = { session_id };
      requireFound(await engine.store.sessions.record(session_id), 'session', session_id);
      const page = await engine.store.calls.list(session_id, { after: decodeCursor(cursor, scope), limit: rows });
      return reply.send({ calls: [...page.rows], next_cursor: encodeCursor(page.next, scope) });
    },
  );

  app.get(
    '/sessions/:session_id/workers',
    {
      schema: {
        params: SessionParams,
        querystring: WorkersQuery,
        ...operation({
          id: 'listWorkers',
          tag: 'history',
          summary: 'List the delegations of a session, ascending, including those without a worker.',
          results: { 200: WorkerListReply },
          errors: ['validation_error', 'not_found'],
        }),
      },
    },
    async (request, reply) => {
      const { session_id } = request.params;
      const { cursor, limit: rows, recursive, tool_use_id } = request.query;
      const scope = { session_id, recursive };
      const after = decodeCursor(cursor, scope);
      requireFound(await engine.store.sessions.record(session_id), 'session', session_id);
      if (tool_use_id !== undefined) {
        const one = await engine.store.delegations.view(tool_use_id);
        const workers = one?.parent_session_id === session_id ? [one] : [];
        return reply.send({ workers, next_cursor: null });
      }
      const page = await engine.store.delegations.list(session_id, { recursive, after, limit: rows });
      return reply.send({ workers: page.rows, next_cursor: encodeCursor(page.next, scope) });
    },
  );
}

const STREAM_ONLY = ['preset', 'snapshot'];
const JSON_ONLY = ['until', 'cursor', 'limit'];

/** Throws `validation_error` for parameters of the other form of the same address. */
function refuseOtherForm(query: unknown, names: readonly string[], fix: string): void {
  const given = names.filter((name) => Object.hasOwn(query as object, name));
  if (given.length > 0) throw validationError(given.map((path) => ({ path, message: fix })));
}

function wantsStream(request: FastifyRequest): boolean {
  return /(^|,)\s*text\/event-stream\b/i.test(request.headers.accept ?? '');
}

async function sendEvents({ engine }: RouteDeps, request: FastifyRequest, reply: FastifyReply, session_id: string) {
  refuseOtherForm(request.query, STREAM_ONLY, 'is of the stream alone: send "Accept: text/event-stream"');
  const { cursor, limit: rows, ...filter } = parseOrThrow(EventsQuery, request.query);
  const { types = null, since = null, until = null, include_worker_sessions } = filter;
  const scope = { session_id, ...filter };
  const from = decodeCursor(cursor, scope) ?? since;
  requireFound(await engine.store.sessions.record(session_id), 'session', session_id);
  const page = await engine.store.events.list({
    session_id,
    include_workers: include_worker_sessions,
    types,
    after: from,
    until,
    limit: rows,
  });
  return reply.send({ events: page.rows, next_cursor: encodeCursor(page.next, scope) });
}

/** A reconnecting EventSource repeats its URL: its own cursor then counts, and no second snapshot is sent. */
async function sendEventStream({ hub }: RouteDeps, request: FastifyRequest, reply: FastifyReply, sessionId: string) {
  refuseOtherForm(request.query, JSON_ONLY, 'is not of the stream: leave out "Accept: text/event-stream"');
  const asked = parseQuerySubscription(request.query);
  const last = request.headers['last-event-id'];
  if (last === undefined || last === '')
    return serveEventStream(hub, request, reply, { sessionId, subscription: asked });
  const { last_event_id: since } = parseOrThrow(z.object({ last_event_id: EventIdSchema }), { last_event_id: last });
  return serveEventStream(hub, request, reply, { sessionId, subscription: { ...asked, since, snapshot: false } });
}

/** `GET /sessions/{id}/stream`: the upgrade to a WebSocket (06 §2). */
export function streamRoutes(app: HttpApp, { engine, hub, noteRefusal }: RouteDeps): void {
  app.route({
    method: 'GET',
    url: '/sessions/:session_id/stream',
    config: { upgrade: true },
    schema: {
      params: SessionParams,
      ...operation({
        id: 'streamSession',
        tag: 'history',
        summary: 'Stream live frames of a session over a WebSocket.',
        results: { 101: z.null().describe('Switching to WebSocket') },
        errors: ['validation_error', 'not_found', 'too_many_connections'],
      }),
      ...{ 'x-websocket': true },
    },
    preHandler: [
      async (request) => {
        const { session_id } = request.params;
        // A caller that has not sent its token yet must not learn which sessions exist.
        if (request.authorised) requireFound(await engine.store.sessions.record(session_id), 'session', session_id);
      },
      // Synchronous and last, so that nothing can take the place between this check and the upgrade.
      (_request, _reply, done) => done(hub.isFull() ? tooManyConnections(hub) : undefined),
    ],
    handler: async () => {
      throw validationError([{ path: 'Upgrade', message: 'this path needs a WebSocket upgrade' }]);
    },
    wsHandler: (socket, request) => {
      const { session_id } = SessionParams.parse(request.params);
      const query = request.query as Record<string, unknown>;
      const connection = request.raw.socket;
      const { person, tokenHash: digest } = request;
      const caller = request.authorised ? { person, digest } : null;
      serveSocket(hub, socket, {
        sessionId: session_id,
        caller,
        query,
        connection,
        noteRefusal: () => noteRefusal(request),
      });
    },
  });
}
