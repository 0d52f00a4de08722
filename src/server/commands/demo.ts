// `metis demo`: a server of its own, the example workspace, a planner with three workers, and what it cost (17 §1).
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { composeCostCells, nameCostColumns } from '#cli/cost.ts';
import { startWatch } from '#cli/live-tree.ts';
import { toPrintable, toPrintableText } from '#cli/printable-text.ts';
import { createSessionTree } from '#cli/session-tree.ts';
import { createStyle, layOutTable, type Style, wrapWords } from '#cli/terminal.ts';
import { createMetisClient, type MetisClient, type NewSession, type Session } from '#client/client.ts';
import { silentLogger } from '#core/ports/logger.ts';
import type { CostRow } from '#protocol/analytics.ts';
import { defaultConfig } from '#protocol/config.ts';
import { StartupError } from '#protocol/errors.ts';
import { toPusd } from '#protocol/money.ts';
import type { Tier } from '#protocol/scalars.ts';
import type { Turn } from '#protocol/turn.ts';
import { createServer, type RunningServer } from '../compose.ts';
import { type CommandContext, refuse } from '../context.ts';
import { type Credentials, createCredentials, readEnvFile } from '../credentials.ts';
import { readRegistry } from '../models.ts';

const ALL_TIME = 'all';
const SIMULATED = 'Simulated: scripts answered in place of models, so nothing was spent.';

/** The table and the sentences under it; every figure is the server's. Ends with a line break. */
export async function writeDemoReport(
  client: MetisClient,
  sessionId: string,
  style: Style,
  columns: number,
): Promise<string> {
  const family = { parent_session: sessionId, from: ALL_TIME };
  const { worker_name: root } = await client.getSession(sessionId);
  const [bySession, parts, savings, { workers }] = await Promise.all([
    client.getCost({ ...family, group_by: 'session,model' }),
    client.getCost({ ...family, group_by: root === null ? 'is_worker' : 'worker_name' }),
    client.getSavings({ ...family, baseline: 'planner' }),
    client.listWorkers(sessionId, { recursive: true }),
  ]);
  const names = [root ?? 'planner', ...workers.map(({ worker_name }, i) => `${worker_name ?? 'worker'} ${i + 1}`)];
  const order: (string | null)[] = [sessionId, ...workers.map((worker) => worker.worker_session_id)];
  const place = (row: CostRow) => order.indexOf(row.session_id ?? '');
  const composeSubtotal = (label: string, is: (row: CostRow) => boolean) => {
    const row = parts.data.find(is);
    if (row) return [composeCostRow(label, '', row)];
    return [];
  };
  const listSubtotals = () => {
    if (root !== null) return parts.data.map((row) => composeCostRow(row.worker_name ?? '', '', row));
    return [
      ...composeSubtotal('planner', (row) => row.is_worker === 'planner'),
      ...composeSubtotal('workers', (row) => row.is_worker === 'worker'),
    ];
  };
  const { simulated } = bySession;
  const lines = layOutTable(
    [{ title: 'session' }, { title: 'model' }, ...nameCostColumns(simulated)],
    [
      ...[...bySession.data]
        .sort((a, b) => place(a) - place(b))
        .map((row) => composeCostRow(names[place(row)] ?? '', row.model ?? '', row)),
      null,
      ...listSubtotals(),
      composeCostRow('total', '', bySession.totals),
    ],
    columns - 1,
  );
  lines[0] = style.bold(lines[0]!);
  lines[lines.length - 1] = style.bold(lines.at(-1)!);
  const { baseline_repriced_usd, savings_usd, savings_pct } = savings.data;
  const saved = toPusd(savings_usd);
  const wholeJob = toPusd(bySession.totals.cost_usd) + saved;
  const prices = simulated.included ? ', at example prices' : '';
  return [
    ...lines,
    '',
    `The workers' tokens on the planner's model: $${baseline_repriced_usd}`,
    style.green(`Saved by delegating${prices}: $${savings_usd}`),
    `That is ${formatPercent(savings_pct)} of the workers' part and ${formatPercent(computeShare(saved, wholeJob))} of the whole job.`,
    ...(simulated.included ? [style.dim(SIMULATED)] : []),
    '',
  ].join('\n');
}

/** 0 where the whole is nothing. */
function computeShare(part: bigint, whole: bigint): number {
  if (whole === 0n) return 0;
  return Number(part) / Number(whole);
}

function formatPercent(ratio: number): string {
  return `${(ratio * 100).toFixed(1)} %`;
}

function composeCostRow(label: string, model: string, row: Parameters<typeof composeCostCells>[0]): string[] {
  return [label, model, ...composeCostCells(row)];
}

