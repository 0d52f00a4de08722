// What a turn would cost, asked before it is spent: routed and priced, nothing run and nothing stored (14 §4).
import { fromPusd, type Usd } from '#protocol/money.ts';
import type { PolicyEvaluation } from '#protocol/route.ts';
import { NO_TOKENS } from '#protocol/usage.ts';
import { viewOf } from '../policy/context/view.ts';
import { knownToolsetOf } from './definitions/session-workers.ts';
import { cacheLifetime, maxOutputTokens } from './model-call/model-request.ts';
import { leftOf, limitsOf, requireBudget, reservedOf } from './money/budget-limits.ts';
import { ceiling, pricingId } from './money/call-price.ts';
import { offeredTools } from './prompt/offered-tools.ts';
import { volatilePrompt } from './prompt/volatile-prompt.ts';
import { routeTurn } from './routing/route-turn.ts';
import { liveSession } from './session/find-session.ts';
import type { Engine } from './state/engine.ts';
import type { BudgetScope } from './state/reservations.ts';
import { forkMemory } from './state/route-memory.ts';
import { type IntakeBlock, takeMessage } from './turn/accept-message.ts';
import { newUserMessage } from './turn/admit.ts';

export interface Submission {
  readonly content: string | readonly IntakeBlock[];
  /** Alias or id. */
  readonly per_message_override: string | null;
}

export interface CoveringLimit {
  readonly scope: BudgetScope;
  readonly limit_usd: Usd;
  readonly spent_usd: Usd;
  readonly reserved_usd: Usd;
  readonly remaining_usd: Usd;
}

export interface CostEstimate {
  readonly chosen_model: string;
  readonly chain: readonly PolicyEvaluation[];
  readonly estimated_input_tokens: number;
  /** The estimated input alone. */
  readonly cost_floor_usd: Usd;
  /** What the first call would reserve. Tool cycles are not foreseen. */
  readonly cost_ceiling_usd: Usd;
  readonly fits_budget: boolean;
  readonly limits: readonly CoveringLimit[];
}

/**
 * Throws what submitting the same message would, short of the turn lock: `not_found`, `session_is_worker`,
 * `session_already_ended`, `budget_exceeded`, `validation_error`, `unknown_alias`, `override_missing_body`,
 * `routing_failed`, `explicit_model_rejected`.
 */
export async function estimateTurn(engine: Engine, sessionId: string, submission: Submission): Promise<CostEstimate> {
  const apart: Engine = { ...engine, routes: forkMemory(engine.routes) };
  const session = await liveSession(apart, sessionId);
  await requireBudget(apart, session);
  const message = await takeMessage(apart, session, submission);
  const turnId = apart.ids.turn();
  const now = apart.clock.now();
  const { messages } = apart.store;
  const earlier = await messages.history(session.id);
  const history = [
    ...viewOf(earlier, await messages.checkpoints(session.id)),
    newUserMessage(apart, session, { turn_id: turnId, content: message.content, now }),
  ];
  const toolset = await knownToolsetOf(apart, session);
  const { decision, refusal, context, tools } = await routeTurn(apart, {
    session,
    turn_id: turnId,
    history,
    earlier,
    override: message.override,
    worker: null,
    caps: [],
    toolset,
    tool_names: null,
    now,
  });
  if (refusal) throw refusal;
  const model = apart.registry.get(decision.chosen_model);
  if (!model) throw new Error(`the chain chose an unknown model: ${decision.chosen_model}`);

  const { price: most } = await ceiling(apart, session.id, model, {
    system_prompt: session.system_prompt,
    system_prompt_volatile: await volatilePrompt(apart, session),
    messages: history,
    tools: offeredTools(apart, session, { toolset, tools, model, granted: null }),
    max_output_tokens: maxOutputTokens(apart, model),
    cache_ttl: cacheLifetime(apart, { session, history: earlier }),
    output_schema: session.worker_definition?.output_schema ?? null,
  });
  const least = apart.prices.cost(pricingId(apart, model.id), {
    ...NO_TOKENS,
    input_tokens: context.estimated_input_tokens,
  }).cost_pusd;
  const limits = await Promise.all(
    (await limitsOf(apart, session, [])).map(async (limit) => {
      const spent = await limit.spent();
      const reserved = reservedOf(apart, limit.pool);
      const left = leftOf(limit.limit, spent, reserved);
      return { scope: limit.scope, limit: limit.limit, spent, reserved, left };
    }),
  );
  return {
    chosen_model: model.id,
    chain: decision.chain,
    estimated_input_tokens: context.estimated_input_tokens,
    cost_floor_usd: fromPusd(least),
    cost_ceiling_usd: fromPusd(most),
    fits_budget: limits.every((l) => l.left >= most),
    limits: limits.map((l) => ({
      scope: l.scope,
      limit_usd: fromPusd(l.limit),
      spent_usd: fromPusd(l.spent),
      reserved_usd: fromPusd(l.reserved),
      remaining_usd: fromPusd(l.left),
    })),
  };
}
