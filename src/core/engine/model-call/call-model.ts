// Makes the turn's next model call (`callModel`, at the end): a request that fits its window, then the call (00 §3 steps 3-4).

import { messageSize } from '#core/policy/context/message-size.ts';
import { summaryMessage, viewHistory } from '#core/policy/context/shown-history.ts';
import {
  type EarlierTurns,
  earlierTurns,
  MAX_SUMMARY_TOKENS,
  SUMMARY_INSTRUCTIONS,
  selectTurns,
  transcript,
} from '#core/policy/context/summary-request.ts';
import { estimateRequest, estimateText } from '#core/policy/context/token-estimate.ts';
import { type Elidable, findElidables, getWindow, selectNeeded, sumSaved } from '#core/policy/context/window.ts';
import { describeAvailability, snapshot } from '#core/policy/registry/availability.ts';
import { findOwnWire, fitEffort, listEfforts, omitDefaultEffort } from '#core/policy/registry/model-efforts.ts';
import { tierModel } from '#core/policy/routing/policy-file.ts';
import { AdapterError } from '#core/ports/provider.ts';
import { isoTime } from '#protocol/clock.ts';
import type { EventDraft } from '#protocol/event.ts';
import type { Write } from '#protocol/journal-batch.ts';
import { joinText, plainMetadata, textBlock } from '#protocol/message.ts';
import { getProvider, type ModelEntry } from '#protocol/model.ts';
import type { CanonicalRequest } from '#protocol/model-call.ts';
import type { Elision, HistorySummary } from '#protocol/prompt-parts.ts';
import type { Effort } from '#protocol/scalars.ts';
import { listLimits, toSpender } from '../money/budget-limits.ts';
import { resolvePricingId } from '../money/call-price.ts';
import { readVolatilePrompt } from '../prompt/model-input.ts';
import { readPolicies } from '../routing/route-environment.ts';
import type { ModelCallEngine, ModelCatalog, Runtime, Storage } from '../state/engine.ts';
import {
  countModelCall,
  type ModelRequest,
  markOverflowAnswered,
  recordCheckpoint,
  type ServingModel,
  type TurnBase,
  type TurnPlan,
  type TurnProgress,
  type TurnRun,
  takeNextCall,
} from '../state/turn-run.ts';
import { type CallOutcome, callCompletedEvent, chargeCall } from './call-records.ts';
import { buildModelRequest, compactedEvent } from './model-request.ts';
import { makeCall, type SettleAnswer } from './send-call.ts';
import { observeOutcome, settleSuccess } from './settle-call.ts';

// Replaces the turns before the newest ones by a summary: a model call of its own, before the turn's first (10 §7).

/**
 * Returns the tokens that the turn's request then takes: `load`, unless a summary was made. A failure is a warning in the
 * log, and the turn continues without a summary.
 */
async function summarise(engine: ModelCallEngine, run: TurnRun, load: number): Promise<number> {
  // One model call must be left for the turn itself.
  const isAllowed = !run.session.is_worker && run.tally.llm_calls === 0 && engine.config.turn.max_llm_calls > 1;
  if (!isAllowed) return load;
  const turns = earlierTurns(viewHistory(run.history, run.checkpoints), run.checkpoints);
  if (turns === null || run.signal.aborted) return load;
  return replaceTurns(engine, run, turns, load);
}

/** Whether a worker is to start with a summary of the one that it continues, and has not begun yet. */
export function owesSummary(run: Pick<TurnRun, 'session' | 'worker' | 'history' | 'tally'>): boolean {
  const { session, worker, history, tally } = run;
  if (worker?.starts_with_summary !== true || tally.llm_calls > 0) return false;
  return history.length > 1 && history.at(-2)!.session_id !== session.id;
}

/** Replaces what a worker continues by a summary, before its first call. Without one it starts with the messages. */
async function startWithSummary(engine: ModelCallEngine, run: TurnRun): Promise<void> {
  if (engine.config.turn.max_llm_calls <= 1 || run.signal.aborted) return;
  const view = viewHistory(run.history, run.checkpoints);
  const turns = selectTurns(view.slice(0, -1), run.checkpoints);
  const load = buildModelRequest(engine, run, null).load;
  if (turns !== null) await replaceTurns(engine, run, turns, load);
}

