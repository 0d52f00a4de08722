// The server of one run of `metis benchmark`: data and routing of its own, with or without delegation (17 §6).
import fs from 'node:fs';
import path from 'node:path';
import { silentLogger } from '#core/ports/log.ts';
import { type Config, defaultConfig } from '#protocol/config.ts';
import { StartupError } from '#protocol/errors.ts';
import { createServer, type RunningServer } from '#server/compose.ts';
import type { CommandContext } from '#server/context.ts';
import { createCredentials } from '#server/credentials.ts';
import { loadSettings, type Settings } from '#server/start.ts';
import { resolveModels } from './models.ts';
import type { Policy } from './policy.ts';
import type { Workload } from './workload.ts';

const NO_MODEL =
  'no model of a real provider can be used; metis doctor says what is missing, and --scripted needs no key';

export interface Arm {
  readonly workload: Workload;
  /** False = the planner alone, without tools that call workers. */
  readonly delegate: boolean;
}

export interface BenchmarkSettings {
  /** `scripted` plays each workload's scenario on the shipped registry. */
  readonly models: Pick<Settings, 'config' | 'credentials' | 'envFile'> | 'scripted';
  readonly policy: Policy;
  /** Approves every tool call. */
  readonly approve: boolean;
}

export interface ArmServer {
  readonly server: RunningServer;
  /** Model ids; no worker = the tiers of the configuration. */
  readonly planner: string;
  readonly worker: string | null;
  readonly config: Config;
  readonly token: string | null;
}

/**
 * Configuration of the data folder, without its data: what one run teaches changes no other.
 * Throws `StartupError`.
 * @param folder of the run; its copy of the workspace is beside the data
 */
export async function startArmServer(
  context: CommandContext,
  { workload, delegate }: Arm,
  { models, policy, approve }: BenchmarkSettings,
  folder: string,
): Promise<ArmServer> {
  const { packageDir, version, env } = context;
  const dataDir = path.join(folder, 'data');
  const scripted = models === 'scripted';
  const config = scripted ? defaultConfig(dataDir) : structuredClone(models.config);
  if (scripted) config.registry.path = path.join(packageDir, 'config', 'registry.yaml');
  config.server = { ...config.server, host: '127.0.0.1', port: 0, rate_limit_rpm: null, workspace_roots: [] };
  config.storage.db_path = path.join(dataDir, 'metis.db');
  config.database.url = null;
  config.nats.url = null;
  config.notify = [];
  // The workspace is a copy, and file tools do not leave it.
  config.tool_confirmation.default.write = 'auto';
  config.workers.allow_approve_all = approve;
  if (!delegate) {
    config.tools.disabled = [...config.tools.disabled, 'delegate'];
    config.workers.planner_allow_workers = [];
    config.workers.dynamic = false;
  }
  if (policy.worker !== null) config.routing.global_path = path.join(folder, 'routing.yaml');
  const options = { config, log: silentLogger, packageDir, version, env, dataDir };
  const server = await createServer(
    scripted
      ? { ...options, credentials: createCredentials({}), keysFile: '', scenario: workload.scenario! }
      : { ...options, credentials: models.credentials, keysFile: models.envFile.path },
  );
  try {
    if (!scripted && server.notice !== null) throw new StartupError('not_configured', [NO_MODEL]);
    const resolved = resolveModels(policy, server.registry);
    if (!resolved.ok) throw new StartupError('not_configured', resolved.error);
    const { planner, worker } = resolved.value;
    // Read with each turn. JSON is YAML.
    if (worker !== null)
      fs.writeFileSync(
        config.routing.global_path,
        JSON.stringify({ schema_version: 1, tiers: { fast: worker, balanced: worker, deep: worker } }),
      );
    return { server, planner, worker, config, token: config.server.auth_tokens[0] ?? null };
  } catch (error) {
    await server.close();
    throw error;
  }
}

/** Errors: one line per problem. */
export function readModels(
  context: CommandContext,
  flags: Parameters<typeof loadSettings>[1] & { readonly scripted?: boolean },
): ReturnType<typeof loadSettings> | { readonly ok: true; readonly value: 'scripted' } {
  return flags.scripted === true ? { ok: true, value: 'scripted' } : loadSettings(context, flags);
}
