// `/sessions/{id}/delegations`: start a worker directly, without a planner's turn (19 §3.1).
import { readDelegationResult, submitDelegation, waitForDelegation } from '#core/engine/submit-work.ts';
import { DelegationReceiptSchema, DelegationResultSchema, SubmitDelegationBody } from '#protocol/api/worker-bodies.ts';
import type { HttpApp, RouteDeps } from '../http-app.ts';
import { operation } from '../operation.ts';
import { SessionParams } from '../params.ts';
import { waitAsPreferred } from '../submissions.ts';

export function delegationRoutes(app: HttpApp, deps: RouteDeps): void {
  const { engine, idempotency } = deps;

  app.post(
    '/sessions/:session_id/delegations',
    {
      bodyLimit: deps.turnBodyLimit,
      preValidation: (request) => idempotency.remember(request),
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
        submitDelegation(engine, session_id, request.body, claim),
      );
      const { tool_use_id } = receipt;
      const waited = await waitAsPreferred(deps, request, (ms, signal) =>
        waitForDelegation(engine, tool_use_id, ms, signal),
      );
      const result = waited ? await readDelegationResult(engine, tool_use_id) : null;
      return result === null ? reply.status(202).send(receipt) : reply.send(result);
    },
  );
}
