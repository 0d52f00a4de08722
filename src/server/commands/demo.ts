// `metis demo`: a server of its own, the example workspace, a planner with three workers, and what it cost (17 §1).
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { createSessionTree } from '#cli/session-tree.ts';
import { createStyle, toPrintable, toPrintableText, wrapWords } from '#cli/style.ts';
import { startWatch } from '#cli/watch.ts';
import { createMetisClient, type MetisClient, type Session } from '#client/client.ts';
import { silentLogger } from '#core/ports/log.ts';
import { defaultConfig } from '#protocol/config.ts';
import { StartupError } from '#protocol/errors.ts';
import type { Turn } from '#protocol/turn.ts';
import { createServer, type RunningServer } from '../compose.ts';
import { type CommandContext, refuse } from '../context.ts';
import { type Credentials, createCredentials, readEnvFile } from '../credentials.ts';
import { readRegistry } from '../registry-file.ts';
import { type DemoJob, PLANNER_JOB, WORKERS_JOB } from './demo-job.ts';
import { writeDemoReport } from './demo-report.ts';

const DEFAULT_COLUMNS = 80;

export interface DemoFlags {
  /** The job of the named workers instead of the planner's. */
  readonly workers?: boolean;
  /** Leave the server up. */
  readonly keep?: boolean;
  /** An adapter of the shipped registry; scripted models when absent. */
  readonly provider?: string;
}

/** Exit code: 0 when the job was done, 1 otherwise, 130 when interrupted or when nobody reads any more. */
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
    const job = flags.workers ? WORKERS_JOB : PLANNER_JOB;
    const workspace = path.join(folder, job.example);
    fs.cpSync(path.join(context.packageDir, 'examples', job.example), workspace, { recursive: true });
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
      }
      return done ? 0 : 1;
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
  // The workspace is a throw-away copy, so nobody is asked before it is changed.
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
  const adapter = readRegistry(config.registry.path, packageDir).adapters.get(flags.provider);
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
    forAdapter: (id, adapter) => (id === provider ? credentials.forAdapter(id, adapter) : null),
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
  stdout.write(`${style.dim('Task:')} ${job.about}\n\n`);
  const turn = await watchDemoTurn(context, client, { session, task: job.task, signal });
  if (turn.status === 'completed' && typeof turn.output === 'string')
    stdout.write(`\n${wrapWords(toPrintableText(turn.output.trim()), DEFAULT_COLUMNS - 1).join('\n')}\n`);
  else
    stdout.write(
      `\n${style.red(toPrintable(`The turn ${turn.status}: ${turn.error_message ?? turn.cancel_reason ?? ''}`))}\n`,
    );
  const written = job.results === null ? [] : listFiles(path.join(workspace, job.results));
  if (written.length > 0) stdout.write('\n');
  for (const { name, bytes } of written) stdout.write(`wrote ${job.results}/${toPrintable(name)}, ${bytes} bytes\n`);
  stdout.write(`\n${await writeDemoReport(client, session.id, style, stdout.columns ?? DEFAULT_COLUMNS)}`);
  const done = turn.status === 'completed' && (job.results === null || written.length > 0);
  return { done, session_id: session.id };
}

function listFiles(folder: string): { readonly name: string; readonly bytes: number }[] {
  const names = fs.existsSync(folder) ? fs.readdirSync(folder).sort() : [];
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