/** Returns the tokens that the request takes with a summary in place of these turns, or `load` without one. */
async function replaceTurns(engine: ModelCallEngine, run: TurnRun, turns: EarlierTurns, load: number): Promise<number> {
  const without = (why: string) => {
    const { id: session_id } = run.session;
    engine.log.warn({ session_id, turn_id: run.turn.id, why }, 'old turns could not be summarised');
    return load;
  };
  if (run.resumed && (await hasTriedBefore(engine, run))) return without('it was cut off by a restart');
  const chosen = await chooseSummaryModel(engine, run);
  if (typeof chosen === 'string') return without(chosen);
  const { model } = chosen;
  const prepared = buildSummaryRequest(engine, run, chosen, turns);
  if (prepared === null) return without(`the newest of them does not fit ${model.id}`);

  let summary: HistorySummary | null = null;
  const settleAnswer: SettleAnswer = async (eng, call) => {
    const complete = call.stream.complete!;
    const charged = chargeCall(eng, call, complete.usage, complete);
    const made = buildSummary(eng, run, {
      turns,
      text: joinText(complete.final_content).trim(),
      model: model.id,
      load,
    });
    const writes: Write[] = [];
    const emit: EventDraft[] = [
      callCompletedEvent(call, charged, {
        stop_reason: complete.stop_reason as 'end_turn',
        error_class: null,
        content: complete.final_content,
        message_id: null,
      }),
    ];
    if (made !== null) {
      writes.push({ kind: 'checkpoint.insert', checkpoint: made });
      emit.push(compactedEvent(run, made, turns.messages.length));
    }
    await eng.journal.commit({ writes, emit });
    observeOutcome(eng, call.run, null);
    countModelCall(call.run, charged.usage, charged.cost);
    if (made !== null) recordCheckpoint(run, made);
    summary = made;
    return { ok: true, settled: new Map(), end: null };
  };
  const outcome = await makeCall(engine, withSummaryModel(engine, run, chosen), prepared, {
    settleAnswer,
    started: null,
  });
  if (!outcome.ok) return without(outcome.error?.message ?? 'a limit refused the call');
  const made = summary as HistorySummary | null;
  if (made === null) return without('the answer was empty, or longer than the turns that it summarises');
  return made.tokens_after;
}

/** Null when the text would not make the request smaller. */
function buildSummary(
  engine: Runtime,
  run: Pick<TurnPlan, 'session'>,
  of: { readonly turns: EarlierTurns; readonly text: string; readonly model: string; readonly load: number },
): HistorySummary | null {
  if (of.text === '') return null;
  const summary = {
    id: engine.ids.next(),
    session_id: run.session.id,
    kind: 'summary',
    through_message_id: of.turns.through,
    summary_text: of.text,
    model: of.model,
    created_at: engine.clock.now(),
  } as const;
  const saved = Math.floor((of.turns.size - messageSize(summaryMessage(summary))) / 4);
  if (saved <= 0) return null;
  return { ...summary, tokens_before: of.load, tokens_after: Math.max(0, of.load - saved) };
}

/** Whether a summary of this turn was begun before a restart: it may have been billed, so it is not tried again. */
async function hasTriedBefore(engine: Pick<Storage, 'store'>, run: Pick<TurnPlan, 'turn'>): Promise<boolean> {
  const started = await engine.store.events.listOfTurn(run.turn.id, ['llm.call_started']);
  return started.some((event) => event.payload.purpose === 'compaction');
}

interface SummaryModel {
  readonly model: ModelEntry;
  readonly effort: Effort | null;
}

