// Runs a worker's turns: normally one, more when its answer has to be repaired (04 §5.2, §12).
import { WORKER_FIRST_MESSAGE, workerTaskPrompt } from '#core/policy/context/worker-brief.ts';
import { readStructured, repairMessage, type WorkerEnd } from '#core/policy/delegation/worker-outcome.ts';
import { Cancelled } from '#protocol/abort.ts';
import type { DelegateRequest, InsufficientContextRequest } from '#protocol/delegate.ts';
import type { Issue } from '#protocol/errors.ts';
import type { TurnId } from '#protocol/ids.ts';
import { TreeLost } from '#protocol/journal-batch.ts';
import { type ContentBlock, joinText, textBlock } from '#protocol/message.ts';
import type { Result } from '#protocol/result.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { computeLeft } from '../money/budget-limits.ts';
import { Interrupted, isHandOver, takeWhenFree, throwIfLost } from '../state/concurrency.ts';
import type { Caller } from '../state/delegation-runs.ts';
import { type DelegationEngine, type Runtime, type Storage, safeText, type Toolbox } from '../state/engine.ts';
import type { BudgetRefusal, DelegationCap } from '../state/memory.ts';
import type { ToolResults, TurnEnd, TurnPlan, TurnProgress, TurnRun, WorkerRun } from '../state/turn-run.ts';
import { admitTurn } from '../turn/admit-turn.ts';
import { runTurn } from '../turn/run-turn.ts';
import { markOpened, type SpawnedDelegation } from './open-delegation.ts';

export interface Work {
  readonly spawned: SpawnedDelegation;
  readonly session: SessionRecord;
  readonly worker: WorkerRun;
  /** Aborted to end the worker's turns: by its timeout, a direct cancel, or the planner's end. */
  readonly scope: AbortController;
  /** Aborted to let the worker answer with what it has. */
  readonly conclusion: AbortController;
  /** Blocks after the text of the worker's first message; the error is the reason why they cannot be read. */
  readonly blocks: Result<readonly ContentBlock[], string>;
  /** The planner's money caps and the worker's own. */
  readonly caps: readonly DelegationCap[];
}

/** The outcome of one turn. */
export interface FinishedTurn {
  readonly turn_id: TurnId;
  readonly end: TurnEnd;
  readonly text: string;
  readonly llm_calls: number;
  readonly tokens_exhausted: boolean;
  /** It was made to answer with what it had: no other turn follows. */
  readonly concluded: boolean;
  readonly context_request: InsufficientContextRequest | null;
  readonly refusal: BudgetRefusal | null;
}

/** Where the turns of a worker begin. */
export interface Beginning {
  /** The turn that a resumed worker continues; null = it starts with a new one. */
  readonly begun: FinishedTurn | null;
  /** The message of that new turn; null = the task. */
  readonly content: readonly ContentBlock[] | null;
  /** Turns that were run because a check failed, this one included. */
  readonly rungs: number;
}

/**
 * Runs turns until there is an outcome. A worker's failure is an outcome; throws `Interrupted` when the worker was
 * interrupted. `turn` is the last one, where it was completed.
 */
export async function workUntilDone(
  engine: DelegationEngine,
  planner: Caller,
  work: Work,
  { begun, content: given, rungs }: Beginning,
): Promise<{ readonly end: WorkerEnd; readonly turn: FinishedTurn | null }> {
  const validate = createOutputValidator(engine, work.worker);
  const { request } = work.spawned.delegation;
  const first = getFirstText(request, work.session);
  if (begun === null && given === null && !work.blocks.ok)
    return endWithout({ kind: 'failed', message: work.blocks.error, text: '' });
  let content = given ?? [textBlock(first), ...(work.blocks.ok ? work.blocks.value : [])];
  let repairs = await countRepairs(engine, work, { begun, rungs });
  let turn = begun;
  let lastAnswer = '';
  for (;;) {
    if (turn === null) {
      if (work.scope.signal.aborted) return endWithout(endBetweenTurns(engine, planner, work, lastAnswer));
      const next = await runNextTurn(engine, planner, work, content);
      if ('kind' in next) return endWithout(next);
      turn = next;
    }
    const { end, text } = turn;
    if (end.status === 'lost') throw new TreeLost(work.session.root_session_id);
    if (end.status === 'interrupted') throw new Interrupted(end.reason);
    if (end.status === 'cancelled') return endWithout(classifyStop(planner, work, text, end.reason === 'timeout'));
    if (end.status === 'failed') return endWithout({ kind: 'failed', message: end.message, text });
    const structured = end.stop_reason === 'end_turn' && validate ? readStructured(text, validate) : null;
    const repairable =
      structured?.ok === false && !turn.concluded && repairs < engine.config.delegation.schema_repair_attempts;
    if (!repairable) return { end: completeWorker(turn, end.stop_reason, structured), turn };
    if (work.worker.output_tokens_left !== null && work.worker.output_tokens_left <= 0)
      return { end: completeWorker({ ...turn, tokens_exhausted: true }, 'tool_use', null), turn };
    lastAnswer = text;
    content = [textBlock(repairMessage(structured.error))];
    repairs += 1;
    turn = null;
  }
}

function endWithout(end: WorkerEnd) {
  return { end, turn: null };
}

