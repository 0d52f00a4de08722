// A worker's turns: one as a rule, more when its answer has to be repaired (04 §5.2, §12).
import { type ContentBlock, type ImageBlock, textBlock, textOf } from '../domain/message.ts';
import type { SessionRecord } from '../domain/session.ts';
import { Cancelled } from '../kernel/abort.ts';
import type { Issue } from '../kernel/errors.ts';
import type { EventId } from '../kernel/ids.ts';
import { WORKER_FIRST_MESSAGE } from '../policy/context/worker-brief.ts';
import type { WorkerEnd } from '../policy/delegation/outcome.ts';
import { readStructured, repairMessage } from '../policy/delegation/schema-repair.ts';
import { admitTurn } from './admit.ts';
import { type Engine, safeText } from './context.ts';
import { runTurn } from './run-turn.ts';
import type { Spawned } from './spawn-worker.ts';
import type { TurnEnd, TurnRun, WorkerRun } from './turn-run.ts';

export interface Work {
  readonly spawned: Spawned;
  readonly session: SessionRecord;
  readonly worker: WorkerRun;
  /** Ends all the worker's turns: its own timeout, a direct cancel, or the planner's end. */
  readonly scope: AbortController;
  readonly images: readonly ImageBlock[];
}

/** Runs turns until there is an outcome. Never throws for the worker's failure. */
export async function workUntilDone(engine: Engine, planner: TurnRun, work: Work): Promise<WorkerEnd> {
  const validate = outputValidator(engine, work.worker);
  let content: readonly ContentBlock[] = [textBlock(WORKER_FIRST_MESSAGE), ...work.images];
  let parentEvent: EventId | null = work.spawned.parent_event;
  let text = '';
  for (let repairs = 0; ; repairs += 1) {
    if (work.scope.signal.aborted) return stopped(planner, work, text);
    const turn = await oneTurn(engine, planner, work, content, parentEvent);
    if (turn.kind === 'refused') return turn.end;
    text = turn.text;
    const { end, run } = turn;
    if (end.status === 'cancelled') return stopped(planner, work, text);
    if (end.status === 'failed') return { kind: 'failed', message: end.message, text };
    const structured = end.stop_reason === 'end_turn' && validate ? readStructured(text, validate) : null;
    if (structured && !structured.ok && repairs < engine.config.delegation.schema_repair_attempts) {
      if (work.worker.output_tokens_left !== null && work.worker.output_tokens_left <= 0)
        return completed(run, 'tool_use', text, true, null);
      content = [textBlock(repairMessage(structured.error))];
      parentEvent = null;
      continue;
    }
    return completed(run, end.stop_reason, text, run.limit === 'output_tokens', structured);
  }
}

function completed(
  run: TurnRun,
  stopReason: Extract<TurnEnd, { status: 'completed' }>['stop_reason'],
  text: string,
  tokensExhausted: boolean,
  structured: Extract<WorkerEnd, { kind: 'completed' }>['structured'],
): WorkerEnd {
  return {
    kind: 'completed',
    stop_reason: stopReason,
    text,
    llm_calls: run.tally.llm_calls,
    tokens_exhausted: tokensExhausted,
    context_request: run.context_request,
    structured,
    budget: null,
  };
}

/** Who stopped it: the planner's end comes with the planner's own reason, the clock with `timeout`, else somebody directly. */
function stopped(planner: TurnRun, work: Work, text: string): WorkerEnd {
  const reason = work.scope.signal.reason;
  if (planner.signal.aborted && reason === planner.signal.reason) return { kind: 'cancelled', scope: 'planner', text };
  if (reason instanceof Cancelled && reason.reason === 'timeout')
    return { kind: 'timeout', seconds: work.spawned.delegation.timeout_seconds, text };
  // A drain stops planner and worker alike, each at its own step boundary.
  const shutdown = reason instanceof Cancelled && reason.reason === 'shutdown';
  return { kind: 'cancelled', scope: shutdown ? 'planner' : 'worker', text };
}

type OneTurn =
  | { readonly kind: 'ran'; readonly run: TurnRun; readonly end: TurnEnd; readonly text: string }
  | { readonly kind: 'refused'; readonly end: WorkerEnd };

async function oneTurn(
  engine: Engine,
  planner: TurnRun,
  work: Work,
  content: readonly ContentBlock[],
  parentEvent: EventId | null,
): Promise<OneTurn> {
  const { session, worker, scope } = work;
  engine.locks.reserve(session.id);
  const admission = await admitTurn(engine, {
    session,
    content,
    override: null,
    scope,
    worker,
    clocks: [worker.clock, ...planner.clocks],
    tree: planner.tree,
    parent_event: parentEvent,
    tool_names: work.spawned.delegation.effective_tools,
    claim: null,
  }).catch((error: unknown) => {
    engine.locks.release(session.id);
    throw error;
  });
  if (!admission.ok) {
    engine.locks.release(session.id);
    const { decision } = admission;
    return {
      kind: 'refused',
      end:
        decision.fallback_dearer && !engine.config.delegation.allow_dearer_fallback
          ? { kind: 'no_model' }
          : {
              kind: 'routing_failed',
              message: `worker routing failed: ${safeText(engine, admission.error.message, session.workspace_path)}`,
            },
    };
  }
  const { run } = admission;
  let end: TurnEnd = { status: 'failed', message: 'internal error' };
  const turn = engine.locks.start(session.id, run.turn.id, scope, async () => {
    end = await runTurn(engine, run);
  });
  await turn.done;
  return { kind: 'ran', run, end, text: lastText(run) };
}

/** The text of the newest assistant message of the turn, cut ones included. */
function lastText(run: TurnRun): string {
  const last = run.history.findLast((m) => m.role === 'assistant');
  return last && last.turn_id === run.turn.id ? textOf(last.content) : '';
}

function outputValidator(engine: Engine, worker: WorkerRun): ((value: unknown) => readonly Issue[]) | null {
  if (worker.output_schema === null) return null;
  const compiled = engine.schemas.compile(worker.output_schema);
  if (!compiled.ok) throw new Error('an output schema that compiled at the call no longer does');
  return compiled.validate;
}
