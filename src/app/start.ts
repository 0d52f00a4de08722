// The first steps every server command shares: keys file, configuration, credentials, log.
import { err, ok, type Result } from '../kernel/result.ts';
import type { Logger } from '../ports/log.ts';
import { type ConfigFlags, dataDirectory, type LoadedConfig, loadConfig } from './config.ts';
import type { CommandContext } from './context.ts';
import { type Credentials, createCredentials, type EnvFile, readEnvFile } from './credentials.ts';
import { createLogger } from './log.ts';

export interface Settings extends LoadedConfig {
  readonly credentials: Credentials;
  readonly envFile: EnvFile;
}

/** Errors: one line per problem. */
export function loadSettings(context: CommandContext, flags: ConfigFlags): Result<Settings, string[]> {
  const envFile = readEnvFile(dataDirectory({ flags, cwd: context.cwd, home: context.home }));
  // What is already set wins over the file.
  const env = { ...envFile.values, ...context.env };
  const loaded = loadConfig({ env, flags, cwd: context.cwd, home: context.home, packageDir: context.packageDir });
  return loaded.ok ? ok({ ...loaded.value, envFile, credentials: createCredentials(env) }) : err(loaded.error);
}

/**
 * The process log, which hides keys and tokens. A person at a terminal reads sentences: below `error` they see the lines
 * only when `log.level` asks for them.
 */
export function startLog({ stderr }: CommandContext, { config, credentials, given }: Settings): Logger {
  const level = stderr.isTTY === true && !given.has('log.level') ? 'error' : config.log.level;
  return createLogger(level, () => [...credentials.secrets, ...config.server.auth_tokens]);
}
