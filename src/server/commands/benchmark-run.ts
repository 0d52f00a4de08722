// One run of `metis benchmark`: a copy of the workspace, one turn under what is left of the limit, then the check (17 §6).

import fs from 'node:fs';
import path from 'node:path';
import { startWatch } from '#cli/live-tree.ts';
import { createSessionTree } from '#cli/session-tree.ts';
import { createTerminalStyle } from '#cli/terminal.ts';
import { type CostRow, createMetisClient, type MetisClient, type Session, type Turn } from '#client/client.ts';
import { type Clock, systemClock } from '#protocol/clock.ts';
import type { Config } from '#protocol/config.ts';
import { readErrorMessage } from '#protocol/text/error-message.ts';
import { createSandbox } from '#tools/sandbox/bubblewrap.ts';
import { shellEnvironment, startCommand } from '#tools/sandbox/command.ts';
import type { CommandContext } from '../context.ts';
import { type Arm, type ArmServer, type BenchmarkSettings, startArmServer } from './benchmark-setup.ts';

const CHECK_LIMIT_MS = 300_000;
const MAX_REASON = 300;

type Figures = Pick<
  CostRow,
  'call_count' | 'input_tokens' | 'cache_creation_input_tokens' | 'cached_input_tokens' | 'output_tokens' | 'cost_usd'
>;

export interface RunResult extends Figures {
  readonly workload: string;
  readonly delegate: boolean;
  /** `not_run`: the limit cut it, or left nothing for it. */
  readonly result: 'passed' | 'failed' | 'not_run';
  /** Why it did not pass; null = it did. */
  readonly reason: string | null;
  /** Workers started. */
  readonly delegate_calls: number;
  readonly has_unpriced_calls: boolean;
  readonly planner: string | null;
  readonly worker: string | null;
  readonly wall_time_seconds: number | null;
}

/** A run that nothing was paid for. */
export function createSkippedRun({ workload, delegate }: Arm, reason: string): RunResult {
  return {
    workload: workload.name,
    delegate,
    result: 'not_run',
    reason,
    delegate_calls: 0,
    has_unpriced_calls: false,
    planner: null,
    worker: null,
    wall_time_seconds: null,
    call_count: 0,
    input_tokens: 0,
    cache_creation_input_tokens: 0,
    cached_input_tokens: 0,
    output_tokens: 0,
    cost_usd: '0',
  };
}

export interface RunPlace {
  /** Empty; the run may leave anything there. */
  readonly folder: string;
  /** What the whole run may cost. */
  readonly maxCostUsd: string;
  /** Cancels the turn and stops the check. */
  readonly signal: AbortSignal;
}

/** Throws `StartupError` where the server cannot start as asked. */
export async function runArm(
  context: CommandContext,
  arm: Arm,
  settings: BenchmarkSettings,
  place: RunPlace,
): Promise<RunResult> {
  const workspace = path.join(place.folder, 'workspace');
  fs.cpSync(arm.workload.workspace, workspace, { recursive: true, verbatimSymlinks: true });
  const started = await startArmServer(context, arm, settings, place.folder);
  try {
    const { url } = await started.server.listen();
    const client = createMetisClient({ baseUrl: url, token: started.token });
    const session = await client.createSession({
      workspace_path: workspace,
      initial_active_model: started.planner,
      max_cost_usd: place.maxCostUsd,
      on_reached: 'stop',
      approval_mode: settings.approve ? 'approve_all' : 'strict',
    });
    const turn = await watchRun(context, client, { session, task: arm.workload.prompt, signal: place.signal });
    const [{ totals }, { worker_count, has_unpriced_calls }] = await Promise.all([
      client.getCost({ group_by: 'none', parent_session: session.id, from: 'all' }),
      client.getSession(session.id),
    ]);
    const end = await judgeRun(context, arm, { turn, workers: worker_count, workspace, started, signal: place.signal });
    const { call_count, input_tokens, cache_creation_input_tokens, cached_input_tokens, output_tokens, cost_usd } =
      totals;
    return {
      workload: arm.workload.name,
      delegate: arm.delegate,
      ...end,
      delegate_calls: worker_count,
      has_unpriced_calls,
      planner: started.planner,
      worker: started.worker,
      wall_time_seconds: turn.wall_time_seconds,
      call_count,
      input_tokens,
      cache_creation_input_tokens,
      cached_input_tokens,
      output_tokens,
      cost_usd,
    };
  } finally {
    await started.server.close();
  }
}

