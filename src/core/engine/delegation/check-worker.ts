// Checks what a worker left, applies what passes, and lets the worker go on where a rung is left (20 §10).
import { createMatcher, formatFailure, formatRungMessage } from '#core/policy/delegation/checks.ts';
import { type WorkerEnd, workerOutcome } from '#core/policy/delegation/worker-outcome.ts';
import { chooseRungModel, climbRungs, findModelTier } from '#core/policy/routing/worker-model.ts';
import type { CheckEnd } from '#core/ports/check-runner.ts';
import { type Merge, WorktreeError } from '#core/ports/worktrees.ts';
import { type AttemptRecord, formatMarker, type Rung, type StoredCheck } from '#protocol/check.ts';
import { draft, type EventDraft } from '#protocol/event.ts';
import type { WorktreeRecord } from '#protocol/file-change.ts';
import type { SessionId, TurnId } from '#protocol/ids.ts';
import { textBlock } from '#protocol/message.ts';
import { plainText } from '#protocol/text/plain-text.ts';
import { ToolError } from '#protocol/tool.ts';
import { resolveWorktreeSettings } from '../definitions/worktree-settings.ts';
import { readDelegationPolicies } from '../routing/route-environment.ts';
import { Interrupted, isHandOver } from '../state/concurrency.ts';
import type { Caller } from '../state/delegation-runs.ts';
import { type DelegationEngine, type Runtime, type Storage, safeName, type WorkspaceAccess } from '../state/engine.ts';
import { draftCheckScore } from '../turn/check-score.ts';
import { finishWriting, writeMerge } from './checked-tree.ts';
import { readResult, storeTrees } from './worker-tree.ts';
import { endBetweenTurns, type FinishedTurn, type Work, workUntilDone } from './worker-turns.ts';

/** How often a check is repeated because the workspace was changed while it ran. */
const MAX_RUNS = 4;

/** The outcome of one attempt. */
type Verdict =
  /** Passed and applied, or passed and kept; or skipped. */
  | { readonly kind: 'counts' }
  | { readonly kind: 'failed'; readonly attempt: AttemptRecord }
  /** The changes cannot be merged, or the workspace changed during each run. */
  | { readonly kind: 'unmerged'; readonly conflicts: readonly string[] }
  | { readonly kind: 'broken'; readonly message: string }
  | { readonly kind: 'stopped' };

/**
 * Runs the worker's turns, and its check after each turn that ended well, until one passes or no rung is left. Without a
 * check the worker's word counts. Throws `Interrupted` when the worker resumes after the next start.
 */
export async function workUntilChecked(
  engine: DelegationEngine,
  planner: Caller,
  work: Work,
  begun: FinishedTurn | null,
): Promise<WorkerEnd> {
  const { tool_use_id, request } = work.spawned.delegation;
  const { check, on_fail } = request;
  if (check === null) return (await workUntilDone(engine, planner, work, { begun, content: null, rungs: 0 })).end;
  const stored = await engine.store.attempts.list(tool_use_id);
  let rungs = stored.filter(isFailed).length;
  await climbTo(engine, work, rungs);
  // The turn may have been checked before the restart.
  let failure = stored.findLast((one) => one.turn_id === begun?.turn_id && isFailed(one)) ?? null;
  let turn = begun;
  let attempt = (stored.at(-1)?.attempt ?? 0) + (stored.at(-1)?.ended_at === null ? 0 : 1);
  let message: string | null = null;
  for (;;) {
    if (failure === null) {
      const content = message === null ? null : [textBlock(message)];
      const done = await workUntilDone(engine, planner, work, { begun: turn, content, rungs });
      if (done.turn === null || done.end.kind !== 'completed' || !workerOutcome(done.end).success) return done.end;
      turn = done.turn;
      const about = { check, attempt: Math.max(1, attempt), turn_id: turn.turn_id, rung: on_fail[rungs - 1] ?? null };
      const verdict = await checkPaused(engine, planner, work, about);
      if (verdict.kind === 'stopped') return endBetweenTurns(engine, planner, work, turn.text);
      if (verdict.kind === 'broken') return { kind: 'failed', message: verdict.message, text: turn.text };
      if (verdict.kind === 'unmerged') return { ...done.end, conflicts: verdict.conflicts };
      if (verdict.kind === 'counts') return done.end;
      failure = verdict.attempt;
      rungs += 1;
    }
    const text = turn?.text ?? '';
    // A worker that was made to answer with what it had gets no further turn.
    if (rungs > on_fail.length || turn?.concluded === true)
      return { kind: 'check_failed', text, report: formatFailure(failure) };
    if (work.worker.output_tokens_left !== null && work.worker.output_tokens_left <= 0) return endWithoutTokens(turn);
    await climbTo(engine, work, rungs);
    message = formatRungMessage(failure);
    attempt = failure.attempt + 1;
    failure = null;
    turn = null;
  }
}