/** The model of tier `fast`, or why none can be used. */
async function chooseSummaryModel(engine: ModelCallEngine, run: TurnPlan): Promise<SummaryModel | string> {
  const { registry, prices, routes, clock } = engine;
  const { policies } = await readPolicies(engine, run.session.workspace_path);
  const reference = registry.findReference(tierModel(policies, registry, 'fast') ?? '');
  const model = reference === null ? null : registry.get(reference.id);
  if (model === null || !registry.isConfigured(model.id)) return 'no model of tier fast is configured';
  if (describeAvailability(snapshot(routes.availability, clock.monotonic()), model) !== 'healthy')
    return `${model.id} is not available`;
  if (!model.capabilities.supports_system_prompt) return `${model.id} takes no system prompt`;
  const limited = (await listLimits(engine, toSpender(run), run.caps)).length > 0;
  if (limited && !prices.has(resolvePricingId(engine, model.id))) return `${model.id} has no price`;
  const wire = findOwnWire(registry.adapters, model);
  const wanted = reference?.effort ?? model.default_effort;
  return { model, effort: wanted === null ? null : fitEffort(wanted, listEfforts(model, wire)) };
}

/** The turn with the summariser as its model; counts go to the turn. */
function withSummaryModel(
  engine: Pick<ModelCatalog, 'providers'>,
  run: TurnRun,
  { model, effort }: SummaryModel,
): TurnRun {
  const adapter = engine.providers.get(model.adapter);
  if (adapter === undefined) throw new Error(`a configured model without an adapter: ${model.id}`);
  const turn = { ...run.turn, provider: getProvider(model.id), chosen_effort: effort };
  return { ...run, model, adapter, turn, cause: run.started_event_id };
}

/** Null when the turns do not fit the model. */
function buildSummaryRequest(
  engine: Runtime,
  run: TurnBase,
  { model, effort }: SummaryModel,
  turns: EarlierTurns,
): ModelRequest | null {
  const maxOutput = Math.min(MAX_SUMMARY_TOKENS, model.capabilities.max_output_tokens);
  const window = getWindow(model, maxOutput);
  const text = transcript(turns, run.checkpoints, window.budget - estimateText(SUMMARY_INSTRUCTIONS));
  if (text === null) return null;
  const { session, turn } = run;
  const request: CanonicalRequest = {
    request_id: engine.ids.request(),
    model,
    messages: [
      {
        id: engine.ids.message(),
        session_id: session.id,
        turn_id: turn.id,
        role: 'user',
        content: [textBlock(text)],
        metadata: plainMetadata(),
        created_at: isoTime(engine.clock.now()),
        provider_raw: null,
      },
    ],
    tools: [],
    system_prompt: SUMMARY_INSTRUCTIONS,
    system_prompt_volatile: null,
    max_output_tokens: maxOutput,
    stop_sequences: [],
    temperature: null,
    effort: omitDefaultEffort(model, effort),
    output_schema: null,
    cache_ttl: '5m',
    caller: {
      session_id: session.id,
      turn_id: turn.id,
      is_worker: session.is_worker,
      parent_session_id: session.parent_session_id,
      turn_index: run.turn_index,
      call_index: run.tally.llm_calls + 1,
    },
  };
  const estimated = estimateRequest(request);
  return { purpose: 'compaction', request, estimated, load: estimated, window };
}

// Makes room in a model's window: elides old results, then replaces old turns by a summary. Each step is stored (10 §7).

/** Whether room has to be made before this call. In mode `off` never: the provider rejects a request that is too large. */
export function isCrowded(engine: Pick<Runtime, 'config'>, { load, window }: ModelRequest): boolean {
  return engine.config.context.compaction.mode !== 'off' && load > window.start;
}

/** The request that fits its window, after the steps that had to be stored; null when none fits, or the turn was stopped. */
async function fitToWindow(
  engine: ModelCallEngine,
  run: TurnRun,
  prepared: ModelRequest,
): Promise<ModelRequest | null> {
  if (!isCrowded(engine, prepared)) return prepared;
  const made = await makeRoom(engine, run, prepared);
  if (run.signal.aborted || made.load > prepared.window.budget) return null;
  return made;
}

/**
 * Makes the request smaller because its provider rejected it as too large, whatever the estimate was; null where
 * nothing can be removed.
 */
