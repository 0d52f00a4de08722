// What a workspace offers: named workers, tools, and trusted files (09 §11.3, 13 §10, 20 §11).
import { z } from 'zod';
import { recordAudit } from '#core/engine/manage-people.ts';
import { listTrust, trustFile, untrustFile } from '#core/engine/manage-trust.ts';
import {
  createWorkerDefinition,
  deleteWorkerDefinition,
  getWorkerDefinition,
  listTools,
  listWorkerDefinitions,
  replaceWorkerDefinition,
} from '#core/engine/manage-workers.ts';
import {
  TrustedFileSchema,
  TrustFileBody,
  TrustQuery,
  TrustReply,
  UntrustQuery,
} from '#protocol/api/approval-bodies.ts';
import { ToolListReply } from '#protocol/api/server-bodies.ts';
import {
  CreateWorkerBody,
  DefinitionListReply,
  ReplaceWorkerBody,
  WorkerDetailSchema,
} from '#protocol/api/worker-bodies.ts';
import { SessionIdSchema, WorkerOriginSchema, WorkspacePathSchema } from '#protocol/scalars.ts';
import { WorkerNameSchema } from '#protocol/worker-definition.ts';
import type { HttpApp, RouteDeps } from '../http-app.ts';
import { operation } from '../operation.ts';
import { decodeCursor, encodeCursor, flag, PageQuery } from '../params.ts';

const InWorkspace = WorkspacePathSchema.describe('The workspace whose workers are meant.');
const WithSession = SessionIdSchema.optional().describe('Those that the tree of this session has made too.');
const WorkerParams = z.object({ name: WorkerNameSchema });

export function workerRoutes(app: HttpApp, { engine }: RouteDeps): void {
  app.get(
    '/workers',
    {
      schema: {
        querystring: z.strictObject({
          workspace_path: InWorkspace,
          origin: WorkerOriginSchema.optional().describe('Those of this origin.'),
          session_id: WithSession,
          callable: flag(false, 'Only those that this session, or a new one, may call.'),
          ...PageQuery,
        }),
        ...operation({
          id: 'listWorkerDefinitions',
          tag: 'workers',
          summary: 'List the named workers of a workspace by name. Invalid ones come with their problems.',
          results: { 200: DefinitionListReply },
          errors: ['validation_error', 'not_found', 'workspace_not_allowed', 'workspace_not_shared'],
        }),
      },
    },
    async (request, reply) => {
      const { cursor, limit, ...filter } = request.query;
      const after = decodeCursor(cursor, filter);
      const all = (
        await listWorkerDefinitions(engine, filter.workspace_path, filter.session_id ?? null, filter.callable)
      )
        .filter(({ origin }) => filter.origin === undefined || origin === filter.origin)
        .filter(({ name }) => after === null || name > after);
      const workers = all.slice(0, limit);
      const next = all.length > limit ? workers.at(-1)!.name : null;
      return reply.send({ workers, next_cursor: encodeCursor(next, filter) });
    },
  );

  app.get(
    '/workers/:name',
    {
      schema: {
        params: WorkerParams,
        querystring: z.strictObject({ workspace_path: InWorkspace, session_id: WithSession }),
        ...operation({
          id: 'getWorkerDefinition',
          tag: 'workers',
          summary: 'Get one named worker with its definition, prompt and problems.',
          results: { 200: WorkerDetailSchema },
          errors: ['validation_error', 'not_found', 'workspace_not_allowed', 'workspace_not_shared'],
        }),
      },
    },
    async (request, reply) => {
      const { workspace_path, session_id = null } = request.query;
      const about = { name: request.params.name, session: session_id };
      return reply.send(await getWorkerDefinition(engine, workspace_path, about));
    },
  );

  app.post(
    '/workers',
    {
      schema: {
        body: CreateWorkerBody,
        ...operation({
          id: 'createWorkerDefinition',
          tag: 'workers',
          summary: 'Save a worker in its project. Its definition is written to .metis/workers.',
          results: { 201: WorkerDetailSchema },
          errors: ['not_found', 'workspace_not_allowed', 'workspace_not_shared', 'worker_exists', 'worker_read_only'],
        }),
      },
    },
    async (request, reply) => {
      const made = await createWorkerDefinition(engine, request.body.workspace_path, request.body);
      await recordAudit(engine, request.person, 'worker.changed', {
        subject: made.name,
        details: { change: 'created' },
      });
      return reply.status(201).send(made);
    },
  );

  app.put(
    '/workers/:name',
    {
      schema: {
        params: WorkerParams,
        body: ReplaceWorkerBody,
        ...operation({
          id: 'replaceWorkerDefinition',
          tag: 'workers',
          summary: 'Replace the definition of a worker. Active sessions keep the definition that they have.',
          results: { 200: WorkerDetailSchema },
          errors: ['not_found', 'workspace_not_allowed', 'workspace_not_shared', 'worker_locked', 'worker_read_only'],
        }),
      },
    },
    async (request, reply) => {
      const { person, body, params } = request;
      const replaced = await replaceWorkerDefinition(engine, body.workspace_path, params.name, body);
      await recordAudit(engine, person, 'worker.changed', { subject: params.name, details: { change: 'replaced' } });
      return reply.send(replaced);
    },
  );

  app.delete(
    '/workers/:name',
    {
      schema: {
        params: WorkerParams,
        querystring: z.strictObject({ workspace_path: InWorkspace, force: flag(false, 'A locked one too.') }),
        ...operation({
          id: 'deleteWorkerDefinition',
          tag: 'workers',
          summary: 'Remove a worker from its project. Active sessions keep running.',
          results: { 204: null },
          errors: [
            'validation_error',
            'not_found',
            'workspace_not_allowed',
            'workspace_not_shared',
            'worker_locked',
            'worker_read_only',
          ],
        }),
      },
    },
    async (request, reply) => {
      const { name } = request.params;
      await deleteWorkerDefinition(engine, request.query.workspace_path, name, request.query.force);
      await recordAudit(engine, request.person, 'worker.changed', { subject: name, details: { change: 'deleted' } });
      return reply.status(204).send();
    },
  );
}

/** `/tools`: the tools of a workspace, and problems of its MCP servers (09 §11.3). */
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

/** `/workspaces/trust`: files of a workspace that are trusted or wait for trust (20 §11). */
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
