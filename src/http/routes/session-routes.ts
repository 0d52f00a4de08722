// `/sessions`: open, list, read, change, end, purge (05 §3.1).
import { z } from 'zod';
import type { Engine } from '#core/engine/create-engine.ts';
import { compareSessions, forkSession, purgeSession } from '#core/engine/fork-session.ts';
import {
  addReservedMoney,
  createSession,
  endSession,
  findClientTree,
  listSessionsWithoutTurn,
  patchSession,
} from '#core/engine/manage-session.ts';
import { CompareReplySchema, ForkBodySchema, ForkReplySchema } from '#protocol/api/fork-bodies.ts';
import {
  CreateSessionBody,
  EndSessionReply,
  SessionListReply,
  UpdateSessionBody,
  UpdateSessionReply,
} from '#protocol/api/session-bodies.ts';
import type { Person } from '#protocol/people/person.ts';
import { DoorSchema, SessionIdSchema, WorkspacePathSchema } from '#protocol/scalars.ts';
import { SessionSchema, SessionStatusSchema } from '#protocol/session.ts';
import { WorkerNameSchema } from '#protocol/worker-definition.ts';
import { requireFound } from '../error-handler.ts';
import type { HttpApp, RouteDeps } from '../http-app.ts';
import { operation } from '../operation.ts';
import { decodeCursor, encodeCursor, flag, nameList, PageQuery, SessionParams } from '../params.ts';
import { requireRole } from '../roles.ts';
import { hideOrigin, toReader } from '../visibility.ts';

const MOST_SEARCHED = 200;
/** No column holds a NUL in PostgreSQL. */
const SearchText = z
  .string()
  .trim()
  .min(1)
  .max(MOST_SEARCHED)
  .refine((text) => !text.includes('\0'), 'must not contain the character NUL');

const ListQuery = z.strictObject({
  workspace_path: WorkspacePathSchema.optional().describe('Sessions of this workspace.'),
  include_workers: flag(false, 'Worker sessions too, not only those at the top.'),
  status: nameList(SessionStatusSchema.options).optional().describe('Comma-separated: sessions in one of these.'),
  parent_session_id: SessionIdSchema.optional().describe('Workers of this session.'),
  worker_name: WorkerNameSchema.optional().describe('Sessions of this named worker.'),
  owner: z.string().min(1).max(100).optional().describe('Sessions of this token, by name or id; me = of the caller.'),
  door: DoorSchema.optional().describe('Sessions that were opened by this door.'),
  failed: flag(false, 'Only open sessions whose newest turn failed.'),
  q: SearchText.optional().describe(
    'Part of the id, the workspace, the name of the worker, the client or the first message.',
  ),
  ...PageQuery,
});

/** The id of an owner. An unknown name owns nothing. */
function findOwner({ people }: Engine, person: Person, owner: string): string {
  if (owner === 'me') return person.id ?? '';
  return people.findId(owner) ?? owner;
}

/** Forks of a session, and how two sessions differ (21 §4). */
export function forkRoutes(app: HttpApp, { engine, idempotency, turnBodyLimit }: RouteDeps): void {
  app.post(
    '/sessions/:session_id/fork',
    {
      bodyLimit: turnBodyLimit,
      preValidation: idempotency.remember,
      schema: {
        params: SessionParams,
        body: ForkBodySchema,
        ...operation({
          id: 'forkSession',
          owned: true,
          tag: 'sessions',
          summary: 'Open a session that begins with the messages of this one. With dry_run only its price is answered.',
          headers: ['Idempotency-Key'],
          locates: true,
          results: { 200: ForkReplySchema, 201: ForkReplySchema },
          errors: [
            'validation_error',
            'unknown_alias',
            'override_missing_body',
            'not_found',
            'workspace_not_allowed',
            'workspace_not_shared',
            'model_not_configured',
            'approval_mode_not_allowed',
            'session_is_worker',
            'session_is_gateway',
            'invalid_fork_point',
            'explicit_model_rejected',
            'routing_failed',
            'server_busy',
            'idempotency_in_progress',
            'idempotency_key_reused',
          ],
        }),
      },
    },
    async (request, reply) => {
      const { session_id } = request.params;
      const fork = await idempotency.once(request, reply, (claim) =>
        forkSession(engine, session_id, { ...request.body, person: request.person }, claim),
      );
      if (fork.session === null) return reply.send(fork);
      const session = await hideOrigin(engine.store, request.person, fork.session);
      return reply
        .status(201)
        .header('location', `/sessions/${session.id}`)
        .send({ ...fork, session });
    },
  );

  app.get(
    '/sessions/:session_id/compare',
    {
      schema: {
        params: SessionParams,
        querystring: z.strictObject({ with: SessionIdSchema.describe('The other session.') }),
        ...operation({
          id: 'compareSessions',
          tag: 'sessions',
          summary: 'Compare two sessions: what both begin with, and what each did and cost behind it.',
          results: { 200: CompareReplySchema },
          errors: ['validation_error', 'not_found', 'session_is_worker'],
        }),
      },
    },
    async (request, reply) => reply.send(await compareSessions(engine, request.params.session_id, request.query.with)),
  );
}

