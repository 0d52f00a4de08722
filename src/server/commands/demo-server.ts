// The server of `metis demo`: configuration, data, port and repository of its own (17 §1).
import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { silentLogger } from '#core/ports/logger.ts';
import { defaultConfig } from '#protocol/config.ts';
import { StartupError } from '#protocol/errors.ts';
import { createServer, type RunningServer } from '../compose.ts';
import type { CommandContext } from '../context.ts';
import { type Credentials, createCredentials, readEnvFile } from '../credentials.ts';
import { readRegistry } from '../models.ts';
import type { DemoJob } from './demo-jobs.ts';

/** A repository of one commit, made without any setting of the person's. Throws `StartupError`. */
export function makeRepository(folder: string, { PATH }: CommandContext['env']): void {
  const env = { PATH, HOME: folder, GIT_CONFIG_GLOBAL: '/dev/null', GIT_CONFIG_NOSYSTEM: '1' };
  const settings = ['-c', 'user.name=metis', '-c', 'user.email=metis@localhost', '-c', 'core.hooksPath=/dev/null'];
  for (const args of [
    ['init', '-q', '-b', 'main'],
    ['add', '-A'],
    ['commit', '-q', '-m', 'The example'],
  ]) {
    const { error, status, stderr } = spawnSync('git', [...settings, ...args], { cwd: folder, env, encoding: 'utf8' });
    if (error === undefined && status === 0) continue;
    const problem = error?.message ?? stderr.trim();
    throw new StartupError('not_configured', [`this demo needs git 2.38 or newer: git ${args[0]} failed: ${problem}`]);
  }
}

/** A server that shares nothing with the person's own: configuration, data and port are its own. */
export async function startDemoServer(
  context: CommandContext,
  job: DemoJob,
  provider: string | undefined,
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
  config.checks = job.checks ?? {};
  const keys = readEnvFile(path.join(context.home, '.metis'));
  const { packageDir, version, env } = context;
  const shared = { config, log: silentLogger, packageDir, version, env, dataDir, keysFile: keys.path };
  if (provider === undefined) {
    return createServer({
      ...shared,
      credentials: createCredentials({}),
      scenario: path.join(packageDir, job.scenario),
    });
  }
  const credentials = limitToProvider(createCredentials({ ...keys.values, ...context.env }), provider);
  const adapter = readRegistry(config.registry.path, packageDir, dataDir).adapters.get(provider);
  if (adapter === undefined || credentials.forAdapter(provider, adapter) === null) {
    const name = adapter === undefined ? 'its key' : credentials.keyName(provider, adapter);
    throw new StartupError('not_configured', [`--provider ${provider}: set ${name} or add it to ${keys.path}`]);
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
