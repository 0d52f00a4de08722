// `/sessions/{id}/delegations`: start a worker directly (19 §3.1); `/delegations`: what it changed in a worktree (20 §2.5).
import {
  applyKeptChanges,
  listKeptWorktrees,
  pruneWorktrees,
  readChangedTexts,
  readChangesDiff,
} from '#core/engine/manage-worktrees.ts';
import { readDelegationResult, submitDelegation, waitForDelegation } from '#core/engine/submit-work.ts';
import {
  AppliedChangesSchema,
  ChangedTextsSchema,
  ChangesDiffSchema,
  DelegationReceiptSchema,
  DelegationResultSchema,
  KeptWorktreesReply,
  PrunedWorktreesSchema,
  PruneWorktreesBody,
  SubmitDelegationBody,
} from '#protocol/api/worker-bodies.ts';
import type { HttpApp, RouteDeps } from '../http-app.ts';
import { operation } from '../operation.ts';
import { SessionParams, WorkerSessionParams } from '../params.ts';
import { waitAsPreferred } from '../submissions.ts';
import { isHidden } from '../visibility.ts';

export function delegationRoutes(app: HttpApp, deps: RouteDeps): void {
  const { engine, idempotency } = deps;

  app.post(
    '/sessions/:session_id/delegations',
    {
      bodyLimit: deps.turnBodyLimit,
      preValidation: idempotency.remember,
      schema: {
        params: SessionParams,
        body: SubmitDelegationBody,
        ...operation({
          id: 'submitDelegation',
          owned: true,
          tag: 'workers',
          summary: 'Delegate a task to a worker. With Prefer: wait=<seconds> the reply waits for the result.',
          headers: ['Idempotency-Key', 'Prefer'],
          results: { 200: DelegationResultSchema, 202: DelegationReceiptSchema },
          errors: [
            'budget_exceeded',
            'not_found',
            'session_already_ended',
            'session_is_worker',
            'session_is_gateway',
            'idempotency_in_progress',
            'idempotency_key_reused',
          ],
        }),
      },
    },
    async (request, reply) => {
      const { session_id } = request.params;
      const receipt = await idempotency.once(request, reply, (claim) =>
        submitDelegation(engine, session_id, { ...request.body, submitted_by: request.person.id }, claim),
      );
      const { tool_use_id } = receipt;
      const waited = await waitAsPreferred(deps, request, (ms, signal) =>
        waitForDelegation(engine, tool_use_id, ms, signal),
      );
      const result = waited ? await readDelegationResult(engine, tool_use_id) : null;
      if (result === null) return reply.status(202).send(receipt);
      return reply.send(result);
    },
  );

  app.post(
    '/delegations/:worker_session_id/apply',
    {
      schema: {
        params: WorkerSessionParams,
        ...operation({
          id: 'applyChanges',
          owned: true,
          tag: 'workers',
          summary: 'Merge the kept changes of a worker into the workspace of its caller. A conflict changes nothing.',
          results: { 200: AppliedChangesSchema },
          errors: ['validation_error', 'not_found', 'turn_in_flight'],
        }),
      },
    },
    async (request, reply) => reply.send(await applyKeptChanges(engine, request.params.worker_session_id)),
  );

  app.get(
    '/delegations/:worker_session_id/diff',
    {
      schema: {
        params: WorkerSessionParams,
        ...operation({
          id: 'getChangesDiff',
          tag: 'workers',
          summary: 'Read what a worker changed in its worktree as a unified diff.',
          results: { 200: ChangesDiffSchema },
          errors: ['validation_error', 'not_found', 'turn_in_flight'],
        }),
      },
    },
    async (request, reply) => reply.send(await readChangesDiff(engine, request.params.worker_session_id)),
  );

  app.get(
    '/delegations/:worker_session_id/files',
    {
      schema: {
        params: WorkerSessionParams,
        ...operation({
          id: 'getChangedFiles',
          tag: 'workers',
          summary: 'Read the old and the new text of each text file that a worker changed in its worktree.',
          results: { 200: ChangedTextsSchema },
          errors: ['validation_error', 'not_found', 'turn_in_flight'],
        }),
      },
    },
    async (request, reply) => reply.send(await readChangedTexts(engine, request.params.worker_session_id)),
  );

  app.get(
    '/worktrees',
    {
      schema: {
        ...operation({
          id: 'listWorktrees',
          tag: 'workers',
          summary: 'List what is kept of worktrees, with sizes, newest first.',
          results: { 200: KeptWorktreesReply },
          errors: [],
        }),
      },
    },
    async ({ person }, reply) => {
      const kept = await listKeptWorktrees(engine);
      const hidden = await Promise.all(kept.map(({ record }) => isHidden(engine, person, record.session_id)));
      const seen = kept.filter((_, i) => !hidden[i]);
      return reply.send({ worktrees: seen.map(({ record: _, ...worktree }) => worktree) });
    },
  );

  app.post(
    '/worktrees/prune',
    {
      schema: {
        body: PruneWorktreesBody,
        ...operation({
          id: 'pruneWorktrees',
          tag: 'workers',
          summary: 'Free what is kept of workers that have ended. Without all, changes that were not applied stay.',
          results: { 200: PrunedWorktreesSchema },
          errors: ['validation_error'],
        }),
      },
    },
    async (request, reply) => reply.send(await pruneWorktrees(engine, request.body)),
  );
}
