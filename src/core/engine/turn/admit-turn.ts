// Admits a turn: routes it, then stores it in one transaction (00 §3 step 2, 03 §10).
import { extendHistory, measureHistory } from '#core/policy/context/session-history.ts';
import { viewHistory } from '#core/policy/context/shown-history.ts';
import { nameModel, signShape } from '#core/policy/learning/forecast.ts';
import { routingRecord } from '#core/policy/routing/chain.ts';
import type { Batch, Write } from '#core/ports/journal-writer.ts';
import type { ToolSet } from '#core/ports/tool-port.ts';
import { type Awaitable, continueWith, gatherAll } from '#protocol/async/awaitable.ts';
import type { AppError } from '#protocol/errors.ts';
import { draft, type Event } from '#protocol/event.ts';
import type { EventId, TurnId } from '#protocol/ids.ts';
import { type ContentBlock, joinText, type StoredMessage, withoutRaw } from '#protocol/message.ts';
import { getProvider } from '#protocol/model.ts';
import type { Checkpoint } from '#protocol/prompt-parts.ts';
import { ROUTING_MODE_OF, type RouteDecision } from '#protocol/route.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { sha256Hex } from '#protocol/text/canonical-json.ts';
import type { TurnRecord } from '#protocol/turn.ts';
import { loadToolset } from '../definitions/find-workers.ts';
import { isCrowded, owesSummary } from '../model-call/call-model.ts';
import { buildModelRequest, callStartedEvent } from '../model-call/model-request.ts';
import { selectOfferedTools, toWireTool, warnAboutMissingTools } from '../prompt/model-input.ts';
import { routeDecidedEvent } from '../routing/route-environment.ts';
import { type RoutedTurn, routeTurn } from '../routing/route-turn.ts';
import { readCheckpoints, readHistory } from '../session/read-history.ts';
import type { AdmissionEngine, CostHistories } from '../state/engine.ts';
import type { DelegationCap } from '../state/memory.ts';
import { type DelegationTree, newTally, type TurnRun, type WorkerClock, type WorkerRun } from '../state/turn-run.ts';
import { newUserMessage } from './incoming-message.ts';
import { canAnnounce } from './run-turn.ts';

export interface AdmissionRequest {
  readonly session: SessionRecord;
  readonly turn_id: TurnId;
  /** Checked and stripped of its override prefix. */
  readonly content: readonly ContentBlock[];
  readonly override: string | null;
  /** Id of the token that submitted it, or the turn that spawned its worker. */
  readonly submitted_by: string | null;
  readonly scope: AbortController;
  readonly conclusion: AbortController;
  readonly worker: WorkerRun | null;
  readonly clocks: readonly WorkerClock[];
  readonly tree: DelegationTree;
  readonly caps: readonly DelegationCap[];
  /** A batch that is stored before the turn in the same transaction; its last event is the parent of `turn.started`. */
  readonly before: Batch | null;
  /** Parent of `turn.started` without such a batch. */
  readonly parent_event: EventId | null;
  /** For a worker: the names in its delegation. */
  readonly tool_names: readonly string[] | null;
  /** Writes the idempotency row beside the turn. */
  readonly claim: ((turn: TurnRecord) => Write) | null;
}

/** `events` are those of the whole transaction, beginning with those of `before`. */
export type Admission =
  | { readonly ok: true; readonly run: TurnRun; readonly events: readonly Event[] }
  | {
      readonly ok: false;
      readonly decision: RouteDecision;
      readonly error: AppError;
      readonly events: readonly Event[];
    };

/** What a turn begins with, and its route. */
interface OpenedTurn {
  readonly toolset: ToolSet;
  /** Unix milliseconds. */
  readonly now: number;
  /** The session's messages before this turn. */
  readonly stored: readonly StoredMessage[];
  readonly checkpoints: readonly Checkpoint[];
  readonly userMessage: StoredMessage;
  readonly history: StoredMessage[];
  readonly routed: RoutedTurn;
}

/** Reads what the turn begins with, and decides its route. Stores nothing. */
function openAdmittedTurn(engine: AdmissionEngine, request: AdmissionRequest): Awaitable<OpenedTurn> {
  const { session, turn_id, content } = request;
  return continueWith(loadToolset(engine, session), (toolset) => {
    warnAboutMissingTools(engine, session, toolset);
    const now = engine.clock.now();
    const read = gatherAll([readHistory(engine, session), readCheckpoints(engine, session)]);
    return continueWith(read, ([stored, checkpoints]) => {
      const userMessage = newUserMessage(engine, session, { turn_id, content, now });
      const history = extendHistory(stored, userMessage);
      const routed = routeTurn(engine, {
        session,
        turn_id,
        history: viewHistory(history, checkpoints),
        earlier: stored,
        override: request.override,
        submitted_by: request.submitted_by,
        worker: request.worker,
        caps: request.caps,
        toolset,
        tool_names: request.tool_names,
        now,
      });
      return continueWith(routed, (route) => ({
        ...{ toolset, now, stored, checkpoints, userMessage, history },
        routed: route,
      }));
    });
  });
}

/**
 * Decides the route. Unless it is refused, stores turn, user message, `turn.started` and `route.decided` together, with
 * `llm.call_started` of the first call where no money has to be reserved and the call fits its window. A refusal stores
 * its `route.decided` alone, behind the batch in front of the turn. Throws `JournalConflict('turn_in_flight')` when another turn is open.
 */
