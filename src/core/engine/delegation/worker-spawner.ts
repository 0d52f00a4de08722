// Implements `engine.workers` for lower folders: spawns a worker for a tool call, and closes delegations that were left open (04 §5, §13).
import { listReferredFiles } from '#core/policy/delegation/delegate-tool.ts';
import type { DelegationTerms } from '#core/policy/delegation/delegation-bill.ts';
import { nameModel, signShape } from '#core/policy/learning/forecast.ts';
import { chooseWorkerModel, findModelTier } from '#core/policy/routing/worker-model.ts';
import { narrowWorkerTools } from '#core/policy/workers/worker-tools.ts';
import type { WorkerSpawner } from '#core/ports/tool-port.ts';
import type { DelegationRecord } from '#protocol/delegate.ts';
import type { Issue } from '#protocol/errors.ts';
import { type ToolUseBlock, textBlock } from '#protocol/message.ts';
import { fromPusd } from '#protocol/money.ts';
import { ok } from '#protocol/result.ts';
import { canonicalJson, sha256Hex } from '#protocol/text/canonical-json.ts';
import { ToolError, type ToolOutput } from '#protocol/tool.ts';
import type { BillRow } from '#protocol/what-if/cost-ahead.ts';
import { loadKnownToolset } from '../definitions/find-workers.ts';
import { rereadAttachments } from '../definitions/session-files.ts';
import { cacheLifetime, maxOutputTokens } from '../model-call/model-request.ts';
import { computeCeiling } from '../money/call-price.ts';
import { readVolatilePrompt, selectOfferedTools } from '../prompt/model-input.ts';
import { readPolicies } from '../routing/route-environment.ts';
import { routeTurn } from '../routing/route-turn.ts';
import { readHistory } from '../session/read-history.ts';
import type { Entry, Workers } from '../state/delegation-runs.ts';
import type { DelegationEngine } from '../state/engine.ts';
import { forkMemory } from '../state/memory.ts';
import type { TurnPlan, TurnRun } from '../state/turn-run.ts';
import { RESTART_TEXT } from '../tool-call/tool-results.ts';
import { newUserMessage } from '../turn/incoming-message.ts';
import { describeStarted, resumeBackground, startBackground } from './background-workers.ts';
import { resolveWorkerTools } from './choose-isolation.ts';
import { closeOpenDelegations } from './close-delegation.ts';
import { hasSteered, isWorkerRunning, reportSteered, steerWorker } from './continue-worker.ts';
import { createWorkerControl } from './control-workers.ts';
import { newDelegation, newWorkerSession } from './open-delegation.ts';
import { resumeOutsideDelegations } from './outside-delegation.ts';
import { type NamedRequest, resolveNamedRequest } from './resolve-named-request.ts';
import { type ResolvedRequest, resolveRequest } from './resolve-request.ts';
import { describeResult, describeTierReason, resumeWorker, spawnWorker } from './run-worker.ts';
import { getFirstText } from './worker-turns.ts';

type Input = Readonly<Record<string, unknown>>;

/** @param engine returns the engine that runs these workers; the two are created together */
export function createWorkerPort(engine: () => DelegationEngine): Workers {
  return {
    spawner: (run, call, entry) => createSpawner(engine(), run, call, entry),
    closeUnder: (turnId, reason, only) => closeOpenDelegations(engine(), turnId, { reason, only: only ?? null }),
    resumeBackground: (run) => resumeBackground(engine(), run),
    control: (run, call) => createWorkerControl(engine(), run, call),
    describeResult: (delegation) => describeResult(engine(), delegation),
    price: (run, call, entry) => priceDelegation(engine(), run, call, entry),
    checkTerms: (run, rows, terms) => checkTerms(engine(), run, rows, terms),
    resumeOutside: (root, only) => resumeOutsideDelegations(engine(), root, only),
  };
}

/** The spawner of one call; null where the session is too deep to delegate (04 §11). */
function createSpawner(engine: DelegationEngine, run: TurnRun, call: ToolUseBlock, entry: Entry): WorkerSpawner | null {
  if (entry !== 'delegate') return createNamedSpawner(engine, run, call, entry);
  if (run.session.delegation_depth >= engine.config.delegation.delegate_depth) return null;
  return {
    async check(input) {
      const resolved = await resolveRequest(engine, run, input);
      if (resolved.ok) return [];
      return resolved.error;
    },
    shares: async () => [],
    async spawn(input) {
      const resolved = await resolveRequest(engine, run, input);
      const blocks = resolved.ok ? resolved.value.blocks : [];
      const known = run.resumed ? await findKnownWorker(engine, run, call, async () => ok(blocks)) : null;
      if (known) return known;
      refuseOtherInput(run, call, input);
      // The workspace may have changed since the check, e.g. while an approval was open for minutes.
      if (!resolved.ok)
        throw new ToolError('validation_error', resolved.error.map((i) => `${i.path}: ${i.message}`).join('\n'));
      const request = applyTerms(resolved.value, run.terms.get(call.id));
      return (await steerRunning(engine, run, call, request)) ?? startWorker(engine, run, call, request);
    },
  };
}

