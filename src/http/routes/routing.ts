// `/routing`: the policy in force, a file checked, a decision explained (05 §3.5).
import { z } from 'zod';
import { ConfigSchema } from '../../domain/config.ts';
import { PolicyEvaluationSchema, RefusalSchema } from '../../domain/route.ts';
import { CountSchema, Sha256Schema, TimeSchema } from '../../domain/scalars.ts';
import { explainRoute } from '../../engine/explain-route.ts';
import { checkPolicy, policyInForce } from '../../engine/routing-policy.ts';
import type { HttpApp } from '../app.ts';
import type { RouteDeps } from '../deps.ts';
import { operation } from '../operation.ts';
import { WorkspacePathSchema } from '../params.ts';

const Model = z.string().nullable();
const PolicyReply = z.object({
  version: Sha256Schema.nullable(),
  valid: z.boolean(),
  loaded_at: TimeSchema.nullable(),
  global_default: Model,
  workspace_default: Model,
  tiers: z.object({ fast: Model, balanced: Model, deep: Model }),
  rules: z.array(z.object({ name: z.string(), when: z.unknown(), use: z.string() })),
  pattern: ConfigSchema.shape.pattern,
  errors: z.array(z.string()).optional(),
  using_last_known_good: z.boolean().optional(),
});
const CheckReply = z.object({ valid: z.boolean(), errors: z.array(z.string()), warnings: z.array(z.string()) });
const ExplainReply = z.object({
  chosen_model: z.string(),
  winner_index: z.int().min(-1).max(6),
  refused: RefusalSchema.nullable(),
  chain: z.array(PolicyEvaluationSchema).length(7),
  estimated_input_tokens: CountSchema,
  routing_policy_version: Sha256Schema.nullable(),
});

export function routingRoutes(app: HttpApp, { engine }: RouteDeps): void {
  app.get(
    '/routing/policy',
    {
      schema: {
        querystring: z.strictObject({ workspace_path: WorkspacePathSchema.optional() }),
        ...operation({
          id: 'getRoutingPolicy',
          tag: 'models',
          summary: 'The routing policy a turn that starts now would meet.',
          results: { 200: PolicyReply },
          errors: ['validation_error', 'not_found', 'workspace_not_allowed'],
        }),
      },
    },
    async (request, reply) => reply.send(await policyInForce(engine, request.query.workspace_path ?? null)),
  );

  app.post(
    '/routing/check',
    {
      schema: {
        body: z.strictObject({
          policy_yaml: z.string().nullable().default(null),
          workspace_path: WorkspacePathSchema.nullable().default(null),
        }),
        ...operation({
          id: 'checkRoutingPolicy',
          tag: 'models',
          summary: 'Check the text of a routing file, or the files on disk; loads nothing.',
          body: true,
          results: { 200: CheckReply },
          errors: ['not_found', 'workspace_not_allowed'],
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
        body: z.strictObject({
          text: z.string(),
          workspace_path: WorkspacePathSchema,
          model: z.string().min(1).nullable().default(null),
        }),
        ...operation({
          id: 'explainRoute',
          tag: 'models',
          summary: 'Which model a message would get as the first of a new session, and why; runs and stores nothing.',
          body: true,
          results: { 200: ExplainReply },
          errors: [
            'not_found',
            'workspace_not_allowed',
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
