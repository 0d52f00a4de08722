// `/workspaces/trust`: the files of a workspace that a person has trusted, or that wait for it (20 §11).

import { listTrust, trustFile, untrustFile } from '#core/engine/manage-workers.ts';
import { TrustedFileSchema, TrustFileBody, TrustQuery, TrustReply, UntrustQuery } from '#protocol/api/trust.ts';
import type { HttpApp } from '../app.ts';
import type { RouteDeps } from '../deps.ts';
import { operation } from '../operation.ts';

export function trustRoutes(app: HttpApp, { engine }: RouteDeps): void {
  app.get(
    '/workspaces/trust',
    {
      schema: {
        querystring: TrustQuery,
        ...operation({
          id: 'listTrustedFiles',
          tag: 'workers',
          summary: 'List the files of a workspace that are trusted, and those that count only once they are.',
          results: { 200: TrustReply },
          errors: ['validation_error', 'not_found', 'workspace_not_allowed', 'workspace_not_shared'],
        }),
      },
    },
    async (request, reply) => {
      const { workspace_path, path = null } = request.query;
      return reply.send({ files: [...(await listTrust(engine, workspace_path, path))] });
    },
  );

  app.post(
    '/workspaces/trust',
    {
      schema: {
        body: TrustFileBody,
        ...operation({
          id: 'trustFile',
          tag: 'workers',
          summary: 'Trust the bytes of a file; a changed file is not trusted any more.',
          results: { 200: TrustedFileSchema },
          errors: ['not_found', 'workspace_not_allowed', 'workspace_not_shared'],
        }),
      },
    },
    async (request, reply) => reply.send(await trustFile(engine, request.body)),
  );

  app.delete(
    '/workspaces/trust',
    {
      schema: {
        querystring: UntrustQuery,
        ...operation({
          id: 'untrustFile',
          tag: 'workers',
          summary: 'Take back the trust in a file.',
          results: { 204: null },
          errors: ['validation_error', 'not_found', 'workspace_not_allowed', 'workspace_not_shared'],
        }),
      },
    },
    async (request, reply) => {
      await untrustFile(engine, request.query.workspace_path, request.query.path);
      return reply.status(204).send();
    },
  );
}