/** Resolved once per input: the request that was checked, and perhaps approved, is the request that runs. */
function createNamedSpawner(engine: DelegationEngine, run: TurnRun, call: ToolUseBlock, entry: Entry): WorkerSpawner {
  const resolved = new Map<string, NamedRequest>();
  async function resolveOnce(input: Input): Promise<NamedRequest> {
    const key = canonicalJson(input);
    const request =
      resolved.get(key) ??
      (await resolveNamedRequest(
        engine,
        run,
        { entry, name: entry === 'worker_call' ? String(input.worker) : call.name },
        input,
      ));
    resolved.set(key, request);
    return request;
  }
  return {
    async check(input) {
      await resolveOnce(input);
      return [];
    },
    shares: async (input) => (await resolveOnce(input)).shared,
    async spawn(input) {
      const reread = ({ request }: DelegationRecord) => rereadAttachments(engine, run.session, request.attachments);
      const known = run.resumed ? await findKnownWorker(engine, run, call, reread) : null;
      if (known) return known;
      refuseOtherInput(run, call, input);
      // The approved bytes were lost with the process.
      if (run.called.has(call.id) && Array.isArray(input.attachments) && input.attachments.length > 0)
        throw new ToolError('cancelled', RESTART_TEXT);
      const request = applyTerms(await resolveOnce(input), run.terms.get(call.id));
      return (await steerRunning(engine, run, call, request)) ?? startWorker(engine, run, call, request);
    },
  };
}

/** A worker that still runs gets the task as a message, once; null = it does not run. */
async function steerRunning(
  engine: DelegationEngine,
  run: TurnRun,
  { id }: ToolUseBlock,
  { earlier, request }: ResolvedRequest,
): Promise<ToolOutput | null> {
  if (earlier === null) return null;
  if (run.resumed && (await hasSteered(engine, id, earlier))) return reportSteered(earlier);
  if (!isWorkerRunning(earlier)) return null;
  return steerWorker(engine, id, earlier, request);
}

function startWorker(
  engine: DelegationEngine,
  run: TurnRun,
  { id }: ToolUseBlock,
  resolved: ResolvedRequest,
): Promise<ToolOutput> {
  if (resolved.request.background === true) return startBackground(engine, run, id, resolved);
  return spawnWorker(engine, run, id, resolved);
}

/** The result of a call that had opened its worker before a restart. A background worker has been resumed with its turn. */
async function findKnownWorker(
  engine: DelegationEngine,
  run: TurnRun,
  { id }: ToolUseBlock,
  readBlocks: Parameters<typeof resumeWorker>[3],
): Promise<ToolOutput | null> {
  const known = await engine.store.delegations.get(id);
  if (known?.request.background === true && known.worker_session_id !== null)
    return describeStarted(known.worker_session_id);
  return resumeWorker(engine, run, id, readBlocks);
}

/** An input that was edited before the restart is lost; the rejected original must not be delegated in its place. */
function refuseOtherInput(run: Pick<TurnPlan, 'called'>, call: ToolUseBlock, input: Input): void {
  const called = run.called.get(call.id);
  if (called && called.input_hash !== sha256Hex(canonicalJson(input))) throw new ToolError('cancelled', RESTART_TEXT);
}

// What a delegation will cost: resolved, routed and priced as its worker's first turn would be, and not stored (21 §1).

/** Null for a call that opens no worker: its own checks refuse it, or it is a message to a running one. */
export async function priceDelegation(
  engine: DelegationEngine,
  run: TurnRun,
  call: ToolUseBlock,
  entry: Entry,
): Promise<BillRow | null> {
  const resolved = await resolveCall(engine, run, call, entry);
  if (resolved === null || (resolved.earlier !== null && isWorkerRunning(resolved.earlier))) return null;
  return priceRequest({ ...engine, routes: forkMemory(engine.routes) }, run, call, resolved);
}

async function resolveCall(
  engine: DelegationEngine,
  run: TurnRun,
  call: ToolUseBlock,
  entry: Entry,
): Promise<ResolvedRequest | null> {
  if (run.toolset.validate(call.name, call.input).length > 0) return null;
  try {
    if (entry !== 'delegate') {
      const name = entry === 'worker_call' ? String(call.input.worker) : call.name;
      return await resolveNamedRequest(engine, run, { entry, name }, call.input);
    }
    if (run.session.delegation_depth >= engine.config.delegation.delegate_depth) return null;
    const resolved = await resolveRequest(engine, run, call.input);
    return resolved.ok ? resolved.value : null;
  } catch (error) {
    if (error instanceof ToolError) return null;
    throw error;
  }
}

