// Finding the worker of a delegation call again after a restart or a pause: never a second one (04 §13 step 5).

import { plannerTexts } from '#core/policy/delegation/outcome.ts';
import type { DelegationRecord } from '#protocol/delegate.ts';
import { type ContentBlock, textOf } from '#protocol/message.ts';
import type { Result } from '#protocol/result.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { type ToolOutput, toolTexts } from '#protocol/tool.ts';
import type { TurnRecord } from '#protocol/turn.ts';
import { toolsetOf } from '../definitions/toolset.ts';
import type { Engine } from '../state/engine.ts';
import type { Caller } from '../state/outside.ts';
import { takeWhenFree } from '../state/session-lock.ts';
import type { ToolResults } from '../state/tool-results.ts';
import type { TurnRun } from '../state/turn-run.ts';
import { contextRequest, rebuildRun } from '../turn/rebuild.ts';
import { announceResumed, failModelGone } from '../turn/resume.ts';
import { type Spawned, startedEvent } from './open.ts';
import { runSpawned } from './run-worker.ts';
import { runWorkerTurn, type Work, type WorkedTurn } from './worker-turns.ts';

/**
 * Null when the call never got as far as a delegation.
 * @param blocksFor what the first message of a worker holds that was created and never ran; an error is why it cannot run
 */
export async function resumeWorker(
  engine: Engine,
  run: Caller,
  toolUseId: string,
  blocksFor: (delegation: DelegationRecord) => Promise<Result<readonly ContentBlock[], string>>,
): Promise<ToolOutput | null> {
  const delegation = await engine.store.delegations.get(toolUseId);
  if (!delegation) return null;
  if (delegation.status === 'completed' || delegation.status === 'failed') {
    const { texts, is_error } = plannerTexts(delegation);
    return toolTexts(texts, { success: !is_error });
  }
  const session = delegation.worker_session_id
    ? await engine.store.sessions.record(delegation.worker_session_id)
    : null;
  if (!session) throw new Error(`delegation ${toolUseId} is open without a worker`);
  const started = await startedEvent(engine, delegation);
  const used = await engine.store.delegations.usage(session.id);
  await engine.journal.commit({
    writes: [{ kind: 'delegation.resume', tool_use_id: delegation.tool_use_id }],
    emit: [],
  });
  const spawned: Spawned = { delegation, session, parent_event: started, opening: null };
  return runSpawned(engine, run, spawned, {
    blocks: await blocksFor(delegation),
    outputTokensUsed: used.output_tokens,
    begin: (work) => begin(engine, run, work),
  });
}

/** The worker's newest turn, run on from where it stands; null when it has none yet. */
async function begin(engine: Engine, planner: Caller, work: Work): Promise<WorkedTurn | null> {
  const { id } = work.session;
  // Somebody may be cancelling that very turn at this moment: what stands when they are done is what counts.
  await takeWhenFree(engine.locks, id, null);
  let taken: { readonly run: TurnRun; readonly known: ToolResults } | WorkedTurn | null = null;
  try {
    taken = await takeUp(engine, planner, work);
  } finally {
    if (taken === null || !('run' in taken)) engine.locks.release(id);
  }
  return taken !== null && 'run' in taken ? runWorkerTurn(engine, taken.run, taken.known) : taken;
}

/** What there is to run on, or what it came to before. For a caller that holds the lock. */
async function takeUp(engine: Engine, planner: Caller, work: Work) {
  const turn = await engine.store.turns.newest(work.session.id);
  if (turn === null) return null;
  if (turn.ended_at !== null) return ended(engine, work.session, turn, work.worker.output_tokens_left);
  const { run, served, known } = await rebuildRun(engine, work.session, turn, {
    scope: work.scope,
    toolset: await toolsetOf(engine, work.session),
    worker: work.worker,
    clocks: [work.worker.clock, ...planner.clocks],
    tree: planner.tree,
    caps: work.caps,
  });
  if (served === null) {
    const end = await failModelGone(engine, run);
    return { ...(await ended(engine, work.session, turn, null)), end };
  }
  await announceResumed(engine, run);
  return { run: { ...run, ...served }, known };
}

/** A turn that had ended before the delegation was closed. */
async function ended(
  engine: Engine,
  session: SessionRecord,
  turn: TurnRecord,
  tokensLeft: number | null,
): Promise<WorkedTurn> {
  const history = await engine.store.messages.history(session.id);
  const last = history.findLast((m) => m.role === 'assistant' && m.turn_id === turn.id);
  return {
    end:
      turn.status === 'completed'
        ? { status: 'completed', stop_reason: turn.stop_reason ?? 'end_turn' }
        : turn.status === 'cancelled'
          ? { status: 'cancelled', reason: turn.cancel_reason ?? 'shutdown' }
          : { status: 'failed', message: turn.error_message ?? 'the turn failed' },
    text: last ? textOf(last.content) : '',
    llm_calls: turn.llm_call_count,
    tokens_exhausted: tokensLeft !== null && tokensLeft <= 0,
    refusal: null,
    context_request: contextRequest(
      engine.tools.knownTools(session.workspace_path),
      last,
      await engine.store.turns.toolCalls(turn.id),
    ),
  };
}
