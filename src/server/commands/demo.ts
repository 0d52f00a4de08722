// `metis demo`: a server of its own, the example workspace, a planner with its workers, and what it cost (17 §1).
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { startWatch } from '#cli/live-tree.ts';
import { toPrintable, toPrintableText } from '#cli/printable-text.ts';
import { createSessionTree } from '#cli/session-tree.ts';
import { createStyle, wrapWords } from '#cli/terminal.ts';
import { createMetisClient, type MetisClient, type Session, type StreamEvent } from '#client/client.ts';
import { StartupError } from '#protocol/errors.ts';
import type { Turn } from '#protocol/turn.ts';
import type { RunningServer } from '../compose.ts';
import { type CommandContext, refuse } from '../context.ts';
import { createCheckLog, writeCheckReport } from './demo-checks.ts';
import { CHECKED_JOB, type DemoJob, PLANNER_JOB, WORKERS_JOB, WORKTREES_JOB } from './demo-jobs.ts';
import { describeWorktrees, writeDemoReport } from './demo-report.ts';
import { makeRepository, startDemoServer } from './demo-server.ts';

const DEFAULT_COLUMNS = 80;

export interface DemoFlags {
  /** The job of the named workers instead of the planner's. */
  readonly workers?: boolean;
  /** The job of workers in worktrees. */
  readonly worktrees?: boolean;
  /** The job of workers whose results are checked. */
  readonly checked?: boolean;
  /** Leave the server up. */
  readonly keep?: boolean;
  /** An adapter of the shipped registry; scripted models when absent. */
  readonly provider?: string;
}

/** Exit code: 0 when the job was done, 1 otherwise, 130 when interrupted or when standard output was closed. */
export async function demo(context: CommandContext, flags: DemoFlags): Promise<number> {
  let folder: string;
  try {
    folder = fs.mkdtempSync(path.join(os.tmpdir(), 'metis-demo-'));
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    return refuse(context, [`the temporary folder ${os.tmpdir()} cannot be written (${code}); name one in TMPDIR`]);
  }
  const stopped = new AbortController();
  const remove = () => fs.rmSync(folder, { recursive: true, force: true });
  // A second signal ends the process on the spot.
  const keepClean = context.onExit(remove);
  const signal = Promise.race([context.stopSignal(), context.outputClosed]).then(() => stopped.abort());
  try {
    const job = selectJob(flags);
    const workspace = path.join(folder, job.example);
    fs.cpSync(path.join(context.packageDir, 'examples', job.example), workspace, { recursive: true });
    if (job.isRepository) makeRepository(workspace, context.env);
    const server = await startDemoServer(context, job, flags.provider, folder);
    try {
      const { url } = await server.listen();
      const { done, session_id } = await runDemoJob(context, server, { job, url, workspace, signal: stopped.signal });
      if (stopped.signal.aborted) return 130;
      if (flags.keep) {
        context.stdout.write(
          `\nSession ${session_id}\nIn the dashboard: ${url}/#/sessions/${session_id}\n` +
            `The server stays up at ${url}; press Ctrl-C to end it.\n`,
        );
        await signal;
      } else if (done) context.stdout.write(composeNextSteps(context, flags));
      if (done) return 0;
      return 1;
    } finally {
      await server.close();
    }
  } catch (error) {
    if (error instanceof StartupError) return refuse(context, error.problems);
    if (stopped.signal.aborted) return 130;
    throw error;
  } finally {
    keepClean();
    remove();
  }
}

function selectJob({ workers, worktrees, checked }: DemoFlags): DemoJob {
  if (checked) return CHECKED_JOB;
  if (worktrees) return WORKTREES_JOB;
  return workers ? WORKERS_JOB : PLANNER_JOB;
}

/** In a line of its own, as it takes most of 80 columns. */
const CLIENT = 'ANTHROPIC_BASE_URL=http://127.0.0.1:8420 ANTHROPIC_AUTH_TOKEN=metis claude';

