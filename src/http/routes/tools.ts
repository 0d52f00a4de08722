// `/tools`: the tools of a workspace, and what is wrong with its MCP servers (09 §11.3).
import { z } from 'zod';
import { listTools } from '#core/engine/manage-workers.ts';
import { ToolListReply } from '#protocol/api/tools.ts';
import { WorkspacePathSchema } from '#protocol/scalars.ts';
import type { HttpApp } from '../app.ts';
import type { RouteDeps } from '../deps.ts';
import { operation } from '../operation.ts';

export function toolRoutes(app: HttpApp, { engine }: RouteDeps): void {
  app.get(
    '/tools',
    {
      schema: {
        querystring: z.strictObject({ workspace_path: WorkspacePathSchema.describe('The workspace of the tools.') }),
        ...operation({
          id: 'listTools',
          tag: 'workers',
          summary: 'List the tools of a workspace as this server knows them, and problems of its MCP servers.',
          results: { 200: ToolListReply },
          errors: ['validation_error', 'not_found', 'workspace_not_allowed', 'workspace_not_shared'],
        }),
      },
    },
    async (request, reply) => reply.send(await listTools(engine, request.query.workspace_path)),
  );
}