/** The text of the worker's first message. A worker that continues has its task there: its prompt is that of the earlier one. */
export function getFirstText(
  request: DelegateRequest,
  { continues_session_id }: Pick<SessionRecord, 'continues_session_id'>,
): string {
  if (continues_session_id !== null) return workerTaskPrompt(request);
  if (request.worker === null) return WORKER_FIRST_MESSAGE;
  return request.task;
}

/** A worker stopped between two turns. Throws `Interrupted` if it resumes after the next start, else returns its end. */
export function endBetweenTurns(engine: Runtime, planner: Caller, work: Work, text: string): WorkerEnd {
  throwIfLost(work.scope.signal);
  if (isHandOver(engine, work.scope.signal)) throw new Interrupted('restart');
  return classifyStop(planner, work, text);
}

/** Number of repairs that a worker has used: one per turn that is neither its first nor follows a failed check. */
async function countRepairs(
  engine: Pick<Storage, 'store'>,
  work: Work,
  { begun, rungs }: Pick<Beginning, 'begun' | 'rungs'>,
): Promise<number> {
  if (begun === null && rungs === 0) return 0;
  const turns = await engine.store.turns.count(work.session.id);
  return Math.max(0, turns - rungs - (begun === null ? 0 : 1));
}

function completeWorker(
  turn: FinishedTurn,
  stopReason: Extract<TurnEnd, { status: 'completed' }>['stop_reason'],
  structured: Extract<WorkerEnd, { kind: 'completed' }>['structured'],
): WorkerEnd {
  const { text, llm_calls, tokens_exhausted, context_request, refusal } = turn;
  return {
    kind: 'completed',
    stop_reason: stopReason,
    text,
    llm_calls,
    tokens_exhausted,
    context_request,
    structured,
    budget: refusal && { scope: refusal.scope, left: computeLeft(refusal) },
  };
}

/**
 * Classifies what stopped the worker: its planner's end, its own timeout, or else a direct cancel or a shutdown.
 * @param expired the turn had run out of time, perhaps before a restart
 */
function classifyStop(planner: Caller, work: Work, text: string, expired = false): WorkerEnd {
  const reason = work.scope.signal.reason;
  if (planner.signal.aborted && reason === planner.signal.reason) return { kind: 'cancelled', scope: 'planner', text };
  const seconds = work.spawned.delegation.timeout_seconds;
  if (seconds !== null && (expired || (reason instanceof Cancelled && reason.reason === 'timeout')))
    return { kind: 'timeout', seconds, text };
  // A shutdown stops planner and worker, each at its own step boundary.
  const shutdown = reason instanceof Cancelled && reason.reason === 'shutdown';
  return { kind: 'cancelled', scope: shutdown ? 'planner' : 'worker', text };
}

async function runNextTurn(
  engine: DelegationEngine,
  planner: Caller,
  work: Work,
  content: readonly ContentBlock[],
): Promise<FinishedTurn | WorkerEnd> {
  const { session, worker, scope } = work;
  const turnId = engine.ids.turn();
  await takeWhenFree(engine.locks, session.id, turnId);
  const admission = await admitTurn(engine, {
    session,
    turn_id: turnId,
    content,
    override: null,
    submitted_by: planner.turn?.submitted_by ?? planner.outside?.submitted_by ?? null,
    scope,
    conclusion: work.conclusion,
    worker,
    clocks: [worker.clock, ...planner.clocks],
    tree: planner.tree,
    caps: work.caps,
    before: work.spawned.opening,
    parent_event: work.spawned.parent_event,
    tool_names: work.spawned.delegation.effective_tools,
    claim: null,
  }).catch((error: unknown) => {
    engine.locks.release(session.id);
    throw error;
  });
  markOpened(work.spawned, admission.events);
  if (admission.ok) return runWorkerTurn(engine, admission.run);
  engine.locks.release(session.id);
  if (admission.decision.fallback_costlier && !engine.config.delegation.allow_costlier_fallback)
    return { kind: 'no_model' };
  const message = safeText(engine, admission.error.message, session.workspace_path);
  return { kind: 'routing_failed', message: `worker routing failed: ${message}` };
}

/** Runs an admitted or rebuilt turn. The caller holds the session's lock. */
export async function runWorkerTurn(
  engine: DelegationEngine,
  run: TurnRun,
  known?: ToolResults,
): Promise<FinishedTurn> {
  let end: TurnEnd = { status: 'failed', message: 'internal error' };
  const { scope, conclusion } = run;
  const turn = engine.locks.start(run.session, { turn_id: run.turn.id, scope, conclusion }, async () => {
    end = await runTurn(engine, run, known);
  });
  await turn.done;
  return {
    turn_id: run.turn.id,
    end,
    text: readTurnText(run),
    llm_calls: run.tally.llm_calls,
    tokens_exhausted: run.limit === 'output_tokens',
    concluded: run.conclusion_message !== null,
    context_request: run.context_request,
    refusal: run.refusal,
  };
}

/** The text of the turn's newest assistant message, even if it was cut off. */
function readTurnText(run: TurnPlan & TurnProgress): string {
  const last = run.history.findLast((m) => m.role === 'assistant');
  if (last && last.turn_id === run.turn.id) return joinText(last.content);
  return '';
}

function createOutputValidator(
  engine: Pick<Toolbox, 'schemas'>,
  worker: WorkerRun,
): ((value: unknown) => readonly Issue[]) | null {
  if (worker.output_schema === null) return null;
  const compiled = engine.schemas.compile(worker.output_schema);
  if (!compiled.ok) throw new Error('an output schema that compiled at the call no longer does');
  return compiled.validate;
}
