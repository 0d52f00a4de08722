// What the server says of itself: health, readiness, and its own contract (05 §3.7, §5).
import { z } from 'zod';
import { HealthReply, ReadinessReply } from '#protocol/api/server.ts';
import { isoTime } from '#protocol/clock.ts';
import { AppError } from '#protocol/errors.ts';
import type { HttpApp } from '../app.ts';
import type { RouteDeps } from '../deps.ts';
import { operation } from '../operation.ts';
import { createRecentAnswer } from '../recent-answer.ts';

const PROMETHEUS_TYPE = 'text/plain; version=0.0.4; charset=utf-8';
const JSON_TYPE = 'application/json; charset=utf-8';

const Document = z.record(z.string(), z.unknown());

export function metaRoutes(app: HttpApp, { engine, metrics, version, started, documents, counts }: RouteDeps): void {
  const writeFault = createRecentAnswer(engine.clock, () => engine.store.writeFault());
  app.get(
    '/healthz',
    {
      // Probes ask by HEAD as well.
      exposeHeadRoute: true,
      config: { open: 'everywhere', unlimited: true },
      schema: operation({
        id: 'getHealth',
        tag: 'meta',
        summary: 'Alive, with what is going on.',
        open: 'everywhere',
        results: { 200: HealthReply },
        errors: [],
      }),
    },
    async (_request, reply) =>
      reply.send({
        status: 'ok',
        version,
        started_at: isoTime(started.at),
        uptime_seconds: Math.round(engine.clock.monotonic() - started.monotonic) / 1000,
        ...(await counts()),
      }),
  );

  app.get(
    '/readyz',
    {
      // Probes ask by HEAD as well.
      exposeHeadRoute: true,
      config: { open: 'everywhere', unlimited: true },
      schema: operation({
        id: 'getReadiness',
        tag: 'meta',
        summary: 'Whether a write would succeed.',
        open: 'everywhere',
        results: { 200: ReadinessReply },
        errors: ['node_unavailable'],
      }),
    },
    async (_request, reply) => {
      const reason = engine.trees.unready();
      if (reason !== null) throw new AppError('node_unavailable', reason);
      const fault = await writeFault();
      if (fault?.value === null) return reply.send({ status: 'ready' });
      throw new AppError('storage_unavailable', fault?.value ?? 'the database did not answer within a second');
    },
  );

  app.get(
    '/metrics',
    {
      config: { open: 'on_loopback' },
      schema: operation({
        id: 'getMetrics',
        tag: 'meta',
        summary: 'Counts since the start, for Prometheus.',
        open: 'on_loopback',
        results: { 200: { content: { 'text/plain': { schema: z.string() } } } },
        errors: [],
      }),
    },
    async (_request, reply) => reply.type(PROMETHEUS_TYPE).send(metrics(await app.gauges())),
  );

  app.get(
    '/docs',
    {
      config: { open: 'everywhere' },
      schema: operation({
        id: 'getDocs',
        tag: 'meta',
        summary: 'This document as a page to read.',
        open: 'everywhere',
        results: { 200: { content: { 'text/html': { schema: z.string() } } } },
        errors: ['rate_limit_exceeded'],
      }),
    },
    async (_request, reply) => {
      const { page, policy } = await documents.page(version);
      return reply
        .type('text/html; charset=utf-8')
        .header('content-security-policy', policy)
        .header('referrer-policy', 'no-referrer')
        .send(page);
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
