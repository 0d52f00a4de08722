// Routes a turn: gathers its context, then decides. Admission and `POST /routing/explain` both call this (03 §3).

import { hasImage, measureHistory } from '#core/policy/context/session-history.ts';
import { estimateRequest } from '#core/policy/context/token-estimate.ts';
import { findElidables, sumSaved } from '#core/policy/context/window.ts';
import { addPaths, buildFingerprint, readTraces } from '#core/policy/learning/fingerprint.ts';
import { type RouteEnv, validationFailure } from '#core/policy/routing/candidate.ts';
import { decideRoute, routeError } from '#core/policy/routing/chain.ts';
import { noteFacts } from '#core/policy/routing/route-facts.ts';
import { collectFacts } from '#core/policy/routing/rules.ts';
import type { RecommendationQuery, Recommender } from '#core/ports/learned-turns.ts';
import type { ToolSet } from '#core/ports/tool-port.ts';
import { type Awaitable, continueWith, gatherAll } from '#protocol/async/awaitable.ts';
import type { AppError } from '#protocol/errors.ts';
import type { TurnId } from '#protocol/ids.ts';
import type { Fingerprint } from '#protocol/learned-pattern.ts';
import { type ContentBlock, joinText, type StoredMessage } from '#protocol/message.ts';
import type { RouteDecision, RouteFacts, TurnContext } from '#protocol/route.ts';
import type { SessionRecord } from '#protocol/session.ts';
import type { ToolDefinition } from '#protocol/tool.ts';
import { listLimits } from '../money/budget-limits.ts';
import { readVolatilePrompt, selectBaseTools } from '../prompt/model-input.ts';
import type { ModelCatalog, RoutingEngine, RoutingState, Runtime } from '../state/engine.ts';
import type { DelegationCap } from '../state/memory.ts';
import type { WorkerRun } from '../state/turn-run.ts';
import { type RouteEnvironment, readRouteEnvironment } from './route-environment.ts';

// The input of slot 4: the turn's shape, and the model that earlier turns of this shape recommend (03 §8, 12 §12.4).

/** The facts that a turn's shape is made of. */
interface TurnToShape {
  readonly session: SessionRecord;
  /** The session's stored messages before this turn. */
  readonly earlier: readonly StoredMessage[];
  /** The task of a worker, and its referenced files. */
  readonly worker: { readonly task: string; readonly files: readonly string[] } | null;
  readonly toolset: ToolSet;
}

/** The context without the recommendation. */
type Unadvised = Omit<TurnContext, 'recommendation' | 'recommendation_absent'>;
type Advice = Pick<TurnContext, 'recommendation' | 'recommendation_absent'>;

interface Advised {
  /** Stored with the turn; null where nothing is learned from it. */
  readonly fingerprint: Fingerprint | null;
  readonly advice: Advice;
}

const ABSENT: Advised = {
  fingerprint: null,
  advice: { recommendation: null, recommendation_absent: 'pattern store not configured' },
};

/** Never throws: after a failure the turn has no recommendation, or no shape. */
function adviseRoute(
  engine: Runtime & RoutingState,
  turn: TurnToShape,
  message: StoredMessage,
  { context, env }: { readonly context: Unadvised; readonly env: RouteEnv },
): Awaitable<Advised> {
  const { recommender } = engine;
  const config = env.policies.pattern ?? engine.config.pattern;
  if (recommender === null || config.mode === 'off') return ABSENT;
  let fingerprint: Fingerprint | null = null;
  try {
    fingerprint = describeShape(turn, message, context);
    if (isChosen(context, env)) return { fingerprint, advice: ABSENT.advice };
  } catch (err) {
    return missAdvice(engine, context, fingerprint, err);
  }
  const { workspace_path, is_worker } = context;
  return takeAdvice(engine, context, recommender, { workspace_path, fingerprint, config, is_worker });
}

async function takeAdvice(
  engine: Pick<Runtime, 'log'>,
  context: Unadvised,
  recommender: Recommender,
  query: RecommendationQuery,
): Promise<Advised> {
  const { fingerprint } = query;
  try {
    const recommendation = await recommender.recommend(query);
    return { fingerprint, advice: { recommendation, recommendation_absent: null } };
  } catch (err) {
    return missAdvice(engine, context, fingerprint, err);
  }
}

function missAdvice(
  { log }: Pick<Runtime, 'log'>,
  { session_id }: Unadvised,
  fingerprint: Fingerprint | null,
  err: unknown,
): Advised {
  log.warn({ err, session_id }, 'no recommendation: the pattern store is unavailable');
  return { fingerprint, advice: { recommendation: null, recommendation_absent: 'pattern store unavailable' } };
}

/** An explicit choice is valid, so no recommendation is needed. */
function isChosen(context: Unadvised, env: RouteEnv): boolean {
  return [context.per_message_override, context.session_active_model].some(
    (model) => model !== null && validationFailure(model, context, env) === null,
  );
}

function describeShape(turn: TurnToShape, message: StoredMessage, context: Unadvised): Fingerprint {
  const { session, toolset, earlier, worker } = turn;
  const definition = (name: string) => toolset.definition(name);
  const traces = readTraces(earlier, session.workspace_path, definition);
  return buildFingerprint(
    {
      text: worker?.task ?? joinText(message.content),
      has_images: context.message_has_images,
      estimated_input_tokens: context.estimated_input_tokens,
      workspace_hash: session.workspace_hash,
      traces: addPaths(traces, worker?.files ?? [], session.workspace_path),
    },
    definition,
  );
}

