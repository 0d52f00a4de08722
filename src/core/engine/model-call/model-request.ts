// Builds a model call and its announcement: `llm.call_started` is stored before the request is sent (00 §3 step 3).
import { requestMessages } from '#core/policy/context/assemble.ts';
import { measureHistory } from '#core/policy/context/session-history.ts';
import { viewHistory } from '#core/policy/context/shown-history.ts';
import { estimateRequest } from '#core/policy/context/token-estimate.ts';
import { getWindow, measureLoad } from '#core/policy/context/window.ts';
import { omitDefaultEffort } from '#core/policy/registry/model-efforts.ts';
import { draft, type EventDraft } from '#protocol/event.ts';
import type { EventId } from '#protocol/ids.ts';
import type { StoredMessage } from '#protocol/message.ts';
import type { ModelEntry } from '#protocol/model.ts';
import type { CanonicalRequest } from '#protocol/model-call.ts';
import type { Checkpoint } from '#protocol/prompt-parts.ts';
import type { Runtime } from '../state/engine.ts';
import type { ModelRequest, TurnPlan, TurnRun } from '../state/turn-run.ts';

/** The parts of a request. */
type Source = Pick<
  TurnRun,
  'session' | 'turn' | 'turn_index' | 'model' | 'wire_tools' | 'worker' | 'tally' | 'checkpoints'
> & {
  readonly history: readonly StoredMessage[];
  readonly conclusion_message?: TurnRun['conclusion_message'];
};

/** The turn's next call. Logs calls of the history without a stored result: there must be none. */
export function buildModelRequest(engine: Runtime, run: Source, volatile: string | null): ModelRequest {
  const { session } = run;
  const { messages, missing } = requestMessages(viewHistory(run.history, run.checkpoints));
  if (missing.length > 0)
    engine.log.error({ session_id: session.id, tool_use_ids: missing }, 'tool calls without a stored result');
  const request: CanonicalRequest = {
    request_id: engine.ids.request(),
    model: run.model,
    messages,
    tools: run.wire_tools,
    ...(run.conclusion_message != null && { tool_choice: 'none' }),
    system_prompt: session.system_prompt,
    system_prompt_volatile: volatile,
    max_output_tokens: Math.min(
      maxOutputTokens(engine, run.model),
      run.worker?.output_tokens_left ?? Number.MAX_SAFE_INTEGER,
    ),
    stop_sequences: [],
    temperature: null,
    effort: omitDefaultEffort(run.model, run.turn.chosen_effort),
    output_schema: run.worker?.output_schema ?? session.worker_definition?.output_schema ?? null,
    cache_ttl: cacheLifetime(engine, run),
    caller: {
      session_id: session.id,
      turn_id: run.turn.id,
      is_worker: session.is_worker,
      parent_session_id: session.parent_session_id,
      turn_index: run.turn_index,
      call_index: run.tally.llm_calls + 1,
    },
  };
  const estimated = estimateRequest(request);
  return {
    purpose: 'turn',
    request,
    estimated,
    load: measureLoad(estimated, run.history, run.checkpoints),
    window: getWindow(run.model, request.max_output_tokens),
  };
}

/** The cache lifetime by role. `auto` depends on the stored history alone, so it is the same after a restart (20 §8). */
export function cacheLifetime(
  engine: Pick<Runtime, 'config'>,
  { session, history }: Pick<Source, 'session' | 'history'>,
): '5m' | '1h' {
  const { planner, worker } = engine.config.context.cache_ttl;
  const wanted = session.is_worker ? worker : planner;
  if (wanted !== 'auto') return wanted;
  if (measureHistory(history).had_pause) return '1h';
  return '5m';
}

/** @param parent an event, or the index of an earlier one of the same batch */
export function callStartedEvent(
  run: Source,
  { request, estimated, purpose }: ModelRequest,
  parent: EventId | number,
): EventDraft {
  const { session, turn } = run;
  return draft({
    type: 'llm.call_started',
    session_id: session.id,
    turn_id: turn.id,
    parent,
    payload: {
      model: run.model.id,
      provider: turn.provider ?? '',
      estimated_input_tokens: estimated,
      request_id: request.request_id,
      call_index: request.caller.call_index,
      purpose,
      is_worker: session.is_worker,
      parent_session_id: session.parent_session_id,
      root_session_id: session.root_session_id,
    },
  });
}

/** The event about a checkpoint, in the turn that made it. */
export function compactedEvent(run: TurnPlan, checkpoint: Checkpoint, messages: number): EventDraft {
  return draft({
    type: 'context.compacted',
    session_id: run.session.id,
    turn_id: run.turn.id,
    parent: run.started_event_id,
    payload: {
      checkpoint_id: checkpoint.id,
      kind: checkpoint.kind,
      tokens_before: checkpoint.tokens_before,
      tokens_after: checkpoint.tokens_after,
      message_count: messages,
      model: checkpoint.kind === 'summary' ? checkpoint.model : null,
    },
  });
}

/** The most tokens that one call of this model may answer, without a worker's own cap. */
export function maxOutputTokens(engine: Pick<Runtime, 'config'>, model: ModelEntry): number {
  return Math.min(engine.config.turn.max_output_tokens, model.capabilities.max_output_tokens);
}