async function shrinkAfterOverflow(
  engine: ModelCallEngine,
  run: TurnRun,
  prepared: ModelRequest,
): Promise<ModelRequest | null> {
  if (engine.config.context.compaction.mode === 'off') return null;
  const before = run.checkpoints;
  // The provider's rejection overrides the estimate: the request takes at least one token more than there is room for.
  const load = Math.max(prepared.load, Math.ceil(prepared.window.budget) + 1);
  const made = await makeRoom(engine, run, { ...prepared, load });
  if (run.checkpoints === before) return null;
  return made;
}

async function makeRoom(engine: ModelCallEngine, run: TurnRun, prepared: ModelRequest): Promise<ModelRequest> {
  const { budget, stop } = prepared.window;
  const before = run.checkpoints;
  let load = await elide(engine, run, selectNeeded(listElidables(run).old, prepared.load, stop), prepared.load);
  if (load > stop && engine.config.context.compaction.mode === 'summarize') load = await summarise(engine, run, load);
  if (load > budget) {
    const { old, recent } = listElidables(run);
    load = await elide(engine, run, selectNeeded([...old, ...recent], load, budget), load);
  }
  if (run.checkpoints === before) return prepared;
  return { ...buildModelRequest(engine, run, prepared.request.system_prompt_volatile), load };
}

function listElidables(run: TurnProgress) {
  return findElidables(viewHistory(run.history, run.checkpoints));
}

/** Elides the parts from the view. Returns the tokens that the request then takes. */
async function elide(
  engine: Runtime & Storage,
  run: TurnRun,
  taken: readonly Elidable[],
  tokensBefore: number,
): Promise<number> {
  if (taken.length === 0) return tokensBefore;
  const checkpoint: Elision = {
    id: engine.ids.next(),
    session_id: run.session.id,
    kind: 'elide',
    message_ids: taken.map((part) => part.message_id),
    tokens_before: tokensBefore,
    tokens_after: Math.max(0, tokensBefore - sumSaved(taken)),
    created_at: engine.clock.now(),
  };
  await engine.journal.commit({
    writes: [{ kind: 'checkpoint.insert', checkpoint }],
    emit: [compactedEvent(run, checkpoint, taken.length)],
  });
  recordCheckpoint(run, checkpoint);
  return checkpoint.tokens_after;
}

/**
 * Makes the turn's next model call and stores its outcome. Never throws for a provider's failure:
 * a call cut off with known usage is recorded with its cost, a call without usage costs nothing (01 §4.4).
 * A request that cannot be made small enough is a failed call that was never sent (10 §7).
 */
export async function callModel(engine: ModelCallEngine, run: TurnRun): Promise<CallOutcome> {
  if (owesSummary(run)) await startWithSummary(engine, run);
  const ahead = takeNextCall(run);
  const first = ahead?.prepared ?? buildModelRequest(engine, run, await readVolatilePrompt(engine, run.session));
  const prepared = ahead === null ? await fitToWindow(engine, run, first) : first;
  if (prepared === null) return refuseUnsentCall(run, first);
  const outcome = await makeCall(engine, run, prepared, {
    settleAnswer: settleSuccess,
    started: ahead?.started ?? null,
  });
  if (outcome.ok || outcome.error?.error_class !== 'context_overflow' || run.signal.aborted) return outcome;
  if (run.overflow_answered) return outcome;
  markOverflowAnswered(run);
  const smaller = await shrinkAfterOverflow(engine, run, prepared);
  if (smaller === null || run.signal.aborted) return outcome;
  return makeCall(engine, run, smaller, { settleAnswer: settleSuccess, started: null });
}

/** The turn was stopped while room was being made, or no room can be made. */
function refuseUnsentCall(run: TurnPlan & ServingModel, { request, load, window }: ModelRequest): CallOutcome {
  const { request_id } = request;
  if (run.signal.aborted)
    return { ok: false, error: new AdapterError('cancelled', { error_class: 'cancelled', request_id }) };
  const room = Math.max(0, Math.floor(window.budget));
  const text = `the conversation needs about ${load} tokens, ${run.model.id} has room for ${room}, and nothing more can be left out; take a model with a larger window or start a new session`;
  return { ok: false, error: new AdapterError(text, { error_class: 'context_overflow', request_id }) };
}
