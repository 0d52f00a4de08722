// `metis doctor` and `metis config check`: what would keep a server from starting, one line each, and what to do (17 §2).

import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { rgPath } from '@vscode/ripgrep';
import { createStyle, toPrintable, wrapWords } from '#cli/terminal.ts';
import { keyAdvice, usableAdapters } from '#core/policy/registry/adapter-config.ts';
import type { RegistryFile } from '#core/policy/registry/model-registry.ts';
import { StartupError } from '#protocol/errors.ts';
import { openToOthers } from '#store/sqlite/connection/database-file.ts';
import { inspectDatabase } from '#store/sqlite/connection/open.ts';
import type { ConfigFlags } from '../config.ts';
import { type CommandContext, loadSettings, refuse, type Settings } from '../context.ts';
import {
  checkDefaultModels,
  checkRoutingFile,
  createUsableRegistry,
  findOwnAddresses,
  loadPrices,
  readRegistry,
} from '../models.ts';
import { resolveReceiverKeys } from '../notify.ts';
import {
  canSandbox,
  checkKeysOnline,
  checkMcpServers,
  checkWebhooks,
  isRoot,
  NO_SANDBOX,
  RUNS_AS_ROOT,
} from './doctor-checks.ts';

interface Finding {
  readonly level: 'ok' | 'warning' | 'error';
  readonly text: string;
}
const LEVEL_WIDTH = 9;
const ok = (text: string): Finding => ({ level: 'ok', text });
const warning = (text: string): Finding => ({ level: 'warning', text });
const problem = (text: string): Finding => ({ level: 'error', text });

export interface DoctorFlags extends ConfigFlags {
  /** Try every key with its provider. */
  readonly online?: boolean;
}

/** Exit code: 1 when something would keep the server from starting, from answering or from heeding its rules, else 0. */
export async function doctor(context: CommandContext, { online, ...flags }: DoctorFlags): Promise<number> {
  const settings = loadSettings(context, flags);
  if (!settings.ok) return refuse(context, settings.error);
  const findings = [
    ...settings.value.warnings.map(warning),
    ...checkDataFolder(settings.value),
    ...(await checkDatabase(context, settings.value)),
    ...checkModels(context, settings.value),
    ...(online === true ? await tryKeys(context, settings.value) : []),
    checkRipgrep(),
    ...checkSandbox(context, settings.value),
    ...(isRoot() ? [warning(RUNS_AS_ROOT)] : []),
    ...checkMcpServers(settings.value.config, context.env.PATH).map(({ usable, text }) =>
      (usable ? ok : warning)(text),
    ),
    ...checkWebhooks(settings.value.config, settings.value.credentials).map(({ usable, text }) =>
      (usable ? ok : problem)(text),
    ),
    await checkPort(settings.value),
  ];
  const style = createStyle(context.stdout.isTTY === true && !context.env.NO_COLOR);
  const paint = { ok: style.green, warning: style.yellow, error: style.red };
  const width = context.stdout.isTTY === true ? (context.stdout.columns || 80) - 1 : Number.POSITIVE_INFINITY;
  for (const { level, text } of findings) {
    const lines = wrapWords(toPrintable(text), width - LEVEL_WIDTH).join(`\n${' '.repeat(LEVEL_WIDTH)}`);
    context.stdout.write(`${paint[level](level.padEnd(LEVEL_WIDTH))}${lines}\n`);
  }
  return findings.some(({ level }) => level === 'error') ? 1 : 0;
}

