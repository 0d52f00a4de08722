// The server itself: health, readiness, metrics, documents, nodes and maintenance (05 §3.7, §5).
import { z } from 'zod';
import type { ServerCounts } from '#core/engine/manage-session.ts';
import {
  HealthReply,
  NodeListReply,
  NodeReply,
  PruneEventsBody,
  PruneEventsReply,
  ReadinessReply,
  SettingsReply,
} from '#protocol/api/server-bodies.ts';
import { type Clock, isoTime } from '#protocol/clock.ts';
import { AppError, validationError } from '#protocol/errors.ts';
import { SELF_PATH } from '../forward/other-nodes.ts';
import type { HttpApp, RouteDeps } from '../http-app.ts';
import { operation } from '../operation.ts';

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
        summary: 'Get the health of the server with its counts of active sessions, workers and turns.',
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
        summary: 'Check whether the server can write.',
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
        summary: 'Get the metrics since the start, in the format of Prometheus.',
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
        summary: 'Get this document as an HTML page.',
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
        summary: 'Get this document.',
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
        summary: 'Get the JSON Schema of all stored events.',
        results: { 200: Document },
        errors: [],
      }),
    },
    async (_request, reply) => reply.type(JSON_TYPE).send(await documents.events()),
  );
}

/** Below the second after which a probe gives up. */
const PATIENCE_MS = 800;

/**
 * Asks one question at a time: a caller that comes while it is open waits for the same answer. Null where the answer failed or
 * did not come in time.
 */
function createRecentAnswer<T>(clock: Clock, ask: () => Promise<T>): () => Promise<{ readonly value: T } | null> {
  let open: Promise<T> | null = null;
  return () => {
    open ??= ask().finally(() => {
      open = null;
    });
    const asked = open;
    return new Promise((resolve) => {
      const timer = clock.after(PATIENCE_MS, () => resolve(null));
      asked.then(
        (value) => {
          timer.cancel();
          resolve({ value });
        },
        () => {
          timer.cancel();
          resolve(null);
        },
      );
    });
  };
}

export const NO_COUNTS: ServerCounts = { active_sessions: 0, active_workers: 0, active_turns: 0 };

/** What `ask` answers; while its service does not answer, what it answered last, and `first` before that. */
export function createRecent<T>(clock: Clock, ask: () => Promise<T>, first: T): () => Promise<T> {
  const askSoon = createRecentAnswer(clock, ask);
  let last = first;
  return async () => {
    last = (await askSoon())?.value ?? last;
    return last;
  };
}

/** `/nodes`: the nodes that share this database (16 §5.7). */
export function nodeRoutes(app: HttpApp, { engine: { trees }, reach }: RouteDeps): void {
  app.get(
    '/nodes',
    {
      schema: operation({
        id: 'listNodes',
        tag: 'meta',
        summary: 'List active nodes by name; an embedded server is the only one.',
        results: { 200: NodeListReply },
        errors: [],
      }),
    },
    async (_request, reply) => {
      const nodes = await trees.nodes();
      return reply.send(nodes.map((node) => ({ ...node, reachable: node.id === trees.node || reach.canReach(node) })));
    },
  );

  app.get(
    SELF_PATH,
    {
      config: { open: 'everywhere', unlimited: true },
      schema: operation({
        id: 'getNode',
        tag: 'meta',
        summary: 'Get the id of the node that answers. Nodes ask each other for it.',
        open: 'everywhere',
        results: { 200: NodeReply },
        errors: [],
      }),
    },
    async (_request, reply) => reply.send({ id: trees.node }),
  );
}

/** `/settings`: what is in force and where it is set, without secrets (15 §1). */
export function settingsRoutes(app: HttpApp, { settings }: RouteDeps): void {
  app.get(
    '/settings',
    {
      schema: operation({
        id: 'getSettings',
        tag: 'meta',
        summary: 'Get the settings of the server that answers, each with where it is set. Secrets are left out.',
        results: { 200: SettingsReply },
        errors: [],
      }),
    },
    async (_request, reply) => reply.send(settings()),
  );
}

const DAY_MS = 24 * 60 * 60 * 1000;

/** `/maintenance/prune`: deletes old events, keeps costs and messages (02 §6, 05 §3.7). */
export function maintenanceRoutes(app: HttpApp, { engine }: RouteDeps): void {
  app.post(
    '/maintenance/prune',
    {
      schema: {
        body: PruneEventsBody,
        ...operation({
          id: 'pruneEvents',
          tag: 'maintenance',
          summary: 'Delete events older than some days. Sessions with an open turn are skipped.',
          results: { 200: PruneEventsReply },
          errors: [],
        }),
      },
    },
    async (request, reply) => {
      const { days = engine.config.trace.retention_days, dry_run } = request.body;
      if (days === null) {
        throw validationError([{ path: 'days', message: 'is required: trace.retention_days keeps events for ever' }]);
      }
      const report = await engine.journal.prune(engine.clock.now() - days * DAY_MS, dry_run);
      return reply.send({
        cutoff: isoTime(report.cutoff),
        rows_deleted: report.rows_deleted,
        sessions_skipped: report.sessions_skipped,
        oldest_kept_timestamp: report.oldest_kept === null ? null : isoTime(report.oldest_kept),
        dry_run,
      });
    },
  );
}