function isFailed({ passed, ended_at }: AttemptRecord): boolean {
  return passed === false && ended_at !== null;
}

function endWithoutTokens(turn: FinishedTurn | null): WorkerEnd {
  return {
    kind: 'completed',
    stop_reason: 'tool_use',
    text: turn?.text ?? '',
    llm_calls: turn?.llm_calls ?? 0,
    tokens_exhausted: true,
    context_request: null,
    structured: null,
    budget: null,
  };
}

/** Slot 5's candidate of the next turn: that of the call after so many rungs. */
async function climbTo(engine: DelegationEngine, { spawned, session, worker }: Work, rungs: number): Promise<void> {
  const { request } = spawned.delegation;
  const climbed = request.on_fail.slice(0, rungs);
  if (!climbed.some((rung) => rung !== 'retry')) return;
  const { policies } = await readDelegationPolicies(engine, session);
  const start = { model: request.worker?.definition.model ?? null, tier: request.tier, effort: request.effort };
  const model = chooseRungModel(start, climbed, policies, engine.registry);
  // The models may have changed since the call was accepted.
  if (!model.ok) {
    engine.log.warn({ session_id: session.id, problem: model.error }, 'a rung has no model; the worker keeps its own');
    return;
  }
  worker.tier_model = model.value;
  worker.tier_reason = `on_fail ${climbed.at(-1)}`;
  const wanted = climbRungs(start, climbed);
  worker.tier = findModelTier(wanted);
  worker.effort = wanted.effort;
}

interface AttemptPlan {
  readonly check: StoredCheck;
  readonly attempt: number;
  readonly turn_id: TurnId;
  readonly rung: Rung | null;
}

/** A check takes none of the worker's time, nor of its ancestors'. */
async function checkPaused(engine: DelegationEngine, planner: Caller, work: Work, plan: AttemptPlan): Promise<Verdict> {
  const clocks = [work.worker.clock, ...planner.clocks];
  for (const clock of clocks) clock.pause();
  try {
    if (work.scope.signal.aborted) return { kind: 'stopped' };
    if (isHandOver(engine, work.scope.signal)) throw new Interrupted('restart');
    return await checkResult(engine, work, plan);
  } catch (error) {
    if (!(error instanceof WorktreeError) && !(error instanceof ToolError)) throw error;
    if (work.scope.signal.aborted) return { kind: 'stopped' };
    return { kind: 'broken', message: `the check ${plan.check.name} could not be run: ${error.message}` };
  } finally {
    for (const clock of clocks) clock.resume();
  }
}