function checkDataFolder({ dataDir, config, envFile }: Settings): Finding[] {
  if (envFile.problem !== null) return [problem(envFile.problem)];
  if (fs.statSync(dataDir, { throwIfNoEntry: false })?.isDirectory() === false)
    return [problem(`the data folder ${dataDir} is a file; name a folder with --data`)];
  const cluster = config.database.url !== null;
  const folder = cluster ? dataDir : path.dirname(config.storage.db_path);
  // The folder is made at the first start: then its nearest ancestor decides.
  let existing = folder;
  while (!fs.existsSync(existing)) existing = path.dirname(existing);
  try {
    fs.accessSync(existing, fs.constants.W_OK);
  } catch {
    return [
      problem(
        `${existing} cannot be written; change its rights or ${cluster ? 'name another with --data' : 'set storage.db_path'}`,
      ),
    ];
  }
  return [
    ok(cluster ? `data folder ${dataDir}` : `data folder ${dataDir}, database ${config.storage.db_path}`),
    ...(cluster ? [] : checkRights(folder, config.storage.db_path)),
    ...envFile.remarks.map(warning),
  ];
}

/** The database holds whole conversations, so only its owner should read it. */
function checkRights(folder: string, database: string): Finding[] {
  const open = openToOthers(database);
  const mode = fs.statSync(folder, { throwIfNoEntry: false })?.mode ?? 0;
  return [
    ...(process.platform !== 'win32' && (mode & 0o077) !== 0
      ? [
          warning(
            `others may look into ${folder} (mode ${(mode & 0o777).toString(8).padStart(4, '0')}); run: chmod 700 ${folder}`,
          ),
        ]
      : []),
    ...(open.length > 0 ? [warning(`others may read the database; run: chmod 600 ${open.join(' ')}`)] : []),
  ];
}

async function checkDatabase({ packageDir }: CommandContext, { config }: Settings): Promise<readonly Finding[]> {
  const { url } = config.database;
  if (url !== null) return (await import('../storage/cluster-commands.ts')).checkCluster(url, config, packageDir);
  try {
    inspectDatabase(config.storage.db_path, path.join(packageDir, 'migrations'));
    return [];
  } catch (error) {
    return toFindings(error);
  }
}

function checkModels(context: CommandContext, settings: Settings): Finding[] {
  const { config } = settings;
  try {
    const registry = readRegistry(config.registry.path, context.packageDir);
    const prices = loadPrices(config.pricing, context.packageDir);
    const unpriced = registry.models.filter((model) => !prices.has(model.pricing_id)).map((model) => model.id);
    return [
      ...checkKeys(registry, settings),
      ...findOwnAddresses(registry.adapters, settings.credentials, config.server).map(problem),
      unpriced.length === 0
        ? ok(`${describePriced(registry.models.length, config.registry.path)} (${prices.version})`)
        : warning(`no price for ${unpriced.join(', ')}; add a table with them to pricing.tables`),
      ...checkRouting(registry, settings),
    ];
  } catch (error) {
    return toFindings(error);
  }
}

function describePriced(count: number, file: string): string {
  return count === 1 ? `the one model of ${file} has a price` : `all ${count} models of ${file} have prices`;
}

/** One provider is enough. A provider with an address in the registry is meant to be used. */
function checkKeys({ adapters }: RegistryFile, { credentials, envFile }: Settings): Finding[] {
  const real = [...adapters]
    .filter(([, adapter]) => adapter.type !== 'scripted')
    .map(([id, adapter]) => ({ id, adapter, found: credentials.forAdapter(id, adapter) }));
  const none = real.every(({ found }) => found === null);
  const findings = real.map(({ id, adapter, found }) => {
    const name = credentials.keyName(id, adapter);
    if (found === null)
      return none || adapter.base_url !== null
        ? warning(`${id}: no key; ${keyAdvice(adapter, name, envFile.path)}`)
        : ok(`${id}: not used, ${name} is not set`);
    return ok(found.key === null ? `${id}: no key, and none is needed at ${found.base_url}` : `${id}: key found`);
  });
  const usable = usableAdapters(adapters, (id, adapter) => credentials.forAdapter(id, adapter) !== null);
  if (usable.size === 0) return [...findings, problem('no adapter can be used, so every message would be refused')];
  return none ? [...findings, warning('no provider can be used, so scripted models will answer')] : findings;
}

async function tryKeys(context: CommandContext, settings: Settings): Promise<readonly Finding[]> {
  try {
    return await checkKeysOnline(context, readRegistry(settings.config.registry.path, context.packageDir), settings);
  } catch (error) {
    // A registry that cannot be read has its own line.
    return toFindings(error);
  }
}

