// Routing for operators: the policy in force, and a check of policy files (05 §3.5).
import type { TimeWindow } from '#protocol/analytics.ts';
import type { Pattern } from '#protocol/api/model-bodies.ts';
import { isoTime } from '#protocol/clock.ts';
import type { PatternConfig, PatternOutcome, Quality, StoredPattern } from '#protocol/learned-pattern.ts';
import { fromPusd, type Usd } from '#protocol/money.ts';
import type { PolicyEvaluation, Refusal } from '#protocol/route.ts';
import type { Effort, Tier } from '#protocol/scalars.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { NO_TOKENS } from '#protocol/usage.ts';
import type { CostHistory } from '#protocol/what-if/cost-ahead.ts';
import { viewHistory } from '../policy/context/shown-history.ts';
import { nameModel, signShape } from '../policy/learning/forecast.ts';
import { listEfforts } from '../policy/registry/model-efforts.ts';
import {
  type PolicyKind,
  parsePolicy,
  policyKind,
  policyWarnings,
  readPolicy,
  tierModel,
} from '../policy/routing/policy-file.ts';
import { addLocations, layerErrors } from '../policy/routing/policy-layers.ts';
import type { Analytics, QualityQuery } from '../ports/report-reader.ts';
import { loadKnownToolset } from './definitions/find-workers.ts';
import { cacheLifetime, maxOutputTokens } from './model-call/model-request.ts';
import { computeLeft, listLimits, readReserved, requireBudget } from './money/budget-limits.ts';
import { computeCeiling, resolvePricingId } from './money/call-price.ts';
import { readVolatilePrompt, selectOfferedTools } from './prompt/model-input.ts';
import { readPolicies, readRoutingFiles } from './routing/route-environment.ts';
import { type RoutedTurn, routeTurn } from './routing/route-turn.ts';
import { readCheckpoints, readHistory } from './session/read-history.ts';
import { buildSession, requireOpenTopLevelSession, resolveWorkspace } from './session/session-records.ts';
import type { CostHistories, Engine, ModelCatalog, WorkspaceAccess } from './state/engine.ts';
import { type BudgetScope, forkMemory } from './state/memory.ts';
import { type IntakeBlock, newUserMessage, prepareMessage } from './turn/incoming-message.ts';

interface PolicyView {
  /** Null without a file. */
  readonly version: string | null;
  /** False while a file on disk is rejected. */
  readonly valid: boolean;
  /** Time of the newest parse in force; null without a file. */
  readonly loaded_at: string | null;
  readonly global_default: string | null;
  readonly workspace_default: string | null;
  /** The model of each tier, from a file or the registry. */
  readonly tiers: Readonly<Record<Tier, string | null>>;
  readonly rules: readonly { readonly name: string; readonly when: unknown; readonly use: string }[];
  readonly pattern: PatternConfig;
  /** Only when invalid. */
  readonly errors?: readonly string[];
  readonly using_last_known_good?: boolean;
}

/**
 * The policy for a turn that starts now. Throws `not_found` (workspace) or `workspace_not_allowed`.
 * @param workspace null = the policy for every workspace
 */
export async function describePolicy(engine: Engine, workspace: string | null): Promise<PolicyView> {
  const root = workspace === null ? null : await resolveWorkspace(engine, workspace);
  const { policies, version, layers } = await readPolicies(engine, root);
  const files = [layers.workspace, layers.global];
  const loaded = Math.max(...files.map(({ good }) => good?.loaded_at ?? 0));
  const errors = layerErrors(layers);
  const model = (tier: Tier) => tierModel(policies, engine.registry, tier);
  return {
    version,
    valid: errors.length === 0,
    loaded_at: loaded === 0 ? null : isoTime(loaded),
    global_default: policies.global_default,
    workspace_default: policies.workspace_default,
    tiers: { fast: model('fast'), balanced: model('balanced'), deep: model('deep') },
    rules: policies.rules.map(({ name, when, use }) => ({ name, when, use })),
    pattern: policies.pattern ?? engine.config.pattern,
    ...(errors.length !== 0 && {
      errors,
      using_last_known_good: files.some(({ good, fault }) => fault !== null && good !== null),
    }),
  };
}

