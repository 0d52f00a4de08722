// `/tokens` and `/audit`: who may use the server, and what was done with it (23 §2, §4).
import { z } from 'zod';
import { createToken, describeToken, listTokens, revokeToken } from '#core/engine/manage-people.ts';
import {
  AuditListReply,
  MadeTokenReply,
  NewTokenBody,
  OwnTokenReply,
  TokenListReply,
  TokenSchema,
} from '#protocol/people/person.ts';
import type { HttpApp, RouteDeps } from '../http-app.ts';
import { operation } from '../operation.ts';
import { decodeCursor, encodeCursor, PageQuery } from '../params.ts';

const TokenParams = z.object({ token: z.string().min(1).max(100).describe('Name or id of the token.') });

export function peopleRoutes(app: HttpApp, { engine, hub, makeSecret }: RouteDeps): void {
  app.get(
    '/tokens/self',
    {
      schema: operation({
        id: 'getOwnToken',
        tag: 'people',
        summary: 'Get the token of this request with its role.',
        results: { 200: OwnTokenReply },
        errors: [],
      }),
    },
    async ({ person }, reply) => {
      const known = person.id === null ? null : engine.people.find(person.id);
      const token =
        known === null ? null : await describeToken(engine, known, await engine.store.people.openSessions());
      const { own: approves_own } = engine.config.approvals;
      return reply.send({ token, role: person.role, required: engine.people.isRequired(), approves_own });
    },
  );

  app.get(
    '/tokens',
    {
      schema: operation({
        id: 'listTokens',
        tag: 'people',
        summary: 'List the named tokens with their roles, limits and spend, revoked ones too.',
        results: { 200: TokenListReply },
        errors: [],
      }),
    },
    async (_request, reply) => reply.send({ tokens: [...(await listTokens(engine))] }),
  );

  app.post(
    '/tokens',
    {
      schema: {
        body: NewTokenBody,
        ...operation({
          id: 'createToken',
          tag: 'people',
          summary: 'Make a token. The answer holds its secret, which is stored nowhere.',
          results: { 201: MadeTokenReply },
          errors: ['token_name_taken'],
        }),
      },
    },
    async (request, reply) => {
      const { person, body } = request;
      return reply.status(201).send(await createToken(engine, person, body, makeSecret()));
    },
  );

  app.delete(
    '/tokens/:token',
    {
      schema: {
        params: TokenParams,
        ...operation({
          id: 'revokeToken',
          tag: 'people',
          summary: 'Revoke a token. Its streams are closed; its running turns go on.',
          results: { 200: TokenSchema },
          errors: ['validation_error', 'not_found', 'token_in_file', 'last_admin'],
        }),
      },
    },
    async (request, reply) => {
      const revoked = await revokeToken(engine, request.person, request.params.token);
      await hub.checkRights();
      return reply.send(revoked);
    },
  );

  app.get(
    '/audit',
    {
      schema: {
        querystring: z.strictObject(PageQuery),
        ...operation({
          id: 'listAudit',
          tag: 'people',
          summary: 'List what was done with the rights of tokens, newest first.',
          results: { 200: AuditListReply },
          errors: ['validation_error'],
        }),
      },
    },
    async (request, reply) => {
      const { cursor, limit } = request.query;
      const page = await engine.store.people.audit({ before: decodeCursor(cursor, {}), limit });
      return reply.send({ entries: [...page.rows], next_cursor: encodeCursor(page.next, {}) });
    },
  );
}