function checkRouting(file: RegistryFile, { config, credentials }: Settings): Finding[] {
  const registry = createUsableRegistry(file, credentials);
  const byDefault = checkDefaultModels(config, registry);
  const found = checkRoutingFile(config.routing.global_path, registry);
  const errors = [...byDefault.errors, ...(found?.errors ?? [])];
  const warnings = [...byDefault.warnings, ...(found?.warnings ?? [])];
  const inOrder = found !== null && found.errors.length + found.warnings.length === 0;
  return [
    ...(inOrder ? [ok(`routing rules ${config.routing.global_path}`)] : []),
    ...errors.map(problem),
    ...warnings.map(warning),
  ];
}

function toFindings(error: unknown): Finding[] {
  if (error instanceof StartupError) return error.problems.map(problem);
  throw error;
}

function checkRipgrep(): Finding {
  const run = spawnSync(rgPath, ['--version'], { encoding: 'utf8' });
  if (run.status === 0) return ok(`ripgrep ${run.stdout.split(/\s/)[1]}`);
  return warning('ripgrep does not run, so the grep tool fails; reinstall with npm ci');
}

function checkSandbox({ env }: CommandContext, { config, credentials }: Settings): Finding[] {
  if (config.tools.shell.sandbox !== 'required') {
    if (credentials.secrets.length === 0) return [];
    return [
      warning(
        'commands of the shell tool run without a sandbox: one that is approved can read the keys of the server; with bubblewrap installed set tools.shell.sandbox to "required"',
      ),
    ];
  }
  return canSandbox(env)
    ? [ok('bubblewrap works: commands of the shell tool run in a sandbox')]
    : [problem(NO_SANDBOX)];
}

function checkPort({ config }: Settings): Promise<Finding> {
  const { host, port: number } = config.server;
  return new Promise((resolve) => {
    const probe = net.createServer();
    probe.once('error', (error: NodeJS.ErrnoException) => {
      const taken = error.code === 'EADDRINUSE';
      const why = taken ? 'is taken, perhaps by a running server' : `cannot be bound (${error.code})`;
      resolve((taken ? warning : problem)(`port ${number} on ${host} ${why}; choose another with --port`));
    });
    probe.listen(number, host, () => probe.close(() => resolve(ok(`port ${number} on ${host} is free`))));
  });
}

/** Exit code: 0 when everything that is read at startup is in order, else 1 with one line per problem. */
export async function checkConfig(context: CommandContext, flags: ConfigFlags): Promise<number> {
  const settings = loadSettings(context, flags);
  if (!settings.ok) return refuse(context, settings.error);
  const { config, credentials, files, envFile } = settings.value;
  const problems: string[] = envFile.problem === null ? [] : [envFile.problem];
  const warnings: string[] = [...envFile.remarks];
  for (const check of [
    () => {
      const registry = createUsableRegistry(readRegistry(config.registry.path, context.packageDir), credentials);
      for (const { errors, warnings: found } of [
        checkDefaultModels(config, registry),
        checkRoutingFile(config.routing.global_path, registry) ?? { errors: [], warnings: [] },
      ]) {
        problems.push(...errors);
        warnings.push(...found);
      }
    },
    () => loadPrices(config.pricing, context.packageDir),
    () => resolveReceiverKeys(config.notify, credentials),
  ]) {
    try {
      check();
    } catch (error) {
      if (!(error instanceof StartupError)) throw error;
      problems.push(...error.problems);
    }
  }
  if (problems.length > 0) return refuse(context, problems);
  const read = files.length > 0 ? files.join(', ') : 'built-in defaults only';
  context.stdout.write(`configuration ok: ${read}\nregistry ok: ${config.registry.path}\n`);
  for (const line of warnings) context.stdout.write(`warning: ${line}\n`);
  context.stdout.write(`prices ok: ${config.pricing.tables.join(', ')}\n`);
  return 0;
}