/** Submits the task and shows its steps on stderr; an abort cancels it, and its end is waited for. */
async function watchRun(
  context: CommandContext,
  client: MetisClient,
  { session, task, signal }: { readonly session: Session; readonly task: string; readonly signal: AbortSignal },
): Promise<Turn> {
  const watch = startWatch(
    createSessionTree(session.id, session),
    context.stderr,
    createTerminalStyle(context, context.stderr),
  );
  const keepCursor = context.onExit(() => watch.stop());
  let turnId: string | null = null;
  const cancel = () => {
    if (signal.aborted && turnId !== null) void client.cancelTurn(session.id, turnId).catch(() => {});
  };
  signal.addEventListener('abort', cancel);
  try {
    const events = client.turn(session.id, { content: task }, { include_worker_sessions: true });
    for (;;) {
      const step = await events.next();
      if (step.done) return step.value;
      watch.apply(step.value);
      if (turnId !== null || step.value.session_id !== session.id) continue;
      turnId = step.value.turn_id;
      cancel();
    }
  } finally {
    signal.removeEventListener('abort', cancel);
    keepCursor();
    watch.stop();
  }
}

async function judgeRun(
  context: CommandContext,
  { workload, delegate }: Arm,
  {
    turn,
    workers,
    workspace,
    started: { config },
    signal,
  }: {
    readonly turn: Turn;
    readonly workers: number;
    readonly workspace: string;
    readonly started: Pick<ArmServer, 'config'>;
    readonly signal: AbortSignal;
  },
): Promise<Pick<RunResult, 'result' | 'reason'>> {
  const fail = (reason: string) => ({ result: 'failed', reason: reason.slice(0, MAX_REASON) }) as const;
  if (turn.status !== 'completed')
    return fail(`the turn ${turn.status}: ${turn.error_message ?? turn.cancel_reason ?? ''}`);
  if (turn.stop_reason === 'budget_exceeded')
    return { result: 'not_run', reason: 'the limit ended it; raise --budget' };
  const env = shellEnvironment(context.env, config.tools.shell.env_passthrough);
  const fault = await runCheck(workload.check, { workspace, env, shell: config.tools.shell, signal }).catch(
    (error: unknown) => `the check could not run: ${readErrorMessage(error)}`,
  );
  if (fault !== null) return fail(fault);
  const { min_delegate_calls: least } = workload.expect;
  if (delegate && workers < least) return fail(`${workers} workers started, and expect.min_delegate_calls is ${least}`);
  return { result: 'passed', reason: null };
}

/** What is wrong; null = the check passed. It runs as commands of the tool `shell` do, in their sandbox where one is required. */
export async function runCheck(
  check: string,
  {
    workspace,
    env,
    shell,
    signal,
    clock = systemClock,
  }: {
    readonly workspace: string;
    readonly env: Readonly<Record<string, string>>;
    readonly shell: Config['tools']['shell'];
    readonly signal: AbortSignal;
    readonly clock?: Clock;
  },
): Promise<string | null> {
  const cwd = fs.realpathSync(workspace);
  const plain = ['/bin/sh', '-c', check];
  const sandbox = createSandbox({ network: shell.sandbox_network, dataFolder: null, projectFiles: false, env });
  const argv = shell.sandbox === 'required' ? await sandbox(cwd, plain) : plain;
  const running = startCommand({ argv, cwd, env, clock });
  let isLate = false;
  const stop = () => void running.stop();
  const late = clock.after(CHECK_LIMIT_MS, () => {
    isLate = true;
    stop();
  });
  signal.addEventListener('abort', stop, { once: true });
  if (signal.aborted) stop();
  try {
    const { code, signal: ended, output } = await running.ended;
    if (code === 0) return null;
    const last = output.trimEnd().split('\n').at(-1) ?? '';
    if (isLate) return `the check did not end within ${CHECK_LIMIT_MS / 1000} s`;
    return `the check ended with ${code ?? ended}: ${last}`;
  } finally {
    late.cancel();
    signal.removeEventListener('abort', stop);
  }
}