interface TurnToRoute extends TurnToShape {
  readonly turn_id: TurnId;
  /** All messages to send, with the view's checkpoints applied, the new user message last. */
  readonly history: readonly StoredMessage[];
  /** Canonical id. */
  readonly override: string | null;
  readonly worker: Pick<
    WorkerRun,
    'task' | 'files' | 'tier_model' | 'tier_reason' | 'tier' | 'effort' | 'output_schema'
  > | null;
  /** Money caps of the delegations above it. */
  readonly caps: readonly DelegationCap[];
  /** Id of the token that submits the turn. */
  readonly submitted_by?: string | null;
  /** For a worker: the names in its delegation. */
  readonly tool_names: readonly string[] | null;
  /** Unix milliseconds. */
  readonly now: number;
}

export interface RoutedTurn {
  readonly decision: RouteDecision;
  readonly facts: RouteFacts;
  /** The error of a refused decision; null when a model was chosen. */
  readonly refusal: AppError | null;
  readonly context: TurnContext;
  readonly environment: RouteEnvironment;
  /** The turn's shape; null where nothing is learned from it. */
  readonly fingerprint: Fingerprint | null;
  /** Without `delegate`, which depends on the model. */
  readonly tools: readonly ToolDefinition[];
  /** The volatile system text that the decision read. */
  readonly volatile: string | null;
  /** Milliseconds that the decision took. */
  readonly elapsed_ms: number;
}

/** Gathers the chain's context and runs the chain. Stores nothing. */
export function routeTurn(engine: RoutingEngine, turn: TurnToRoute): Awaitable<RoutedTurn> {
  const { session } = turn;
  const spender = { ...session, submitted_by: turn.submitted_by ?? null };
  const read = gatherAll([
    readVolatilePrompt(engine, session),
    readRouteEnvironment(engine, session, turn.now),
    session.max_cost_pusd !== null || continueWith(listLimits(engine, spender, turn.caps), ({ length }) => length > 0),
  ]);
  return continueWith(read, ([volatile, environment, isLimited]) =>
    routeWith(engine, turn, { volatile, environment, isLimited }),
  );
}

/** What a decision reads from outside of the turn. */
interface RouteInputs {
  readonly volatile: string | null;
  readonly environment: RouteEnvironment;
  /** Whether a limit covers the turn's calls. */
  readonly isLimited: boolean;
}

function routeWith(
  engine: RoutingEngine,
  turn: TurnToRoute,
  { volatile, environment, isLimited }: RouteInputs,
): Awaitable<RoutedTurn> {
  const { session, history, worker } = turn;
  const message = history.at(-1);
  if (!message) throw new Error('a turn is routed for a message');
  const tools = selectBaseTools(session, { toolset: turn.toolset, granted: turn.tool_names });
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
    smallest_input_tokens: smallestInputTokens(engine, history, estimated),
    has_images: measureHistory(history).has_images,
    message_has_images: hasImage(message),
    has_tool_definitions: tools.length > 0,
    has_system_prompt: (session.system_prompt ?? volatile) !== null,
    requires_structured_output: output_schema !== null,
    document_media_types: measureHistory(history).document_types,
    budget_limited: isLimited,
    per_message_override: turn.override,
    session_active_model: session.active_model,
    is_worker: session.is_worker,
    worker_tier_model: worker?.tier_model ?? null,
    worker_tier_reason: worker?.tier_reason ?? null,
    worker_tier: worker?.tier ?? null,
    worker_effort: worker?.effort ?? null,
    workspace_path: session.workspace_path,
    user_message_text: worker?.task ?? firstText(message.content),
    cost_today_pusd: environment.cost_today_pusd,
    requested: null,
    now: turn.now,
  };
  const { env } = environment;
  const advised = adviseRoute(engine, turn, message, { context: gathered, env });
  return continueWith(advised, ({ fingerprint, advice }) => {
    const context: TurnContext = { ...gathered, ...advice };
    const before = engine.clock.monotonic();
    const asked = collectFacts(context);
    const decision = decideRoute(context, env, { facts: asked });
    const elapsed_ms = Math.max(0, Math.round((engine.clock.monotonic() - before) * 1000) / 1000);
    const refusal = routeError(decision, context, env);
    const facts = noteFacts(context, asked, decision, env.policies.rules);
    return { decision, facts, refusal, context, environment, fingerprint, tools, volatile, elapsed_ms };
  });
}

/** Searched only where some model is too small for the whole request. */
function smallestInputTokens(
  engine: Runtime & ModelCatalog,
  view: readonly StoredMessage[],
  estimated: number,
): number {
  const fitsAll = engine.registry.models.every((m) => estimated <= m.capabilities.max_context_tokens);
  if (fitsAll || engine.config.context.compaction.mode === 'off') return estimated;
  const { old, recent } = findElidables(view);
  return Math.max(1, estimated - sumSaved(old) - sumSaved(recent));
}

function firstText(content: readonly ContentBlock[]): string {
  const block = content.find((b) => b.type === 'text');
  if (block?.type === 'text') return block.text;
  return '';
}
