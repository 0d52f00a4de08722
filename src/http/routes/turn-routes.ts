// `/sessions/{id}/turns`: submit, list, read, cancel, conclude, resume (05 §3.2).
import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import { cancelTurn, concludeTurn, resumeTurn, scoreTurn } from '#core/engine/control-turn.ts';
import { estimateTurn } from '#core/engine/inspect-routing.ts';
import { addCheckedOutput } from '#core/engine/manage-session.ts';
import { isResumedAutomatically, submitTurn, waitForTurn } from '#core/engine/submit-work.ts';
import {
  CancelTurnBody,
  CancelTurnReply,
  ConcludeTurnReply,
  EstimateTurnBody,
  EstimateTurnReply,
  ResumeTurnReply,
  ScoreTurnBody,
  ScoreTurnReply,
  SubmitTurnBody,
  TurnListReply,
  TurnReceipt,
} from '#protocol/api/session-bodies.ts';
import { type Awaitable, continueWith } from '#protocol/async/awaitable.ts';
import { type Turn, TurnSchema } from '#protocol/turn.ts';
import { requireFound } from '../error-handler.ts';
import type { HttpApp, RouteDeps } from '../http-app.ts';
import { operation } from '../operation.ts';
import { decodeCursor, encodeCursor, PageQuery, SessionParams, TurnParams } from '../params.ts';
import { waitAsPreferred } from '../submissions.ts';