async function checkResult(engine: DelegationEngine, work: Work, plan: AttemptPlan): Promise<Verdict> {
  const { check } = plan;
  const { delegation } = work.spawned;
  const worktree = await engine.store.worktrees.get(work.session.id);
  if (worktree === null) return { kind: 'broken', message: `the check ${check.name} has no worktree to check` };
  const before = (await engine.store.attempts.list(delegation.tool_use_id)).at(-1);
  // What was being written when the process ended has passed.
  if (before?.passed === true && before.attempt === plan.attempt && worktree.merged_tree !== null) {
    if (await finishWriting(engine, worktree)) return endPassed(engine, work, before);
  } else if (before?.passed === true && before.ended_at !== null) return { kind: 'counts' };

  const fresh = { ...worktree, result_tree: null, merged_from: null, merged_tree: null };
  const { files, result_tree, protected_changes } = await readResult(engine, fresh, check.protect);
  if (check.paths !== null) {
    const matches = createMatcher(check.paths);
    if (!files.some(({ path }) => matches(path))) return { kind: 'counts' };
  }
  const attempt: AttemptRecord = {
    tool_use_id: delegation.tool_use_id,
    attempt: plan.attempt,
    worker_session_id: work.session.id,
    turn_id: plan.turn_id,
    rung: plan.rung,
    check_name: check.name,
    result_tree,
    process_group: null,
    passed: null,
    exit_code: null,
    output: null,
    protected_changes,
    wall_time_seconds: 0,
    started_at: engine.clock.now(),
    ended_at: null,
  };
  await putAttempt(engine, attempt);
  const recorded = { ...fresh, result_tree };
  // One check at a time in a workspace: what one has applied is in the merge of the next.
  return engine.worktrees.exclusive(`${worktree.caller_path}\0check`, () =>
    runUntilCurrent(engine, work, recorded, attempt),
  );
}

/** Runs the check on a merge, again where the workspace has changed meanwhile: what is applied is what was checked. */
async function runUntilCurrent(
  engine: DelegationEngine,
  work: Work,
  worktree: WorktreeRecord,
  attempt: AttemptRecord,
): Promise<Verdict> {
  const { request } = work.spawned.delegation;
  let conflicts: readonly string[] = [];
  let run = attempt;
  const left = await engine.worktrees.findLeftMarkers(worktree);
  for (let runs = 0; runs < MAX_RUNS; runs += 1) {
    const merge = await mergeWithout(engine, worktree, left);
    if (merge.kind === 'conflict') {
      await putAttempt(engine, { ...attempt, ended_at: engine.clock.now() });
      return { kind: 'unmerged', conflicts: merge.paths };
    }
    const end = await runCommand(engine, work, worktree, { attempt, tree: merge.tree });
    if (end === null) return { kind: 'stopped' };
    run = { ...attempt, ...describeEnd(engine, end) };
    if (run.passed === false) return endFailed(engine, work, run);
    if (request.apply === 'never') {
      await storeTrees(engine, [{ ...worktree, applied: false }]);
      return endPassed(engine, work, run);
    }
    const changed = await applyChecked(engine, worktree, { merge, run });
    if (changed === null) return endPassed(engine, work, run);
    conflicts = changed;
  }
  await endAttempt(engine, work, { ...run, ended_at: engine.clock.now() });
  return { kind: 'unmerged', conflicts };
}

/** Conflict markers that the worker left are a conflict (20 §3). */
async function mergeWithout(
  { worktrees }: Pick<WorkspaceAccess, 'worktrees'>,
  worktree: WorktreeRecord,
  left: readonly string[],
): Promise<Merge> {
  if (left.length > 0) return { kind: 'conflict', paths: left };
  // Not while changes of another worker are written: half of them would be checked.
  return worktrees.mergeExclusive(worktree.caller_path, () => worktrees.merge(worktree));
}

function describeEnd(engine: Runtime, { exit_code, output, wall_time_seconds }: CheckEnd) {
  const text = safeName(engine, plainText(output));
  return { passed: exit_code === 0, exit_code, output: text, wall_time_seconds, process_group: null };
}