export interface DemoJob {
  /** Folder below `examples/`. */
  readonly example: string;
  /** The scenario of the scripted models; relative to the package. */
  readonly scenario: string;
  readonly task: string;
  /** One line about the job, shown above the tree. */
  readonly about: string;
  /** Folder of the workspace that the result is written to; null = the answer is all. A job that writes nothing there is not done. */
  readonly results: string | null;
  /** Whether the workspace is a git repository, of which workers get worktrees. */
  readonly isRepository: boolean;
  session(modelFor: (tier: Tier) => string | null): Omit<NewSession, 'workspace_path'>;
}

/** The planner's own model, where one of tier deep is configured. */
function choosePlanner(modelFor: (tier: Tier) => string | null): Omit<NewSession, 'workspace_path'> {
  const planner = modelFor('deep');
  if (planner === null) return {};
  return { initial_active_model: planner };
}

export const PLANNER_JOB: DemoJob = {
  example: 'auth-refactor',
  scenario: 'config/scenarios/auth-refactor.yaml',
  task:
    'The login providers in src/ (google, github, gitlab) repeat the same checks of their input. Write src/checks.mjs with ' +
    'one function for these checks, then let one worker per provider, all three at once, make its file call it. ' +
    'Nothing a caller sees may change. Then run `node --test` and report in two sentences.',
  about: 'three login providers repeat the same checks; put them into one place.',
  results: null,
  isRepository: false,
  session: choosePlanner,
};

export const WORKTREES_JOB: DemoJob = {
  example: 'price-list',
  scenario: 'config/scenarios/price-list.yaml',
  task:
    'The four functions of src/format.mjs return what they are given. Let one worker per function, all four at once and ' +
    'each in a worktree (isolation "worktree"), make its function format its column as test/format.test.mjs expects; ' +
    'the workers of stock and code add their column to FORMATTED. Where a worker was not applied because of a conflict, ' +
    'continue it to resolve that. Then run `node --test` and report in two sentences.',
  about: 'four workers edit one file at the same time, each in a worktree.',
  results: null,
  isRepository: true,
  session: choosePlanner,
};

export const WORKERS_JOB: DemoJob = {
  example: 'pitchdeck-eval',
  scenario: 'config/scenarios/pitchdeck-eval.yaml',
  task: 'Evaluate all decks of the pipeline.',
  about: 'an orchestrator has a locked evaluator judge three pitch decks.',
  results: 'evaluations',
  isRepository: false,
  // Its rules ask before a file is written; the folder is a throw-away copy.
  session: () => ({ worker: 'orchestrator', approval_mode: 'approve_all' }),
};

const DEFAULT_COLUMNS = 80;