export function turnRoutes(app: HttpApp, deps: RouteDeps): void {
  const { engine, idempotency, traces } = deps;

  app.post(
    '/sessions/:session_id/estimate',
    {
      config: { repeatable: true },
      bodyLimit: deps.turnBodyLimit,
      schema: {
        params: SessionParams,
        body: EstimateTurnBody,
        ...operation({
          id: 'estimateTurn',
          owned: true,
          tag: 'turns',
          summary: 'Route and price a turn without running or storing it.',
          results: { 200: EstimateTurnReply },
          errors: [
            'unknown_alias',
            'override_missing_body',
            'budget_exceeded',
            'not_found',
            'session_already_ended',
            'session_is_worker',
            'explicit_model_rejected',
            'routing_failed',
          ],
        }),
      },
    },
    async (request, reply) => reply.send(await estimateTurn(engine, request.params.session_id, request.body)),
  );

  app.post(
    '/sessions/:session_id/turns',
    {
      config: { turn: true },
      bodyLimit: deps.turnBodyLimit,
      preValidation: idempotency.remember,
      schema: {
        params: SessionParams,
        body: SubmitTurnBody,
        ...operation({
          id: 'submitTurn',
          owned: true,
          tag: 'turns',
          summary:
            'Start a turn. With Prefer: wait=<seconds> the turn is the answer once it has ended or is interrupted.',
          headers: ['Idempotency-Key', 'Prefer'],
          locates: true,
          results: { 200: TurnSchema, 202: TurnReceipt },
          errors: [
            'unknown_alias',
            'override_missing_body',
            'budget_exceeded',
            'not_found',
            'session_already_ended',
            'session_is_gateway',
            'session_is_worker',
            'turn_in_flight',
            'idempotency_in_progress',
            'idempotency_key_reused',
            'explicit_model_rejected',
            'server_busy',
            'routing_failed',
          ],
        }),
      },
    },
    async (request, reply) => {
      const { session_id } = request.params;
      const receipt = await idempotency.once(request, reply, async (claim) => {
        const turnId = engine.ids.turn();
        traces.incoming(turnId, request.headers);
        let made: string | null = null;
        try {
          const answer = await submitTurn(
            engine,
            session_id,
            { ...request.body, submitted_by: request.person.id, turn_id: turnId },
            claim,
          );
          made = answer.turn_id;
          return answer;
        } finally {
          if (made !== turnId) traces.forget(turnId);
        }
      });
      reply.header('location', `/sessions/${session_id}/turns/${receipt.turn_id}`);
      const waiting = waitForTurnEnd(deps, request, receipt);
      const turn = waiting instanceof Promise ? await waiting : waiting;
      if (turn === null) return reply.status(202).send(receipt);
      return reply.send(turn);
    },
  );

  app.get(
    '/sessions/:session_id/turns',
    {
      schema: {
        params: SessionParams,
        querystring: z.strictObject(PageQuery),
        ...operation({
          id: 'listTurns',
          tag: 'turns',
          summary: 'List the turns of a session, newest first.',
          results: { 200: TurnListReply },
          errors: ['validation_error', 'not_found'],
        }),
      },
    },
    async (request, reply) => {
      const { session_id } = request.params;
      const { cursor, limit } = request.query;
      const before = decodeCursor(cursor, { session_id });
      requireFound(await engine.store.sessions.record(session_id), 'session', session_id);
      const page = await engine.store.turns.list(session_id, before, limit);
      const turns = await Promise.all(page.rows.map((turn) => addCheckedOutput(engine, turn)));
      return reply.send({ turns, next_cursor: encodeCursor(page.next, { session_id }) });
    },
  );

  app.get(
    '/sessions/:session_id/turns/:turn_id',
    {
      schema: {
        params: TurnParams,
        ...operation({
          id: 'getTurn',
          tag: 'turns',
          summary: 'Get one turn.',
          results: { 200: TurnSchema },
          errors: ['validation_error', 'not_found'],
        }),
      },
    },
    async (request, reply) => {
      const { session_id, turn_id } = request.params;
      requireFound(await engine.store.sessions.record(session_id), 'session', session_id);
      const turn = requireFound(await engine.store.turns.view(session_id, turn_id), 'turn', turn_id);
      return reply.send(await addCheckedOutput(engine, turn));
    },
  );

  app.post(
    '/sessions/:session_id/turns/:turn_id/cancel',
    {
      config: { repeatable: true },
      schema: {
        params: TurnParams,
        body: CancelTurnBody,
        ...operation({
          id: 'cancelTurn',
          owned: true,
          tag: 'turns',
          summary: 'Cancel a turn and everything below it.',
          results: { 202: CancelTurnReply },
          errors: ['not_found', 'turn_already_completed'],
        }),
      },
    },
    async (request, reply) => {
      const { session_id, turn_id } = request.params;
      return reply.status(202).send(await cancelTurn(engine, session_id, turn_id, request.body.reason));
    },
  );

  app.post(
    '/sessions/:session_id/turns/:turn_id/conclude',
    {
      config: { repeatable: true },
      schema: {
        params: TurnParams,
        body: z.strictObject({}),
        ...operation({
          id: 'concludeTurn',
          owned: true,
          tag: 'turns',
          summary: 'Let a running turn answer with what it has. 200 where that was requested before.',
          results: { 200: ConcludeTurnReply, 202: ConcludeTurnReply },
          errors: ['not_found', 'turn_not_running'],
        }),
      },
    },
    async (request, reply) => {
      const { session_id, turn_id } = request.params;
      const concluded = await concludeTurn(engine, session_id, turn_id);
      return reply.status(concluded.applied ? 202 : 200).send(concluded);
    },
  );

  app.post(
    '/sessions/:session_id/turns/:turn_id/resume',
    {
      schema: {
        params: TurnParams,
        body: z.strictObject({}),
        ...operation({
          id: 'resumeTurn',
          owned: true,
          tag: 'turns',
          summary: 'Resume an interrupted turn.',
          results: { 202: ResumeTurnReply },
          errors: ['budget_exceeded', 'not_found', 'session_is_worker', 'turn_not_interrupted'],
        }),
      },
    },
    async (request, reply) => {
      const { session_id, turn_id } = request.params;
      return reply.status(202).send(await resumeTurn(engine, session_id, turn_id));
    },
  );

  app.put(
    '/sessions/:session_id/turns/:turn_id/score',
    {
      config: { repeatable: true },
      schema: {
        params: TurnParams,
        body: ScoreTurnBody,
        ...operation({
          id: 'scoreTurn',
          owned: true,
          tag: 'turns',
          summary: 'Score an ended turn. A new score replaces the earlier one; routing learns from it.',
          results: { 200: ScoreTurnReply },
          errors: ['not_found', 'turn_in_flight'],
        }),
      },
    },
    async (request, reply) => {
      const { session_id, turn_id } = request.params;
      return reply.send(await scoreTurn(engine, session_id, turn_id, request.body));
    },
  );
}

/** With `Prefer: wait`, the turn once it has ended or is interrupted; null without the header, after the wait, or where the turn continues elsewhere. */
function waitForTurnEnd(
  deps: RouteDeps,
  request: FastifyRequest,
  receipt: z.infer<typeof TurnReceipt>,
): Awaitable<Turn | null> {
  const { engine } = deps;
  const asked = waitAsPreferred(deps, request, (ms, signal) => waitForTurn(engine, receipt, ms, signal));
  return continueWith(asked, (waited) => (waited ? readEndedTurn(engine, receipt) : null));
}

async function readEndedTurn(engine: RouteDeps['engine'], receipt: z.infer<typeof TurnReceipt>): Promise<Turn | null> {
  const turn = await engine.store.turns.view(receipt.session_id, receipt.turn_id);
  if (turn === null || (turn.ended_at === null && turn.status !== 'interrupted')) return null;
  if (isResumedAutomatically(engine, turn)) return null;
  return addCheckedOutput(engine, turn);
}