/** What to do after the demo, as it was started: from a checkout or by the installed command. */
function composeNextSteps({ env }: CommandContext, { workers, worktrees, checked, provider }: DemoFlags): string {
  const isCheckout = env.npm_lifecycle_event?.startsWith('demo') === true;
  const script = workers ? 'demo:workers' : 'demo';
  const flags = ['--keep'];
  if (worktrees) flags.unshift('--worktrees');
  if (checked) flags.unshift('--checked');
  if (provider !== undefined) flags.unshift('--provider', provider);
  if (workers && !isCheckout) flags.unshift('--workers');
  const again = isCheckout ? `npm run ${script} -- ${flags.join(' ')}` : `metis demo ${flags.join(' ')}`;
  const steps = [
    [again, 'the same, and look at it in the dashboard'],
    [isCheckout ? 'npm start' : 'metis serve', `the server, for your key and your client:\n    ${CLIENT}`],
    [`${isCheckout ? 'npx ' : ''}metis run "TASK"`, 'one task in this folder'],
  ] as const;
  const width = Math.max(...steps.map(([command]) => command.length)) + 2;
  return `\nNext:\n${steps.map(([command, about]) => `  ${command.padEnd(width)}${about}\n`).join('')}`;
}

async function runDemoJob(
  context: CommandContext,
  server: RunningServer,
  {
    job,
    url,
    workspace,
    signal,
  }: { readonly job: DemoJob; readonly url: string; readonly workspace: string; readonly signal: AbortSignal },
): Promise<{ readonly done: boolean; readonly session_id: string }> {
  const { stdout } = context;
  const onTerminal = stdout.isTTY === true;
  const style = createStyle(onTerminal && !context.env.NO_COLOR);
  const client = createMetisClient({ baseUrl: url });
  const session = await client.createSession({
    workspace_path: workspace,
    ...job.session((tier) => server.registry.modelForTier(tier)),
  });

  stdout.write(`${style.bold('Metis')} on ${url}\n`);
  stdout.write(`${style.dim('Task:')} ${job.about}\n`);
  if (server.notice !== null) stdout.write(`${style.dim('Models:')} simulated; the tools, files and tests are real.\n`);
  stdout.write('\n');
  const checks = createCheckLog();
  const watched = { session, task: job.task, signal, onEvent: checks.add };
  const turn = await watchDemoTurn(context, client, watched);
  if (turn.status === 'completed' && typeof turn.output === 'string')
    stdout.write(`\n${wrapWords(toPrintableText(turn.output.trim()), DEFAULT_COLUMNS - 1).join('\n')}\n`);
  else
    stdout.write(
      `\n${style.red(toPrintable(`The turn ${turn.status}: ${turn.error_message ?? turn.cancel_reason ?? ''}`))}\n`,
    );
  const written = job.results === null ? [] : listDemoFiles(path.join(workspace, job.results));
  if (written.length > 0) stdout.write('\n');
  for (const { name, bytes } of written) stdout.write(`wrote ${job.results}/${toPrintable(name)}, ${bytes} bytes\n`);
  if (job.isRepository && job.checks === undefined) stdout.write(`\n${await describeWorktrees(client, session.id)}`);
  const columns = stdout.columns ?? DEFAULT_COLUMNS;
  if (job.checks !== undefined)
    stdout.write(`\n${await writeCheckReport(client, session.id, checks, { style, columns })}`);
  stdout.write(`\n${await writeDemoReport(client, session.id, style, columns)}`);
  const done = turn.status === 'completed' && (job.results === null || written.length > 0);
  return { done, session_id: session.id };
}

function listDemoFiles(folder: string): { readonly name: string; readonly bytes: number }[] {
  if (!fs.existsSync(folder)) return [];
  const names = fs.readdirSync(folder).sort();
  return names.map((name) => ({ name, bytes: fs.statSync(path.join(folder, name)).size }));
}

/** Submits the task and shows its events until it has ended: a live tree on a terminal, else a line per step. */
async function watchDemoTurn(
  context: CommandContext,
  client: MetisClient,
  {
    session,
    task,
    signal,
    onEvent,
  }: {
    readonly session: Session;
    readonly task: string;
    readonly signal: AbortSignal;
    readonly onEvent: (event: StreamEvent) => void;
  },
): Promise<Turn> {
  const { stdout, env } = context;
  const tree = createSessionTree(session.id, session);
  const watch = startWatch(tree, stdout, createStyle(stdout.isTTY === true && !env.NO_COLOR));
  const keepCursor = context.onExit(() => watch.stop());
  try {
    const events = client.turn(session.id, { content: task }, { include_worker_sessions: true, signal });
    for (;;) {
      const step = await events.next();
      if (step.done) return step.value;
      onEvent(step.value);
      watch.apply(step.value);
    }
  } finally {
    keepCursor();
    watch.stop();
  }
}