async function priceRequest(
  engine: DelegationEngine,
  run: TurnRun,
  call: ToolUseBlock,
  { request, blocks, earlier }: ResolvedRequest,
): Promise<BillRow | null> {
  const { tier, effort, task, output_schema } = request;
  const tools =
    earlier === null
      ? await resolveWorkerTools(engine, run, request)
      : narrowWorkerTools(earlier.delegation.effective_tools, request.allowed_tools);
  const { policies, version } = await readPolicies(engine, run.session.workspace_path);
  const wanted = { model: request.worker?.definition.model ?? null, tier, effort };
  const found = chooseWorkerModel(wanted, policies, engine.registry);
  if (!found.ok) return null;
  const delegation = newDelegation(engine, run, call.id, { request, earlier, tools, model: found.value });
  const session = await newWorkerSession(engine, run, delegation, { version, earlier: earlier?.session ?? null });
  const now = engine.clock.now();
  const turn_id = engine.ids.turn();
  const content = [textBlock(getFirstText(request, session)), ...blocks];
  const before = await readHistory(engine, session);
  const messages = [...before, newUserMessage(engine, session, { turn_id, content, now })];
  const toolset = await loadKnownToolset(engine, session);
  const granted = delegation.effective_tools;
  const routed = await routeTurn(engine, {
    session,
    turn_id,
    history: messages,
    earlier: before,
    override: null,
    worker: {
      task,
      files: listReferredFiles(request.context),
      tier_model: found.value,
      tier_reason: describeTierReason(request),
      tier: findModelTier({ model: wanted.model, tier }),
      effort,
      output_schema,
    },
    caps: run.caps,
    toolset,
    tool_names: granted,
    now,
  });
  const { decision, fingerprint, refusal } = routed;
  const model = engine.registry.get(decision.chosen_model);
  if (refusal !== null || model === null || model === undefined) return null;
  const shape = fingerprint && {
    workspace_path: session.workspace_path,
    is_worker: true,
    shape_sig: signShape(fingerprint),
    model: nameModel(model.id, decision.chosen_effort),
  };
  const history = shape && (await engine.forecasts?.read(shape));
  const row = {
    tool_use_id: call.id,
    worker: request.worker?.name ?? null,
    tier,
    model: model.id,
    effort: decision.chosen_effort,
  };
  if (history) return { ...row, p50_usd: history.p50_usd, p90_usd: history.p90_usd, ceiling_usd: null };
  const { price } = await computeCeiling(engine, session.id, model, {
    system_prompt: session.system_prompt,
    system_prompt_volatile: await readVolatilePrompt(engine, session),
    messages,
    tools: selectOfferedTools(engine, session, { toolset, tools: routed.tools, model, granted }),
    max_output_tokens: maxOutputTokens(engine, model),
    cache_ttl: cacheLifetime(engine, { session, history: before }),
    output_schema,
  });
  return { ...row, p50_usd: null, p90_usd: null, ceiling_usd: fromPusd(price) };
}

/** The request on the model that an approval requires: another tier takes the place of a model that a definition names. */
export function applyTerms<Request extends ResolvedRequest>(
  resolved: Request,
  terms: DelegationTerms | undefined,
): Request {
  if (terms === undefined) return resolved;
  const { request } = resolved;
  const tier = terms.tier ?? request.tier;
  const effort = terms.effort ?? request.effort;
  const { worker } = request;
  if (worker === null) return { ...resolved, request: { ...request, tier, effort } };
  const model = terms.tier === null ? worker.definition.model : null;
  const changed = { ...worker, definition: { ...worker.definition, model, tier, effort } };
  return { ...resolved, request: { ...request, tier, effort, worker: changed } };
}

/** One issue for the first delegation whose model cannot be had so. */
export async function checkTerms(
  engine: DelegationEngine,
  run: TurnRun,
  rows: readonly BillRow[],
  { tier, effort }: DelegationTerms,
): Promise<readonly Issue[]> {
  const { policies } = await readPolicies(engine, run.session.workspace_path);
  for (const row of rows) {
    const wanted = { model: tier === null ? row.model : null, tier, effort };
    const found = chooseWorkerModel(wanted, policies, engine.registry);
    if (!found.ok) return [{ path: 'effort', message: found.error }];
    if (found.value === null) return [{ path: 'tier', message: `no model serves the tier "${tier}"` }];
  }
  return [];
}