interface PolicyCheck {
  readonly valid: boolean;
  readonly errors: readonly string[];
  /** Only for valid files. */
  readonly warnings: readonly string[];
}

/**
 * Checks a text, or without a text the files on disk; loads nothing. Throws `not_found` (workspace) or
 * `workspace_not_allowed`.
 * @param workspace with a text: the workspace whose file it would be; null = by the text's keys, or the global file alone
 */
export async function checkPolicy(engine: Engine, text: string | null, workspace: string | null): Promise<PolicyCheck> {
  const root = workspace === null ? null : await resolveWorkspace(engine, workspace);
  const errors: string[] = [];
  const warnings: string[] = [];
  for (const [given, content] of await readContents(engine, text, root)) {
    const yaml = readPolicy(content);
    const kind = given ?? policyKind(yaml);
    const parsed = parsePolicy(yaml, kind, engine.registry);
    // With a text, no other file counts.
    const addFileNames = (lines: readonly string[]) => {
      if (text !== null) return lines;
      return addLocations(kind, lines);
    };
    if (parsed.ok) warnings.push(...addFileNames(policyWarnings(parsed.value, kind, engine.registry)));
    else errors.push(...addFileNames(parsed.error));
  }
  return { valid: errors.length === 0, errors, warnings };
}

async function readContents(
  { workspaces }: Pick<WorkspaceAccess, 'workspaces'>,
  text: string | null,
  root: string | null,
): Promise<readonly (readonly [PolicyKind | null, string])[]> {
  if (text !== null && root === null) return [[null, text]];
  if (text !== null) return [['workspace', text]];
  const files = await readRoutingFiles(workspaces, root);
  return (['workspace', 'global'] as const).flatMap((kind) => {
    const bytes = files[kind]?.bytes ?? null;
    if (bytes === null) return [];
    return [[kind, new TextDecoder().decode(bytes)] as const];
  });
}

// The routing decision for a message, computed without a turn (03 §6.4, 05 §3.5).

interface RouteQuestion {
  readonly text: string;
  readonly workspace_path: string;
  /** Id or alias, as a session's sticky model; null = none. */
  readonly model: string | null;
}

interface RouteAnswer {
  /** '' when refused. */
  readonly chosen_model: string;
  readonly chosen_effort: Effort | null;
  readonly winner_index: number;
  readonly refused: Refusal | null;
  readonly chain: readonly PolicyEvaluation[];
  readonly estimated_input_tokens: number;
  readonly routing_policy_version: string | null;
}

/**
 * Routes the message as the first one of a new session; runs, stores and remembers nothing. A refusal is a result.
 * Throws `not_found` (workspace), `workspace_not_allowed`, `model_not_configured`, `validation_error`,
 * `unknown_alias`, `override_missing_body`.
 */
export async function explainRoute(engine: Engine, question: RouteQuestion): Promise<RouteAnswer> {
  const apart: Engine = { ...engine, routes: forkMemory(engine.routes) };
  const session = await buildSession(apart, {
    workspace_path: question.workspace_path,
    initial_active_model: question.model,
    max_cost_usd: null,
    on_reached: null,
    approval_mode: null,
  });
  const message = await prepareMessage(apart, session, { content: question.text, per_message_override: null });
  const turnId = apart.ids.turn();
  const now = apart.clock.now();
  const { decision, context, environment } = await routeTurn(apart, {
    session,
    turn_id: turnId,
    history: [newUserMessage(apart, session, { turn_id: turnId, content: message.content, now })],
    earlier: [],
    override: message.override,
    worker: null,
    caps: [],
    toolset: await loadKnownToolset(apart, session),
    tool_names: null,
    now,
  });
  return {
    chosen_model: decision.chosen_model,
    chosen_effort: decision.chosen_effort,
    winner_index: decision.winner_index,
    refused: decision.refused,
    chain: decision.chain,
    estimated_input_tokens: context.estimated_input_tokens,
    routing_policy_version: environment.version,
  };
}

