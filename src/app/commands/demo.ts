// `metis demo`: a server of its own, the example workspace, a planner with three workers, and what it cost (17 §1).
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { startLiveTree } from '../../cli/live-tree.ts';
import { createSessionTree } from '../../cli/session-tree.ts';
import { createStyle } from '../../cli/style.ts';
import { createMetisClient, type MetisClient } from '../../client/client.ts';
import { defaultConfig } from '../../domain/config.ts';
import type { Turn } from '../../domain/turn.ts';
import { StartupError } from '../../kernel/errors.ts';
import { silentLogger } from '../../ports/log.ts';
import { createServer, type RunningServer } from '../compose.ts';
import { type CommandContext, refuse } from '../context.ts';
import { type Credentials, createCredentials, readEnvFile } from '../credentials.ts';
import { readRegistry } from '../registry-file.ts';
import { demoReport } from './demo-report.ts';

const TASK =
  'The login providers in src/ (google, github, gitlab) repeat the same checks of their input. Write src/checks.mjs with ' +
  'one function for these checks, then let one worker per provider, all three at once, make its file call it. ' +
  'Nothing a caller sees may change. Then run `node --test` and report in two sentences.';
const SCENARIO = 'config/scenarios/auth-refactor.yaml';
const DEFAULT_COLUMNS = 80;

export interface DemoFlags {
  /** Leave the server up. */
  readonly keep?: boolean;
  /** An adapter of the shipped registry; scripted models when absent. */
  readonly provider?: string;
}

/** Exit code: 0 when the job was done, 1 otherwise, 130 when interrupted or when nobody reads any more. */
export async function demo(context: CommandContext, flags: DemoFlags): Promise<number> {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'metis-demo-'));
  const stopped = new AbortController();
  const remove = () => fs.rmSync(folder, { recursive: true, force: true });
  // A second signal ends the process on the spot.
  process.once('exit', remove);
  const signal = Promise.race([context.stopSignal(), context.outputClosed]).then(() => stopped.abort());
  try {
    const workspace = path.join(folder, 'auth-refactor');
    fs.cpSync(path.join(context.packageDir, 'examples', 'auth-refactor'), workspace, { recursive: true });
    const server = await startServer(context, flags, folder);
    try {
      const { url } = await server.listen();
      const status = await runJob(context, server, { url, workspace, signal: stopped.signal });
      if (stopped.signal.aborted) return 130;
      if (flags.keep) {
        context.stdout.write(`\nThe server stays up at ${url}; press Ctrl-C to end it.\n`);
        await signal;
      }
      return status === 'completed' ? 0 : 1;
    } finally {
      await server.close();
    }
  } catch (error) {
    if (error instanceof StartupError) return refuse(context, error.problems);
    if (stopped.signal.aborted) return 130;
    throw error;
  } finally {
    process.off('exit', remove);
    remove();
  }
}

/** A server that shares nothing with the person's own: configuration, data and port are its own. */
async function startServer(context: CommandContext, flags: DemoFlags, folder: string): Promise<RunningServer> {
  const dataDir = path.join(folder, 'data');
  const config = defaultConfig(dataDir);
  config.server.port = 0;
  config.registry.path = path.join(context.packageDir, 'config', 'registry.yaml');
  // The workspace is a throw-away copy, so nobody is asked before it is changed.
  config.tool_confirmation.default.write = 'auto';
  config.tool_confirmation.default.execute = 'auto';
  const keys = readEnvFile(path.join(context.home, '.metis'));
  const { packageDir, version, env } = context;
  const shared = { config, log: silentLogger, packageDir, version, env, dataDir, keysFile: keys.path };
  if (flags.provider === undefined) {
    return createServer({ ...shared, credentials: createCredentials({}), scenario: path.join(packageDir, SCENARIO) });
  }
  const credentials = only(createCredentials({ ...keys.values, ...context.env }), flags.provider);
  const adapter = readRegistry(config.registry.path).adapters.get(flags.provider);
  if (adapter === undefined || credentials.forAdapter(flags.provider, adapter) === null) {
    const name = adapter === undefined ? 'its key' : credentials.keyName(flags.provider, adapter);
    throw new StartupError('not_configured', [`--provider ${flags.provider}: set ${name} or add it to ${keys.path}`]);
  }
  return createServer({ ...shared, credentials });
}

/** The same credentials with every other provider left out. */
function only(credentials: Credentials, provider: string): Credentials {
  return {
    keyName: credentials.keyName,
    forAdapter: (id, adapter) => (id === provider ? credentials.forAdapter(id, adapter) : null),
    get secrets() {
      return credentials.secrets;
    },
  };
}

async function runJob(
  context: CommandContext,
  server: RunningServer,
  { url, workspace, signal }: { readonly url: string; readonly workspace: string; readonly signal: AbortSignal },
): Promise<Turn['status']> {
  const { stdout } = context;
  const onTerminal = stdout.isTTY === true;
  const style = createStyle(onTerminal && !context.env.NO_COLOR);
  const client = createMetisClient({ baseUrl: url });
  const planner = server.registry.modelForTier('deep');
  const session = await client.createSession({
    workspace_path: workspace,
    ...(planner === null ? {} : { initial_active_model: planner }),
  });

  stdout.write(`${style.bold('Metis')} on ${url}\n`);
  stdout.write(`${style.dim('Task:')} three login providers repeat the same checks; put them into one place.\n\n`);
  const turn = await followTurn(context, client, session.id, signal);
  if (turn.status === 'completed' && typeof turn.output === 'string') stdout.write(`\n${wrapped(turn.output)}\n`);
  else stdout.write(`\n${style.red(`The turn ${turn.status}: ${turn.error_message ?? turn.cancel_reason ?? ''}`)}\n`);
  stdout.write(`\n${await demoReport(client, session.id, style, stdout.columns ?? DEFAULT_COLUMNS)}`);
  return turn.status;
}

/** Submits the task and shows its events until it has ended: a live tree on a terminal, else a line per step. */
async function followTurn(
  context: CommandContext,
  client: MetisClient,
  sessionId: string,
  signal: AbortSignal,
): Promise<Turn> {
  const { stdout } = context;
  const tree = createSessionTree(sessionId);
  const live = stdout.isTTY ? startLiveTree(tree, stdout, createStyle(!context.env.NO_COLOR)) : null;
  try {
    const events = client.turn(sessionId, { content: TASK }, { include_worker_sessions: true, signal });
    for (;;) {
      const step = await events.next();
      if (step.done) return step.value;
      const event = step.value;
      const line = tree.apply(event);
      const label = tree.nodes.find((node) => node.session_id === event.session_id)?.label;
      if (live === null && line !== null) stdout.write(`${(label ?? '').padEnd(9)} ${line}\n`);
    }
  } finally {
    live?.stop();
  }
}

function wrapped(text: string): string {
  const lines: string[] = [];
  for (const paragraph of text.trim().split('\n')) {
    let line = '';
    for (const word of paragraph.split(' ')) {
      if (line !== '' && line.length + word.length >= DEFAULT_COLUMNS - 1) {
        lines.push(line);
        line = word;
      } else line = line === '' ? word : `${line} ${word}`;
    }
    lines.push(line);
  }
  return lines.join('\n');
}
