// `/confirmations`: pending approvals and their answers (05 §3.3).
import { z } from 'zod';
import { answerConfirmation } from '#core/engine/answer-approval.ts';
import {
  AnswerConfirmationBody,
  AnswerConfirmationReply,
  ConfirmationListReply,
} from '#protocol/api/approval-bodies.ts';
import { ConfirmationDetailSchema } from '#protocol/confirmation.ts';
import { SessionIdSchema } from '#protocol/scalars.ts';
import { requireFound } from '../error-handler.ts';
import type { HttpApp, RouteDeps } from '../http-app.ts';
import { operation } from '../operation.ts';
import { ConfirmationParams, decodeCursor, encodeCursor, PageQuery } from '../params.ts';
import { toReader } from '../visibility.ts';

const ListQuery = z.strictObject({
  session_id: SessionIdSchema.optional().describe('Questions of this session and its workers.'),
  status: z
    .enum(['pending', 'resolved', 'all'])
    .default('pending')
    .describe('Which questions: open ones, answered ones, or all.'),
  ...PageQuery,
});

export function confirmationRoutes(app: HttpApp, { engine }: RouteDeps): void {
  app.get(
    '/confirmations',
    {
      schema: {
        querystring: ListQuery,
        ...operation({
          id: 'listConfirmations',
          tag: 'confirmations',
          summary: 'List confirmations, oldest first: of a session and its workers, or of all sessions.',
          results: { 200: ConfirmationListReply },
          errors: ['validation_error', 'not_found'],
        }),
      },
    },
    async (request, reply) => {
      const { cursor, limit, ...filter } = request.query;
      const { session_id = null, status } = filter;
      const after = decodeCursor(cursor, filter);
      if (session_id !== null) requireFound(await engine.store.sessions.record(session_id), 'session', session_id);
      const page = await engine.store.confirmations.list({
        session_id,
        reader: toReader(request.person),
        status,
        after,
        limit,
      });
      return reply.send({ confirmations: page.rows, next_cursor: encodeCursor(page.next, filter) });
    },
  );

  app.get(
    '/confirmations/:confirmation_id',
    {
      schema: {
        params: ConfirmationParams,
        ...operation({
          id: 'getConfirmation',
          tag: 'confirmations',
          summary: 'Get one confirmation with the full input of its tool call.',
          results: { 200: ConfirmationDetailSchema },
          errors: ['validation_error', 'not_found'],
        }),
      },
    },
    async (request, reply) => {
      const { confirmation_id } = request.params;
      return reply.send(
        requireFound(await engine.store.confirmations.view(confirmation_id), 'confirmation', confirmation_id),
      );
    },
  );

  app.post(
    '/confirmations/:confirmation_id',
    {
      config: { repeatable: true },
      schema: {
        params: ConfirmationParams,
        body: AnswerConfirmationBody,
        ...operation({
          id: 'answerConfirmation',
          owned: true,
          tag: 'confirmations',
          summary: 'Answer a confirmation. The first answer is final.',
          results: {
            200: AnswerConfirmationReply,
          },
          errors: ['not_found', 'invalid_modified_input', 'confirmation_already_resolved', 'not_modifiable'],
        }),
      },
    },
    async (request, reply) =>
      reply.send(await answerConfirmation(engine, request.params.confirmation_id, request.body, request.person)),
  );
}