// Estimates the cost of a turn: routed and priced, but not run and not stored (14 §4).

interface Submission {
  readonly content: string | readonly IntakeBlock[];
  /** Alias or id. */
  readonly per_message_override: string | null;
}

interface CoveringLimit {
  readonly scope: BudgetScope;
  readonly limit_usd: Usd;
  readonly spent_usd: Usd;
  readonly reserved_usd: Usd;
  readonly remaining_usd: Usd;
}

interface CostEstimate {
  readonly chosen_model: string;
  readonly chosen_effort: Effort | null;
  readonly chain: readonly PolicyEvaluation[];
  readonly estimated_input_tokens: number;
  /** Cost of the estimated input alone. */
  readonly cost_floor_usd: Usd;
  /** Reservation of the first call. Tool cycles are not included. */
  readonly cost_ceiling_usd: Usd;
  readonly fits_budget: boolean;
  /** What earlier turns like it have cost with their workers; null without enough of them (21 §1). */
  readonly history: CostHistory | null;
  readonly limits: readonly CoveringLimit[];
}

/**
 * Throws as submitting the same message would, except for the turn lock: `not_found`, `session_is_worker`,
 * `session_already_ended`, `budget_exceeded`, `validation_error`, `unknown_alias`, `override_missing_body`,
 * `routing_failed`, `explicit_model_rejected`.
 */
