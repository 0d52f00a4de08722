// `GET /sessions/{id}/stream`: the upgrade to a WebSocket (06 §2).
import { z } from 'zod';
import { validationError } from '#protocol/errors.ts';
import type { HttpApp } from '../app.ts';
import type { RouteDeps } from '../deps.ts';
import { found } from '../error-handler.ts';
import { operation } from '../operation.ts';
import { SessionParams } from '../params.ts';
import { serveSocket } from '../stream/socket.ts';
import { tooManyConnections } from '../stream/sse.ts';

export function streamRoutes(app: HttpApp, { engine, hub, tokens }: RouteDeps): void {
  app.route({
    method: 'GET',
    url: '/sessions/:session_id/stream',
    config: { upgrade: true },
    schema: {
      params: SessionParams,
      ...operation({
        id: 'streamSession',
        tag: 'history',
        summary: 'Live frames of a session over a WebSocket.',
        results: { 101: z.null().describe('Switching to WebSocket') },
        errors: ['validation_error', 'not_found', 'too_many_connections'],
      }),
      ...{ 'x-websocket': true },
    },
    preHandler: [
      async (request) => {
        const { session_id } = request.params;
        // Whoever has not shown a token yet learns nothing about which sessions exist.
        if (request.authorised) found(await engine.store.sessions.record(session_id), 'session', session_id);
      },
      // Synchronous and last, so that nothing can take the place between this check and the upgrade.
      (_request, _reply, done) => done(hub.full() ? tooManyConnections(hub) : undefined),
    ],
    handler: async () => {
      throw validationError([{ path: 'Upgrade', message: 'this path needs a WebSocket upgrade' }]);
    },
    wsHandler: (socket, request) => {
      const { session_id } = SessionParams.parse(request.params);
      const query = request.query as Record<string, unknown>;
      const connection = request.raw.socket;
      serveSocket(hub, tokens, socket, { sessionId: session_id, authorised: request.authorised, query, connection });
    },
  });
}
