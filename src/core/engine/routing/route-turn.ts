// A turn's route: its context gathered, then decided. Admission and `POST /routing/explain` both come through here (03 §3).

import { estimateRequest } from '#core/policy/context/estimate.ts';
import { hasImage, summaryOf } from '#core/policy/context/history.ts';
import { elidables, savedBy } from '#core/policy/context/window.ts';
import { decideRoute, routeError } from '#core/policy/routing/chain.ts';
import type { AppError } from '#protocol/errors.ts';
import type { TurnId } from '#protocol/ids.ts';
import type { Fingerprint } from '#protocol/learning/pattern.ts';
import type { ContentBlock, StoredMessage } from '#protocol/message.ts';
import type { RouteDecision, TurnContext } from '#protocol/route.ts';
import type { ToolDefinition } from '#protocol/tool.ts';
import { limitsOf } from '../money/budget-limits.ts';
import { baseTools } from '../prompt/offered-tools.ts';
import { volatilePrompt } from '../prompt/volatile-prompt.ts';
import type { Engine } from '../state/engine.ts';
import type { DelegationCap } from '../state/reservations.ts';
import type { WorkerRun } from '../state/turn-run.ts';
import { adviceFor, type TurnToShape } from './recommendation.ts';
import { type RouteEnvironment, routeEnvironment } from './route-environment.ts';

export interface TurnToRoute extends TurnToShape {
  readonly turn_id: TurnId;
  /** Everything that would be sent, as the checkpoints leave it, the new user message last. */
  readonly history: readonly StoredMessage[];
  /** Canonical id. */
  readonly override: string | null;
  readonly worker: Pick<WorkerRun, 'task' | 'files' | 'tier_model' | 'tier_reason' | 'output_schema'> | null;
  /** Money caps of the delegations it works under. */
  readonly caps: readonly DelegationCap[];
  /** For a worker: the names its delegation granted. */
  readonly tool_names: readonly string[] | null;
  /** Unix milliseconds. */
  readonly now: number;
}

export interface RoutedTurn {
  readonly decision: RouteDecision;
  /** What a refused decision tells the caller; null when a model was chosen. */
  readonly refusal: AppError | null;
  readonly context: TurnContext;
  readonly environment: RouteEnvironment;
  /** The turn's shape; null where nothing is learned of it. */
  readonly fingerprint: Fingerprint | null;
  /** Without `delegate`, whose offer follows the model. */
  readonly tools: readonly ToolDefinition[];
  /** The volatile system text as it was read for the decision. */
  readonly volatile: string | null;
  /** Of the decision alone. */
  readonly elapsed_ms: number;
}

/** Gathers what the chain needs and asks it. Stores nothing. */
export async function routeTurn(engine: Engine, turn: TurnToRoute): Promise<RoutedTurn> {
  const { session, history, worker } = turn;
  const message = history.at(-1);
  if (!message) throw new Error('a turn is routed for a message');
  const tools = baseTools(session, { toolset: turn.toolset, granted: turn.tool_names });
  const volatile = await volatilePrompt(engine, session);
  const environment = await routeEnvironment(engine, session, turn.now);
  const output_schema = worker?.output_schema ?? session.worker_definition?.output_schema ?? null;
  const estimated = estimateRequest({
    system_prompt: session.system_prompt,
    system_prompt_volatile: volatile,
    messages: history,
    tools,
    output_schema,
  });
  const gathered = {
    session_id: session.id,
    turn_id: turn.turn_id,
    estimated_input_tokens: estimated,
    smallest_input_tokens: smallest(engine, history, estimated),
    has_images: summaryOf(history).has_images,
    message_has_images: hasImage(message),
    has_tool_definitions: tools.length > 0,
    has_system_prompt: (session.system_prompt ?? volatile) !== null,
    requires_structured_output: output_schema !== null,
    document_media_types: summaryOf(history).document_types,
    budget_limited: session.max_cost_usd !== null || (await limitsOf(engine, session, turn.caps)).length > 0,
    per_message_override: turn.override,
    session_active_model: session.active_model,
    is_worker: session.is_worker,
    worker_tier_model: worker?.tier_model ?? null,
    worker_tier_reason: worker?.tier_reason ?? null,
    workspace_path: session.workspace_path,
    user_message_text: worker?.task ?? firstText(message.content),
    cost_today_usd: environment.cost_today_usd,
    requested: null,
    now: turn.now,
  };
  const { env } = environment;
  const { fingerprint, advice } = await adviceFor(engine, turn, message, { context: gathered, env });
  const context: TurnContext = { ...gathered, ...advice };
  const before = engine.clock.monotonic();
  const decision = decideRoute(context, env);
  const elapsed_ms = Math.max(0, Math.round((engine.clock.monotonic() - before) * 1000) / 1000);
  const refusal = routeError(decision, context, env);
  return { decision, refusal, context, environment, fingerprint, tools, volatile, elapsed_ms };
}

/** Looked for only where some model is too small for the whole. */
function smallest(engine: Engine, view: readonly StoredMessage[], estimated: number): number {
  const fitsAll = engine.registry.models.every((m) => estimated <= m.capabilities.max_context_tokens);
  if (fitsAll || engine.config.context.compaction.mode === 'off') return estimated;
  const { old, recent } = elidables(view);
  return Math.max(1, estimated - savedBy(old) - savedBy(recent));
}

function firstText(content: readonly ContentBlock[]): string {
  const block = content.find((b) => b.type === 'text');
  return block?.type === 'text' ? block.text : '';
}