export async function estimateTurn(engine: Engine, sessionId: string, submission: Submission): Promise<CostEstimate> {
  const apart: Engine = { ...engine, routes: forkMemory(engine.routes) };
  const session = await requireOpenTopLevelSession(apart, sessionId);
  await requireBudget(apart, session);
  const message = await prepareMessage(apart, session, submission);
  const turnId = apart.ids.turn();
  const now = apart.clock.now();
  const earlier = await readHistory(apart, session);
  const history = [
    ...viewHistory(earlier, await readCheckpoints(apart, session)),
    newUserMessage(apart, session, { turn_id: turnId, content: message.content, now }),
  ];
  const toolset = await loadKnownToolset(apart, session);
  const { decision, refusal, context, tools, fingerprint } = await routeTurn(apart, {
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

  const { price: most } = await computeCeiling(apart, session.id, model, {
    system_prompt: session.system_prompt,
    system_prompt_volatile: await readVolatilePrompt(apart, session),
    messages: history,
    tools: selectOfferedTools(apart, session, { toolset, tools, model, granted: null }),
    max_output_tokens: maxOutputTokens(apart, model),
    cache_ttl: cacheLifetime(apart, { session, history: earlier }),
    output_schema: session.worker_definition?.output_schema ?? null,
  });
  const least = apart.prices.cost(resolvePricingId(apart, model.id), {
    ...NO_TOKENS,
    input_tokens: context.estimated_input_tokens,
  }).cost_pusd;
  const limits = await Promise.all(
    (await listLimits(apart, session, [])).map(async (limit) => {
      const spent = await limit.readSpent();
      const reserved = readReserved(apart, limit.pool);
      const left = computeLeft({ limit: limit.limit, spent, reserved });
      return { scope: limit.scope, limit: limit.limit, spent, reserved, left };
    }),
  );
  return {
    chosen_model: model.id,
    chosen_effort: decision.chosen_effort,
    chain: decision.chain,
    estimated_input_tokens: context.estimated_input_tokens,
    cost_floor_usd: fromPusd(least),
    cost_ceiling_usd: fromPusd(most),
    fits_budget: limits.every((l) => l.left >= most),
    history: await findCostHistory(apart, session, { fingerprint, decision }),
    limits: limits.map((l) => ({
      scope: l.scope,
      limit_usd: fromPusd(l.limit),
      spent_usd: fromPusd(l.spent),
      reserved_usd: fromPusd(l.reserved),
      remaining_usd: fromPusd(l.left),
    })),
  };
}

/** What earlier turns of this shape have cost on the chosen model. */
async function findCostHistory(
  { forecasts }: CostHistories,
  { workspace_path, is_worker }: SessionRecord,
  { fingerprint, decision }: Pick<RoutedTurn, 'fingerprint' | 'decision'>,
): Promise<CostHistory | null> {
  if (fingerprint === null || forecasts === null) return null;
  const model = nameModel(decision.chosen_model, decision.chosen_effort);
  return forecasts.read({ workspace_path, is_worker, shape_sig: signShape(fingerprint), model });
}

// The learned patterns of a workspace (12 §12.7).

/**
 * Newest shape first, its outcomes by model. Throws `not_found` (workspace) or `workspace_not_allowed`.
 * @param page `before` a fingerprint's id
 */
export async function listPatterns(
  engine: Engine,
  workspace: string,
  page: Parameters<Engine['store']['patterns']['newest']>[1],
): Promise<{ readonly patterns: Pattern[]; readonly next: string | null }> {
  const root = await resolveWorkspace(engine, workspace);
  const { rows, next } = await engine.store.patterns.newest(root, page);
  return { patterns: rows.map((row) => toPattern(engine, row)), next };
}

/**
 * Task shapes that a cheaper model serves as well (07 §7.3). Throws `not_found` (workspace) or `workspace_not_allowed`.
 * @param of `window` has the turns whose saving is reported, as Unix milliseconds
 */
export async function compareQuality(
  engine: Engine,
  analytics: Pick<Analytics, 'quality'>,
  of: { readonly workspace: string; readonly window: TimeWindow; readonly reader: QualityQuery['reader'] },
): Promise<Quality> {
  const { window, reader } = of;
  const workspace_path = await resolveWorkspace(engine, of.workspace);
  const tiers = new Map(
    engine.registry.models.flatMap((model) => [
      [model.id, model.tier] as const,
      ...listEfforts(model, null).map((effort) => [`${model.id}:${effort}`, model.tier] as const),
    ]),
  );
  return analytics.quality({ workspace_path, since: window.from, tiers, reader });
}

/** A reference that the registry does not have any more is shown as it is. */
function describeOutcomeModel(
  registry: ModelCatalog['registry'],
  reference: string,
): Pick<Pattern['outcomes'][number], 'model' | 'effort' | 'tier'> {
  const known = registry.findReference(reference);
  if (known === null) return { model: reference, effort: null, tier: null };
  return { model: known.id, effort: known.effort, tier: registry.get(known.id)?.tier ?? null };
}

function averageCost({ sum_cost_pusd, cost_count }: PatternOutcome): string | null {
  if (cost_count === 0) return null;
  return fromPusd(sum_cost_pusd / BigInt(cost_count));
}

function toPattern(
  { registry }: Pick<ModelCatalog, 'registry'>,
  { fingerprint_id, fingerprint, outcomes }: StoredPattern,
): Pattern {
  const { intent_tags, file_extensions, tool_names, estimated_input_tokens_bucket, has_images } = fingerprint;
  return {
    fingerprint_id,
    intent_tags,
    file_extensions,
    tool_names,
    estimated_input_tokens_bucket,
    has_images,
    outcomes: outcomes.map((outcome) => ({
      ...describeOutcomeModel(registry, outcome.model),
      is_worker: outcome.is_worker,
      sample_size: outcome.sample_size,
      success_score_mean: outcome.success_score_count === 0 ? null : outcome.success_score_mean,
      success_score_count: outcome.success_score_count,
      verified_score_mean: outcome.verified_count === 0 ? null : outcome.verified_mean,
      verified_score_count: outcome.verified_count,
      avg_cost_usd: averageCost(outcome),
      avg_latency_ms: outcome.sum_latency_ms / outcome.sample_size,
      last_updated_at: isoTime(outcome.last_updated_at),
    })),
  };
}