export function sessionRoutes(app: HttpApp, { engine, hub, idempotency, owners }: RouteDeps): void {
  app.post(
    '/sessions',
    {
      preValidation: idempotency.remember,
      schema: {
        body: CreateSessionBody,
        ...operation({
          id: 'createSession',
          owned: true,
          tag: 'sessions',
          summary: 'Open a session on a workspace.',
          headers: ['Idempotency-Key'],
          locates: true,
          results: { 201: SessionSchema },
          errors: [
            'not_found',
            'workspace_not_allowed',
            'workspace_not_shared',
            'model_not_configured',
            'approval_mode_not_allowed',
            'idempotency_in_progress',
            'idempotency_key_reused',
          ],
        }),
      },
    },
    async (request, reply) => {
      const { person } = request;
      const { client_ref: ref = null } = request.body;
      const known =
        ref !== null && engine.trees.several ? await findClientTree(engine, { caller: person.name, ref }) : null;
      if (known !== null && (await owners.answerElsewhere(request, reply, known))) return reply;
      const session = await idempotency.once(request, reply, (claim) =>
        createSession(engine, { ...request.body, person }, claim),
      );
      return reply.status(201).header('location', `/sessions/${session.id}`).send(session);
    },
  );

  app.get(
    '/sessions',
    {
      schema: {
        querystring: ListQuery,
        ...operation({
          id: 'listSessions',
          tag: 'sessions',
          summary: 'List sessions, newest first.',
          results: { 200: SessionListReply },
          errors: ['validation_error'],
        }),
      },
    },
    async (request, reply) => {
      const { cursor, limit, ...filter } = request.query;
      const {
        workspace_path: given,
        status = null,
        parent_session_id = null,
        worker_name = null,
        door = null,
      } = filter;
      const page = await engine.store.sessions.list({
        workspace_path: given === undefined ? null : ((await engine.workspaces.realDirectory(given)) ?? given),
        include_workers: filter.include_workers || parent_session_id !== null || worker_name !== null,
        status,
        parent_session_id,
        worker_name,
        door,
        owner: filter.owner === undefined ? null : findOwner(engine, request.person, filter.owner),
        reader: toReader(request.person),
        search: filter.q ?? null,
        failed: filter.failed,
        running_without_turn: listSessionsWithoutTurn(engine),
        before: decodeCursor(cursor, filter),
        limit,
      });
      const sessions = await Promise.all(
        page.rows.map((session) => hideOrigin(engine.store, request.person, addReservedMoney(engine, session))),
      );
      return reply.send({ sessions, next_cursor: encodeCursor(page.next, filter) });
    },
  );

  app.get(
    '/sessions/:session_id',
    {
      schema: {
        params: SessionParams,
        ...operation({
          id: 'getSession',
          owned: true,
          tag: 'sessions',
          summary: 'Get one session: a planner or a worker, active or ended.',
          results: { 200: SessionSchema },
          errors: ['validation_error', 'not_found'],
        }),
      },
    },
    async (request, reply) => {
      const { session_id } = request.params;
      const session = requireFound(await engine.store.sessions.view(session_id), 'session', session_id);
      // These fields are in the memory of the tree's owner: reserved money, and calls of clients and of the gateway.
      const more = session.budget !== null || session.door !== 'api';
      if (more && (await owners.answerRead(request, reply, session.root_session_id))) return reply;
      return reply.send(await hideOrigin(engine.store, request.person, addReservedMoney(engine, session)));
    },
  );

  app.patch(
    '/sessions/:session_id',
    {
      schema: {
        params: SessionParams,
        body: UpdateSessionBody,
        ...operation({
          id: 'updateSession',
          owned: true,
          tag: 'sessions',
          summary: 'Change the sticky model, the money limit, or who owns and sees the session.',
          results: { 200: UpdateSessionReply },
          errors: ['not_found', 'forbidden', 'session_already_ended', 'session_is_worker', 'model_not_configured'],
        }),
      },
    },
    async (request, reply) => {
      const { active_model, max_cost_usd, on_reached, share, owner } = request.body;
      const { person } = request;
      const patch = {
        ...(active_model !== undefined && { active_model }),
        ...(max_cost_usd !== undefined && { max_cost_usd }),
        ...(on_reached !== undefined && { on_reached }),
        ...(share !== undefined && { share }),
        ...(owner !== undefined && { owner }),
      };
      const patched = await patchSession(engine, request.params.session_id, patch, person);
      if (share !== undefined || owner !== undefined) await hub.checkRights();
      return reply.send(patched);
    },
  );

  app.delete(
    '/sessions/:session_id',
    {
      schema: {
        params: SessionParams,
        querystring: z.strictObject({
          purge: flag(false, 'Take the ended session and all it stored away.').meta({ 'x-metis-role': 'admin' }),
        }),
        ...operation({
          id: 'endSession',
          owned: true,
          tag: 'sessions',
          summary: 'End a session. With purge=true it is removed with its workers; the cost ledger stays.',
          results: { 200: EndSessionReply },
          errors: ['validation_error', 'not_found', 'session_already_ended', 'session_is_worker'],
        }),
      },
    },
    async (request, reply) => {
      const { session_id } = request.params;
      const { person } = request;
      if (!request.query.purge) return reply.send(await endSession(engine, session_id, person));
      requireRole(person, 'admin');
      const { endSession: endFork } = owners;
      const purged = await purgeSession(engine, session_id, person, endFork && ((fork) => endFork(request, fork)));
      hub.closePurged(session_id);
      return reply.send(purged);
    },
  );
}
