// What a run of `metis benchmark` starts from: its workload, its models, and a server with data and routing of its own (17 §6).
import fs from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import { describeIssues } from '#core/policy/parsing/plain-issue.ts';
import { OWN_FILE } from '#core/policy/parsing/text-limits.ts';
import { readYaml } from '#core/policy/parsing/yaml.ts';
import { findModel } from '#core/policy/registry/find-model.ts';
import type { ModelRegistry } from '#core/policy/registry/model-registry.ts';
import { silentLogger } from '#core/ports/logger.ts';
import { type Config, defaultConfig } from '#protocol/config.ts';
import { StartupError } from '#protocol/errors.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { createServer, type RunningServer } from '../compose.ts';
import { type CommandContext, loadSettings, type Settings } from '../context.ts';
import { createCredentials } from '../credentials.ts';
import type { Policy } from '../flags.ts';

/**
 * The models of a policy as references; the planner is the first model of the tier `deep` where none is named.
 * Errors: one line per model that cannot be used, or cannot delegate.
 */
export function resolveModels(
  policy: Policy,
  registry: ModelRegistry,
): Result<{ readonly planner: string; readonly worker: string | null }, string[]> {
  const problems: string[] = [];
  const resolve = (name: string) => {
    const found = findModel(registry, name);
    if (!found.ok) {
      problems.push(found.error);
      return null;
    }
    if (!registry.isConfigured(registry.findReference(found.value)?.id ?? ''))
      problems.push(`${found.value} cannot be used: its provider has no key`);
    return found.value;
  };
  const planner = policy.planner === null ? registry.modelForTier('deep') : resolve(policy.planner);
  const worker = policy.worker === null ? null : resolve(policy.worker);
  if (policy.planner === null && planner === null)
    problems.push('no model of the tier deep can be used; name the planner with --model');
  if (problems.length === 0 && registry.get(registry.findReference(planner!)?.id ?? '')?.can_delegate === false)
    problems.push(`${planner} cannot plan: its entry in the registry has can_delegate: false`);
  if (problems.length === 0) return ok({ planner: planner!, worker });
  return err(problems);
}

const FILE = 'workload.yaml';

const WorkloadSchema = z.strictObject({
  /** The one message of the planner's turn. */
  prompt: z.string().min(1),
  /** Folder that each run gets a copy of; relative to the workload's. */
  workspace: z.string().min(1).default('workspace'),
  /** Shell command in the copy after the turn; 0 = the task is done. */
  check: z.string().min(1),
  /** What scripted models answer. */
  scenario: z.string().min(1).optional(),
  expect: z
    .strictObject({
      /** Workers that the delegated run must start at least. */
      min_delegate_calls: z.int().min(0).default(0),
    })
    .default({ min_delegate_calls: 0 }),
});

export interface Workload extends Omit<z.infer<typeof WorkloadSchema>, 'scenario'> {
  readonly name: string;
  /** Absolute, as is `scenario`; null = it has none. */
  readonly workspace: string;
  readonly scenario: string | null;
}

/**
 * The workload that the folder is, else those of its sub-folders by name.
 * @returns at least one, or one line per problem
 */
export function readWorkloads(folder: string): Result<Workload[], string[]> {
  let folders: string[];
  try {
    folders = listWorkloadFolders(folder);
  } catch (cause) {
    return err([`${folder}: the folder cannot be read (${(cause as NodeJS.ErrnoException).code})`]);
  }
  if (folders.length === 0) return err([`${folder}: neither it nor a folder in it has a ${FILE}`]);
  const workloads: Workload[] = [];
  const problems: string[] = [];
  for (const each of folders) {
    const read = readWorkload(each);
    if (read.ok) workloads.push(read.value);
    else problems.push(...read.error);
  }
  if (problems.length === 0) return ok(workloads);
  return err(problems);
}

/** The folder itself, else its sub-folders by name. */
function listWorkloadFolders(folder: string): string[] {
  const isWorkload = (one: string) => fs.existsSync(path.join(one, FILE));
  if (isWorkload(folder)) return [folder];
  const names = fs.readdirSync(folder).sort();
  return names.map((name) => path.join(folder, name)).filter(isWorkload);
}

function readWorkload(folder: string): Result<Workload, string[]> {
  const file = path.join(folder, FILE);
  let text: string;
  try {
    text = fs.readFileSync(file, 'utf8');
  } catch (cause) {
    return err([`${file}: cannot be read (${(cause as NodeJS.ErrnoException).code})`]);
  }
  const yaml = readYaml(text, OWN_FILE);
  if (!yaml.ok) return err([`${file}: ${yaml.error}`]);
  const parsed = WorkloadSchema.safeParse(yaml.value);
  if (!parsed.success) {
    const issues = describeIssues(parsed.error, WorkloadSchema);
    return err(issues.map((issue) => `${file}: ${issue.path.join('.') || 'the file'}: ${issue.message}`));
  }
  const { scenario, ...data } = parsed.data;
  const workspace = path.resolve(folder, data.workspace);
  if (!fs.statSync(workspace, { throwIfNoEntry: false })?.isDirectory())
    return err([`${file}: workspace: ${workspace} is not a folder`]);
  const name = path.basename(folder);
  return ok({ ...data, name, workspace, scenario: scenario === undefined ? null : path.resolve(folder, scenario) });
}

const NO_MODEL =
  'no model of a real provider can be used; metis doctor shows what is missing, and --scripted needs no key';

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
  const server = await createServer({ ...options, ...chooseModelSource(models, workload) });
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

function chooseModelSource(models: BenchmarkSettings['models'], { scenario }: Workload) {
  if (models === 'scripted') return { credentials: createCredentials({}), keysFile: '', scenario: scenario! };
  return { credentials: models.credentials, keysFile: models.envFile.path };
}

/** Errors: one line per problem. */
export function readModels(
  context: CommandContext,
  flags: Parameters<typeof loadSettings>[1] & { readonly scripted?: boolean },
): ReturnType<typeof loadSettings> | { readonly ok: true; readonly value: 'scripted' } {
  if (flags.scripted === true) return { ok: true, value: 'scripted' };
  return loadSettings(context, flags);
}
