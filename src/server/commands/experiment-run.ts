// One run of `metis experiment`: a session of its own, one turn, then the check. Each step is found again where it was (21 §5).
import { setTimeout as wait } from 'node:timers/promises';
import type { MetisClient, Session, Turn } from '#client/client.ts';
import { ApiError } from '#client/request.ts';
import type { Config } from '#protocol/config.ts';
import { CHECK_RUBRIC } from '#protocol/learned-pattern.ts';
import { readErrorMessage } from '#protocol/text/error-message.ts';
import { runCheck } from './benchmark-run.ts';
import type { Experiment, ExperimentArm, ExperimentTask } from './experiment-file.ts';

const POLL_MS = 200;
const MAX_REASON = 300;

export interface Run {
  readonly task: ExperimentTask;
  readonly arm: ExperimentArm;
  /** Indexes in the file; `repetition` from 0. */
  readonly place: { readonly task: number; readonly arm: number; readonly repetition: number };
}

export interface RunOutcome {
  readonly result: 'passed' | 'failed' | 'not_run';
  /** Why it did not pass; null = it did. */
  readonly reason: string | null;
  readonly session_id: string | null;
  readonly cost_usd: string;
  /** A script answered, at example prices. */
  readonly is_simulated: boolean;
  readonly seconds: number;
}

export interface RunWorld {
  readonly client: MetisClient;
  readonly shell: Config['tools']['shell'];
  readonly env: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
}

/** The session of a run, opened or found. Throws as `runOnce`. */
export function openRun(
  { client, signal }: RunWorld,
  experiment: Experiment,
  { task, arm, place }: Run,
  start: string,
): Promise<Session> {
  return client.createSession(
    {
      workspace_path: task.workspace,
      initial_active_model: arm.planner,
      approval_mode: experiment.approval_mode,
      on_reached: 'stop',
      client: 'metis-experiment',
      client_ref: `experiment/${experiment.id}/${place.task}/${place.arm}/${place.repetition}`,
      experiment: {
        id: experiment.id,
        max_cost_usd: experiment.max_cost_usd,
        start_path: start,
        tiers: arm.tiers,
        delegate: arm.delegate,
      },
    },
    { signal },
  );
}

/** Throws `signal.reason` where it is interrupted, and `ApiError` for what is wrong with the file or the server. */
export async function runOnce(world: RunWorld, experiment: Experiment, run: Run, start: string): Promise<RunOutcome> {
  const { client, signal } = world;
  const { task } = run;
  const opened = await openRun(world, experiment, run, start);
  const turn = await findTurn(world, opened, task.prompt);
  const session = await client.getSession(opened.id, { signal });
  const judged =
    turn === null
      ? ({ result: 'not_run', reason: 'nothing is left of max_cost_usd' } as const)
      : await judgeTurn(world, session, turn, task.check);
  if (session.ended_at === null) await client.endSession(session.id);
  const { totals } = await client.getCost({ group_by: 'none', parent_session: session.id, from: 'all' });
  return {
    ...judged,
    session_id: session.id,
    cost_usd: totals.cost_usd,
    is_simulated: session.has_simulated_calls,
    seconds: turn?.wall_time_seconds ?? 0,
  };
}

/** The run's one turn at its end: submitted, resumed or waited for. Null where the limit lets none start. */
async function findTurn({ client, signal }: RunWorld, session: Session, prompt: string): Promise<Turn | null> {
  const { turns } = await client.listTurns(session.id, { limit: 1 }, { signal });
  let id = turns[0]?.id ?? null;
  try {
    if (id === null && session.ended_at !== null) return null;
    if (id === null) id = (await client.submitTurn(session.id, { content: prompt }, { signal })).turn_id;
    else if (turns[0]!.status === 'interrupted') await client.resumeTurn(session.id, id, { signal });
  } catch (error) {
    if (error instanceof ApiError && error.code === 'budget_exceeded') return null;
    throw error;
  }
  for (;;) {
    const turn = await client.getTurn(session.id, id, { signal });
    if (turn.ended_at !== null) return turn;
    await wait(POLL_MS, undefined, { signal });
  }
}

async function judgeTurn(
  { client, shell, env, signal }: RunWorld,
  session: Session,
  turn: Turn,
  check: string,
): Promise<Pick<RunOutcome, 'result' | 'reason'>> {
  const createFailure = (reason: string) => ({ result: 'failed', reason: reason.slice(0, MAX_REASON) }) as const;
  const types = ['budget.exceeded', 'eval.completed'] as const;
  const { events } = await client.listEvents(
    session.id,
    { types, include_worker_sessions: true, limit: 200 },
    { signal },
  );
  const isCut = events.some(({ type, payload }) => type === 'budget.exceeded' && payload.scope === 'experiment');
  if (isCut) return { result: 'not_run', reason: 'max_cost_usd cut it' };
  if (turn.status !== 'completed')
    return createFailure(`the turn ${turn.status}: ${turn.error_message ?? turn.cancel_reason}`);
  for (const event of events)
    if (event.type === 'eval.completed' && event.turn_id === turn.id && event.payload.rubric_id === CHECK_RUBRIC)
      return event.payload.score === 1 ? { result: 'passed', reason: null } : createFailure('the check did not pass');
  const folder = session.experiment?.folder ?? null;
  if (session.ended_at !== null || folder === null) return createFailure('its files are gone before they were checked');
  const fault = await runCheck(check, { workspace: folder, env, shell, signal }).catch(
    (error: unknown) => `the check could not run: ${readErrorMessage(error)}`,
  );
  signal.throwIfAborted();
  await client.scoreTurn(session.id, turn.id, { source: 'check', score: fault === null ? 1 : 0 }, { signal });
  return fault === null ? { result: 'passed', reason: null } : createFailure(fault);
}
