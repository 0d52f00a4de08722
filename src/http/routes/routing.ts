// `/routing`: the policy in force, a file checked, a decision explained (05 §3.5).
import { z } from 'zod';
import { checkPolicy, explainRoute, policyInForce } from '#core/engine/inspect-routing.ts';
import {
  CheckRoutingBody,
  CheckRoutingReply,
  ExplainRouteBody,
  ExplainRouteReply,
  RoutingPolicyReply,
} from '#protocol/api/models.ts';
import { WorkspacePathSchema } from '#protocol/scalars.ts';
import type { HttpApp } from '../app.ts';
import type { RouteDeps } from '../deps.ts';
import { operation } from '../operation.ts';

export function routingRoutes(app: HttpApp, { engine }: RouteDeps): void {
  app.get(
    '/routing/policy',
    {
      schema: {
        querystring: z.strictObject({
          workspace_path: WorkspacePathSchema.optional().describe('With the rules of this workspace.'),
        }),
        ...operation({
          id: 'getRoutingPolicy',
          tag: 'models',
          summary: 'The routing policy a turn that starts now would meet.',
          results: { 200: RoutingPolicyReply },
          errors: ['validation_error', 'not_found', 'workspace_not_allowed', 'workspace_not_shared'],
        }),
      },
    },
    async (request, reply) => reply.send(await policyInForce(engine, request.query.workspace_path ?? null)),
  );

  app.post(
    '/routing/check',
    {
      schema: {
        body: CheckRoutingBody,
        ...operation({
          id: 'checkRoutingPolicy',
          tag: 'models',
          summary: 'Check the text of a routing file, or the files on disk; loads nothing.',
          results: { 200: CheckRoutingReply },
          errors: ['not_found', 'workspace_not_allowed', 'workspace_not_shared'],
        }),
      },
    },
    async (request, reply) => {
      const { policy_yaml, workspace_path } = request.body;
      return reply.send(await checkPolicy(engine, policy_yaml, workspace_path));
    },
  );

  app.post(
    '/routing/explain',
    {
      schema: {
        body: ExplainRouteBody,
        ...operation({
          id: 'explainRoute',
          tag: 'models',
          summary: 'Which model a message would get as the first of a new session, and why; runs and stores nothing.',
          results: { 200: ExplainRouteReply },
          errors: [
            'not_found',
            'workspace_not_allowed',
            'workspace_not_shared',
            'model_not_configured',
            'unknown_alias',
            'override_missing_body',
          ],
        }),
      },
    },
    async (request, reply) => reply.send(await explainRoute(engine, request.body)),
  );
}
