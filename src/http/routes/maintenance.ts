// `/maintenance/prune`: old events go, costs and messages stay (02 §6, 05 §3.7).
import { PruneEventsBody, PruneEventsReply } from '#protocol/api/server.ts';
import { isoTime } from '#protocol/clock.ts';
import { validationError } from '#protocol/errors.ts';
import type { HttpApp } from '../app.ts';
import type { RouteDeps } from '../deps.ts';
import { operation } from '../operation.ts';

const DAY_MS = 24 * 60 * 60 * 1000;

export function maintenanceRoutes(app: HttpApp, { engine }: RouteDeps): void {
  app.post(
    '/maintenance/prune',
    {
      schema: {
        body: PruneEventsBody,
        ...operation({
          id: 'pruneEvents',
          tag: 'maintenance',
          summary: 'Delete events older than some days, of sessions that are at rest.',
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
