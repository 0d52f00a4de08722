// What the server says of itself: health, readiness, and its own contract (05 §3.7, §5).
import { z } from 'zod';
import { HealthReply, ReadinessReply } from '../../domain/api/server.ts';
import { isoTime } from '../../kernel/clock.ts';
import { AppError } from '../../kernel/errors.ts';
import type { HttpApp } from '../app.ts';
import type { RouteDeps } from '../deps.ts';
import { operation } from '../operation.ts';

const JSON_TYPE = 'application/json; charset=utf-8';

const Document = z.record(z.string(), z.unknown());

export function metaRoutes(app: HttpApp, { engine, version, started, documents }: RouteDeps): void {
  app.get(
    '/healthz',
    {
      config: { open: true },
      schema: operation({
        id: 'getHealth',
        tag: 'meta',
        summary: 'Alive, with what is going on.',
        open: true,
        results: { 200: HealthReply },
        errors: [],
      }),
    },
    async (_request, reply) =>
      reply.send({
        status: 'ok',
        version,
        started_at: isoTime(started.at),
        uptime_seconds: (engine.clock.monotonic() - started.monotonic) / 1000,
        ...(await engine.store.sessions.counts()),
      }),
  );

  app.get(
    '/readyz',
    {
      config: { open: true },
      schema: operation({
        id: 'getReadiness',
        tag: 'meta',
        summary: 'Whether a write would succeed.',
        open: true,
        results: { 200: ReadinessReply },
        errors: [],
      }),
    },
    async (_request, reply) => {
      if (await engine.store.writable()) return reply.send({ status: 'ready' });
      throw new AppError('storage_unavailable', 'the database cannot be written');
    },
  );

  app.get(
    '/openapi.json',
    {
      schema: operation({
        id: 'getOpenApi',
        tag: 'meta',
        summary: 'This document.',
        results: { 200: Document },
        errors: [],
      }),
    },
    async (_request, reply) => reply.type(JSON_TYPE).send(await documents.openApi(version)),
  );

  app.get(
    '/events.schema.json',
    {
      schema: operation({
        id: 'getEventSchema',
        tag: 'meta',
        summary: 'The union of all stored events as JSON Schema.',
        results: { 200: Document },
        errors: [],
      }),
    },
    async (_request, reply) => reply.type(JSON_TYPE).send(await documents.events()),
  );
}