/** Null where the worker was stopped meanwhile. */
async function runCommand(
  engine: DelegationEngine,
  { spawned, session, scope: { signal } }: Work,
  worktree: WorktreeRecord,
  { attempt, tree }: { readonly attempt: AttemptRecord; readonly tree: string },
): Promise<CheckEnd | null> {
  const check = spawned.delegation.request.check!;
  if (signal.aborted) return null;
  try {
    const settings = await resolveWorktreeSettings(engine, session.workspace_path);
    const patterns = settings.ok ? settings.value.worktree_copy : [];
    const folder = await engine.worktrees.openCheckFolder(worktree, tree, patterns);
    const onStarted = (process_group: number) => putAttempt(engine, { ...attempt, process_group });
    const end = await engine.checks.run({ folder, check, marker: formatMarker(attempt), signal, onStarted });
    return signal.aborted ? null : end;
  } catch (error) {
    if (signal.aborted) return null;
    throw error;
  } finally {
    await engine.worktrees
      .removeCheckFolder(worktree)
      .catch((err: unknown) =>
        engine.log.warn({ err, session_id: worktree.session_id }, 'the folder of a check could not be removed'),
      );
  }
}

/** Writes the merge if the workspace still is what was merged. Returns null, or the paths that have changed. */
function applyChecked(
  engine: Runtime & Storage & WorkspaceAccess,
  worktree: WorktreeRecord,
  { merge, run }: { readonly merge: Extract<Merge, { kind: 'clean' }>; readonly run: AttemptRecord },
): Promise<readonly string[] | null> {
  return engine.worktrees.mergeExclusive(worktree.caller_path, async () => {
    const now = await engine.worktrees.merge(worktree);
    if (now.kind === 'conflict') return now.paths;
    if (now.from !== merge.from) return engine.worktrees.comparePaths(worktree, merge.from, now.from);
    return writeMerge(engine, worktree, { merge, writes: [{ kind: 'attempt.put', attempt: run }] });
  });
}

async function endPassed(engine: Runtime & Storage, work: Work, attempt: AttemptRecord): Promise<Verdict> {
  await endAttempt(engine, work, { ...attempt, ended_at: engine.clock.now() });
  return { kind: 'counts' };
}

async function endFailed(engine: Runtime & Storage, work: Work, attempt: AttemptRecord): Promise<Verdict> {
  const ended = { ...attempt, ended_at: engine.clock.now() };
  await endAttempt(engine, work, ended);
  return { kind: 'failed', attempt: ended };
}

/** Stores the outcome with its event, and as the score of the worker's turn (12 §12.5). */
async function endAttempt(engine: Runtime & Storage, { spawned }: Work, attempt: AttemptRecord): Promise<void> {
  const { delegation, parent_event } = spawned;
  const { tool_use_id, worker_session_id, check_name, passed, exit_code, wall_time_seconds } = attempt;
  const emit = [
    draft({
      type: 'delegate.checked',
      session_id: delegation.parent_session_id,
      turn_id: delegation.parent_turn_id,
      parent: parent_event,
      payload: {
        tool_use_id,
        worker_session_id,
        attempt: attempt.attempt,
        check: check_name,
        passed: passed === true,
        exit_code,
        wall_time_seconds,
      },
    }),
  ];
  if (!engine.config.eval.disabled) emit.push(draftAttemptScore(engine, attempt));
  await engine.journal.commit({ writes: [{ kind: 'attempt.put', attempt }], emit });
}

function draftAttemptScore(engine: Pick<Runtime, 'ids'>, attempt: AttemptRecord): EventDraft {
  const { worker_session_id: session_id, turn_id, passed } = attempt;
  return draftCheckScore(engine, { session_id, turn_id, score: passed === true ? 1 : 0, parent: 0 });
}

async function putAttempt({ journal }: Pick<Storage, 'journal'>, attempt: AttemptRecord): Promise<void> {
  await journal.commit({ writes: [{ kind: 'attempt.put', attempt }], emit: [] });
}

/**
 * Kills what an earlier process left of checks that had no end.
 * @param root of this tree alone: other trees of a node may be at work; absent = of all
 */
export async function killLeftChecks(engine: Runtime & Storage & WorkspaceAccess, root?: SessionId): Promise<void> {
  const open = await engine.store.attempts.allOpen(root);
  const killed = await engine.checks.killLeft(open.map(formatMarker));
  if (killed > 0) engine.log.warn({ process_groups: killed }, 'checks of the last run were still running');
}