export async function admitTurn(engine: AdmissionEngine, request: AdmissionRequest): Promise<Admission> {
  const { session, worker, before, turn_id: turnId } = request;
  const opening = openAdmittedTurn(engine, request);
  const opened = opening instanceof Promise ? await opening : opening;
  const { toolset, now, stored, checkpoints, userMessage, history, routed } = opened;
  const { decision, facts, refusal, context, environment, tools, elapsed_ms } = routed;
  const decided = { decision, facts, elapsed_ms, requested: null };
  if (refusal) {
    const place = { session_id: session.id, turn_id: turnId, parent: null };
    const refused = routeDecidedEvent(place, decided);
    const events = await engine.journal.commit({
      writes: before?.writes ?? [],
      emit: [...(before?.emit ?? []), ...environment.notices, refused],
    });
    return { ok: false, decision, error: refusal, events };
  }

  const model = engine.registry.get(decision.chosen_model);
  const adapter = model && engine.providers.get(model.adapter);
  if (!model || !adapter) throw new Error(`the chain chose a model without an adapter: ${decision.chosen_model}`);
  const effective = selectOfferedTools(engine, session, { toolset, tools, model, granted: request.tool_names });

  const turn: TurnRecord = {
    id: turnId,
    session_id: session.id,
    user_message_id: userMessage.id,
    status: 'in_flight',
    per_message_override: request.override,
    chosen_model: model.id,
    chosen_effort: decision.chosen_effort,
    provider: getProvider(model.id),
    routing_mode: ROUTING_MODE_OF[decision.chain[decision.winner_index]!.policy],
    stop_reason: null,
    cancel_reason: null,
    interrupted_reason: null,
    error_code: null,
    error_class: null,
    error_message: null,
    retryable: null,
    llm_call_count: 0,
    tool_call_count: 0,
    started_at: now,
    ended_at: null,
    wall_time_seconds: null,
    final_message_id: null,
    tools: effective.map((t) => t.name),
    resume_attempts: 0,
    concluded_at: null,
    conclusion_message_id: null,
    submitted_by: request.submitted_by,
    ...noteForecast(engine, session, routed),
  };
  const writes: Write[] = [...(before?.writes ?? [])];
  if (environment.version !== session.routing_policy_version)
    writes.push({ kind: 'session.set_policy_version', session_id: session.id, version: environment.version });
  writes.push(
    { kind: 'turn.insert', turn, fingerprint: routed.fingerprint },
    { kind: 'message.insert', message: userMessage },
  );
  if (request.claim) writes.push(request.claim(turn));
  const about = {
    session,
    turn,
    turn_index: measureHistory(history).turns,
    model,
    wire_tools: effective.map(toWireTool),
    worker,
    history,
    checkpoints,
    tally: newTally(),
  };
  const prepared = buildModelRequest(engine, about, routed.volatile);
  const crowded = isCrowded(engine, prepared) || owesSummary(about);
  const announced = !context.budget_limited && !crowded && canAnnounce(engine, request.scope.signal);
  const first = [...(before?.emit ?? []), ...environment.notices];
  const started = first.length;
  const events = await engine.journal.commit({
    writes,
    emit: [
      ...first,
      draft({
        type: 'turn.started',
        session_id: session.id,
        turn_id: turnId,
        parent: before ? before.emit.length - 1 : request.parent_event,
        payload: {
          user_message_hash: sha256Hex(joinText(userMessage.content)),
          user_message_id: userMessage.id,
          estimated_input_tokens: context.estimated_input_tokens,
          has_images: context.has_images,
          has_tool_calls_in_history: measureHistory(stored).has_tool_results,
        },
      }),
      routeDecidedEvent({ session_id: session.id, turn_id: turnId, parent: started }, decided),
      {
        session_id: session.id,
        turn_id: turnId,
        timestamp: now,
        delta: { type: 'message.appended', payload: { message: withoutRaw(userMessage) } },
      },
      ...(announced ? [callStartedEvent(about, prepared, started)] : []),
    ],
  });
  const startedEvent = events[started]!.id;

  return {
    ok: true,
    events,
    run: {
      ...about,
      adapter,
      routing: routingRecord(decision),
      toolset,
      tools: effective,
      scope: request.scope,
      signal: request.scope.signal,
      conclusion: request.conclusion,
      started_event_id: startedEvent,
      started_monotonic: engine.clock.monotonic(),
      clocks: request.clocks,
      tree: request.tree,
      caps: request.caps,
      called: new Map(),
      resumed: false,
      cause: startedEvent,
      overflow_answered: false,
      next_call: crowded ? null : { prepared, started: announced ? events[started + 2]!.id : null },
      stop_reason: null,
      call_event_id: null,
      final_message_id: null,
      context_request: null,
      limit: null,
      conclusion_message: null,
      budget_warned: false,
      refusal: null,
      terms: new Map(),
    },
  };
}

/** The shape of the turn, and of a top-level one what it is expected to cost: one look into memory (21 §1). */
function noteForecast(
  { forecasts }: CostHistories,
  { workspace_path, is_worker }: SessionRecord,
  { fingerprint, decision }: Pick<RoutedTurn, 'fingerprint' | 'decision'>,
): Pick<TurnRecord, 'shape_sig' | 'forecast'> {
  if (fingerprint === null) return { shape_sig: null, forecast: null };
  const shape_sig = signShape(fingerprint);
  if (is_worker || forecasts === null) return { shape_sig, forecast: null };
  const model = nameModel(decision.chosen_model, decision.chosen_effort);
  const history = forecasts.look({ workspace_path, is_worker, shape_sig, model });
  return { shape_sig, forecast: history && { p50_usd: history.p50_usd, p90_usd: history.p90_usd } };
}
