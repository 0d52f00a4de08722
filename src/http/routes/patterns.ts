// `/patterns`: what was learned in a workspace (12 §12.7).
import { z } from 'zod';
import { listPatterns } from '#core/engine/inspect-routing.ts';
import { PatternListReply } from '#protocol/api/patterns.ts';
import { WorkspacePathSchema } from '#protocol/scalars.ts';
import type { HttpApp } from '../app.ts';
import { decodeCursor, encodeCursor } from '../cursor.ts';
import type { RouteDeps } from '../deps.ts';
import { operation } from '../operation.ts';
import { PageQuery } from '../params.ts';

export function patternRoutes(app: HttpApp, { engine }: RouteDeps): void {
  app.get(
    '/patterns',
    {
      schema: {
        querystring: z.strictObject({
          workspace_path: WorkspacePathSchema.describe('The workspace that learned them.'),
          ...PageQuery,
        }),
        ...operation({
          id: 'listPatterns',
          tag: 'models',
          summary: 'Shapes of turns in a workspace, newest first, and how each model did with them.',
          results: { 200: PatternListReply },
          errors: ['validation_error', 'not_found', 'workspace_not_allowed', 'workspace_not_shared'],
        }),
      },
    },
    async (request, reply) => {
      const { cursor, limit, workspace_path } = request.query;
      const filter = { workspace_path };
      const before = decodeCursor(cursor, filter);
      const { patterns, next } = await listPatterns(engine, workspace_path, { before, limit });
      return reply.send({ patterns, next_cursor: encodeCursor(next, filter) });
    },
  );
}