export interface DemoFlags {
  /** The job of the named workers instead of the planner's. */
  readonly workers?: boolean;
  /** The job of workers in worktrees. */
  readonly worktrees?: boolean;
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
    const server = await startDemoServer(context, job, flags, folder);
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

function selectJob({ workers, worktrees }: DemoFlags): DemoJob {
  if (worktrees) return WORKTREES_JOB;
  return workers ? WORKERS_JOB : PLANNER_JOB;
}

/** A repository of one commit, made without any setting of the person's. Throws `StartupError`. */
function makeRepository(folder: string, { PATH }: CommandContext['env']): void {
  const env = { PATH, HOME: folder, GIT_CONFIG_GLOBAL: '/dev/null', GIT_CONFIG_NOSYSTEM: '1' };
  const settings = ['-c', 'user.name=metis', '-c', 'user.email=metis@localhost', '-c', 'core.hooksPath=/dev/null'];
  for (const args of [
    ['init', '-q', '-b', 'main'],
    ['add', '-A'],
    ['commit', '-q', '-m', 'A price list'],
  ]) {
    const { error, status, stderr } = spawnSync('git', [...settings, ...args], { cwd: folder, env, encoding: 'utf8' });
    if (error === undefined && status === 0) continue;
    const problem = error?.message ?? stderr.trim();
    throw new StartupError('not_configured', [
      `--worktrees needs git 2.38 or newer: git ${args[0]} failed: ${problem}`,
    ]);
  }
}

/** In a line of its own, as it takes most of 80 columns. */
const CLIENT = 'ANTHROPIC_BASE_URL=http://127.0.0.1:8420 ANTHROPIC_AUTH_TOKEN=metis claude';

/** What to do after the demo, as it was started: from a checkout or by the installed command. */
function composeNextSteps({ env }: CommandContext, { workers, worktrees, provider }: DemoFlags): string {
  const isCheckout = env.npm_lifecycle_event?.startsWith('demo') === true;
  const script = workers ? 'demo:workers' : 'demo';
  const flags = ['--keep'];
  if (worktrees) flags.unshift('--worktrees');
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

/** A server that shares nothing with the person's own: configuration, data and port are its own. */
async function startDemoServer(
  context: CommandContext,
  job: DemoJob,
  flags: DemoFlags,
  folder: string,
): Promise<RunningServer> {
  const dataDir = path.join(folder, 'data');
  const config = defaultConfig(dataDir);
  config.server.port = 0;
  config.registry.path = path.join(context.packageDir, 'config', 'registry.yaml');
  // The workspace is a throw-away copy, so changes need no approval.
  config.tool_confirmation.default.write = 'auto';
  config.tool_confirmation.default.execute = 'auto';
  config.workers.allow_approve_all = true;
  const keys = readEnvFile(path.join(context.home, '.metis'));
  const { packageDir, version, env } = context;
  const shared = { config, log: silentLogger, packageDir, version, env, dataDir, keysFile: keys.path };
  if (flags.provider === undefined) {
    return createServer({
      ...shared,
      credentials: createCredentials({}),
      scenario: path.join(packageDir, job.scenario),
    });
  }
  const credentials = limitToProvider(createCredentials({ ...keys.values, ...context.env }), flags.provider);
  const adapter = readRegistry(config.registry.path, packageDir, dataDir).adapters.get(flags.provider);
  if (adapter === undefined || credentials.forAdapter(flags.provider, adapter) === null) {
    const name = adapter === undefined ? 'its key' : credentials.keyName(flags.provider, adapter);
    throw new StartupError('not_configured', [`--provider ${flags.provider}: set ${name} or add it to ${keys.path}`]);
  }
  return createServer({ ...shared, credentials });
}

/** The same credentials with every other provider left out. */
function limitToProvider(credentials: Credentials, provider: string): Credentials {
  return {
    keyName: credentials.keyName,
    secret: credentials.secret,
    forAdapter(id, adapter) {
      if (id !== provider) return null;
      return credentials.forAdapter(id, adapter);
    },
    get secrets() {
      return credentials.secrets;
    },
  };
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
  const turn = await watchDemoTurn(context, client, { session, task: job.task, signal });
  if (turn.status === 'completed' && typeof turn.output === 'string')
    stdout.write(`\n${wrapWords(toPrintableText(turn.output.trim()), DEFAULT_COLUMNS - 1).join('\n')}\n`);
  else
    stdout.write(
      `\n${style.red(toPrintable(`The turn ${turn.status}: ${turn.error_message ?? turn.cancel_reason ?? ''}`))}\n`,
    );
  const written = job.results === null ? [] : listDemoFiles(path.join(workspace, job.results));
  if (written.length > 0) stdout.write('\n');
  for (const { name, bytes } of written) stdout.write(`wrote ${job.results}/${toPrintable(name)}, ${bytes} bytes\n`);
  if (job.isRepository) stdout.write(`\n${await describeWorktrees(client, session.id)}`);
  stdout.write(`\n${await writeDemoReport(client, session.id, style, stdout.columns ?? DEFAULT_COLUMNS)}`);
  const done = turn.status === 'completed' && (job.results === null || written.length > 0);
  return { done, session_id: session.id };
}

/** What became of the changes of each worker, a line each. */
async function describeWorktrees(client: MetisClient, session: string): Promise<string> {
  const { workers } = await client.listWorkers(session);
  const names = new Map(workers.map(({ worker_session_id: id }, at) => [id, `worker ${at + 1}`]));
  const lines = await Promise.all(
    workers.map(async ({ worker_session_id: id, isolation, applied, conflicts }) => {
      const earlier = id === null ? null : (await client.getSession(id)).continues_session_id;
      const name = `${names.get(id)}${earlier === null ? '' : `, continues ${names.get(earlier)}`}`;
      return `${name}: ${isolation}, ${describeOutcome(applied, conflicts)}`;
    }),
  );
  return `${lines.map(toPrintable).join('\n')}\n`;
}

function describeOutcome(applied: boolean | null, conflicts: readonly string[]): string {
  if (applied === null) return 'changed the workspace directly';
  if (applied) return 'applied';
  if (conflicts.length > 0) return `not applied, conflict in ${conflicts.join(', ')}`;
  return 'not applied';
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
  { session, task, signal }: { readonly session: Session; readonly task: string; readonly signal: AbortSignal },
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
      watch.apply(step.value);
    }
  } finally {
    keepCursor();
    watch.stop();
  }
}
