// `metis doctor` and `metis config check`: what would keep a server from starting, one line each, and what to do (17 §2).

import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { rgPath } from '@vscode/ripgrep';
import { toPrintable } from '#cli/printable-text.ts';
import { createStyle, wrapWords } from '#cli/terminal.ts';
import { describeStaleRates, type PriceTable } from '#core/policy/pricing/price-table.ts';
import { isCheaper } from '#core/policy/pricing/price-update.ts';
import { keyAdvice, usableAdapters } from '#core/policy/registry/adapter-config.ts';
import type { RegistryFile } from '#core/policy/registry/model-registry.ts';
import { systemClock } from '#protocol/clock.ts';
import { StartupError } from '#protocol/errors.ts';
import { openToOthers } from '#store/sqlite/connection/database-file.ts';
import { inspectDatabase } from '#store/sqlite/connection/open.ts';
import { listUsedModels } from '#store/sqlite/connection/used-models.ts';
import type { ConfigFlags } from '../config.ts';
import { type CommandContext, getConfiguredServer, loadSettings, refuse, type Settings } from '../context.ts';
import { findServer } from '../find-server.ts';
import {
  checkDefaultModels,
  checkRoutingFile,
  createUsableRegistry,
  findOwnAddresses,
  loadPrices,
  readRegistry,
} from '../models.ts';
import { resolveReceiverKeys } from '../notify.ts';
import { hideQuotedCredentials } from '../url.ts';
import {
  canSandbox,
  checkGitVersion,
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
    ...(await checkModels(context, settings.value)),
    ...(online === true ? await tryKeys(context, settings.value) : []),
    checkRipgrep(),
    ...(await checkGit(context, settings.value)),
    ...checkSandbox(context, settings.value),
    ...checkUser(),
    ...checkMcpServers(settings.value.config, context.env.PATH).map((line) => toFinding(line, warning)),
    ...checkWebhooks(settings.value.config, settings.value.credentials).map((line) => toFinding(line, problem)),
    await checkServer(context, settings.value, flags),
  ];
  const style = createStyle(context.stdout.isTTY === true && !context.env.NO_COLOR);
  const paint = { ok: style.green, warning: style.yellow, error: style.red };
  const width = context.stdout.isTTY === true ? (context.stdout.columns || 80) - 1 : Number.POSITIVE_INFINITY;
  for (const { level, text } of findings) {
    const lines = wrapWords(toPrintable(text), width - LEVEL_WIDTH).join(`\n${' '.repeat(LEVEL_WIDTH)}`);
    context.stdout.write(`${paint[level](level.padEnd(LEVEL_WIDTH))}${lines}\n`);
  }
  if (findings.some(({ level }) => level === 'error')) return 1;
  return 0;
}

function checkUser(): Finding[] {
  if (isRoot()) return [warning(RUNS_AS_ROOT)];
  return [];
}

interface UsableLine {
  readonly usable: boolean;
  readonly text: string;
}

function toFinding({ usable, text }: UsableLine, otherwise: (text: string) => Finding): Finding {
  if (usable) return ok(text);
  return otherwise(text);
}

function checkDataFolder({ dataDir, config, envFile }: Settings): Finding[] {
  if (envFile.problem !== null) return [problem(envFile.problem)];
  if (fs.statSync(dataDir, { throwIfNoEntry: false })?.isDirectory() === false)
    return [problem(`the data folder ${dataDir} is a file; name a folder with --data`)];
  const { db_path } = config.storage;
  const cluster = config.database.url !== null;
  const folder = cluster ? dataDir : path.dirname(db_path);
  const cure = folder === dataDir ? 'name another with --data' : 'set storage.db_path';
  // The folder is made at the first start: then its nearest ancestor decides.
  let existing = folder;
  while (!fs.existsSync(existing)) existing = path.dirname(existing);
  const fault = findFolderFault(existing);
  if (fault !== null && existing === folder) return [problem(`${folder} ${fault}; change its rights or ${cure}`)];
  const name = folder === dataDir ? 'data folder' : 'folder of the database';
  if (fault !== null) return [problem(`the ${name} ${folder} cannot be made, as ${existing} ${fault}; ${cure}`)];
  const remarks = envFile.remarks.map(warning);
  if (cluster) return [ok(`data folder ${dataDir}`), ...remarks];
  return [ok(`data folder ${dataDir}, database ${db_path}`), ...checkRights(folder, db_path), ...remarks];
}

/** Why nothing can be made in what is there; null = it can. */
function findFolderFault(place: string): string | null {
  if (!fs.statSync(place).isDirectory()) return 'is a file';
  try {
    fs.accessSync(place, fs.constants.W_OK);
    return null;
  } catch {
    return 'cannot be written';
  }
}

/** The database holds whole conversations, so only its owner should read it. */
function checkRights(folder: string, database: string): Finding[] {
  const found: Finding[] = [];
  const mode = fs.statSync(folder, { throwIfNoEntry: false })?.mode ?? 0;
  if (process.platform !== 'win32' && (mode & 0o077) !== 0) {
    const octal = (mode & 0o777).toString(8).padStart(4, '0');
    found.push(warning(`others may look into ${folder} (mode ${octal}); run: chmod 700 ${folder}`));
  }
  const open = openToOthers(database);
  if (open.length > 0) found.push(warning(`others may read the database; run: chmod 600 ${open.join(' ')}`));
  return found;
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

async function checkModels(context: CommandContext, settings: Settings): Promise<readonly Finding[]> {
  const { config } = settings;
  try {
    const registry = readRegistry(config.registry.path, context.packageDir, settings.dataDir);
    const prices = loadPrices(config.pricing, context.packageDir, settings);
    return [
      ...checkKeys(registry, settings),
      ...findOwnAddresses(registry.adapters, settings.credentials, config.server).map(problem),
      checkPrices(registry, prices, config.registry.path),
      ...checkAge(prices),
      ...checkSuccessors(registry, prices, new Set(await readUsedModels(settings))),
      ...checkRouting(registry, settings),
    ];
  } catch (error) {
    return toFindings(error);
  }
}

function checkPrices({ models }: RegistryFile, prices: PriceTable, file: string): Finding {
  const unpriced = models.filter((model) => !prices.has(model.pricing_id)).map((model) => model.id);
  if (unpriced.length === 0) return ok(`${describePriced(models.length, file)} (${prices.version})`);
  return warning(`no price for ${unpriced.join(', ')}; add a table with them to pricing.tables`);
}

function describePriced(count: number, file: string): string {
  if (count === 1) return `the one model of ${file} has a price`;
  return `all ${count} models of ${file} have prices`;
}

function checkAge({ importedOn }: PriceTable): Finding[] {
  const stale = describeStaleRates(importedOn, systemClock.now());
  if (stale === null) return [];
  return [warning(stale)];
}

const USED_DAYS = 30;
const DAY_MS = 86_400_000;

/** Models of the last 30 days that cost more than their successor. */
function checkSuccessors({ models }: RegistryFile, prices: PriceTable, used: ReadonlySet<string>): Finding[] {
  const priceRows = new Map(models.map((model) => [model.id, model.pricing_id]));
  return models.flatMap(({ id, pricing_id, superseded_by: newer }) => {
    if (newer === null || !used.has(id)) return [];
    if (!isCheaper(prices.models, pricing_id, priceRows.get(newer) ?? newer)) return [];
    return [warning(`${id} was used in the last ${USED_DAYS} days; its successor ${newer} costs less`)];
  });
}

/** A database with a fault has a line of its own. */
async function readUsedModels({ config }: Settings): Promise<readonly string[]> {
  const { url } = config.database;
  const since = systemClock.now() - USED_DAYS * DAY_MS;
  if (url !== null) return (await import('../storage/cluster-commands.ts')).readClusterModels(url, since);
  try {
    return listUsedModels(config.storage.db_path, since);
  } catch {
    return [];
  }
}

/** One provider is enough. A provider with an address in the registry is meant to be used. */
function checkKeys({ adapters }: RegistryFile, { credentials, envFile }: Settings): Finding[] {
  const real = [...adapters]
    .filter(([, adapter]) => adapter.type !== 'scripted')
    .map(([id, adapter]) => ({ id, adapter, found: credentials.forAdapter(id, adapter) }));
  const none = real.every(({ found }) => found === null);
  const findings = real.map(({ id, adapter, found }) => {
    const name = credentials.keyName(id, adapter);
    if (found === null) {
      if (adapter.base_url !== null) return warning(`${id}: no key; ${keyAdvice(adapter, name, envFile.path)}`);
      return ok(`${id}: not used, ${name} is not set`);
    }
    if (found.key === null)
      return ok(`${id}: no key, and none is needed at ${hideQuotedCredentials(found.base_url ?? '')}`);
    return ok(`${id}: key found`);
  });
  const usable = usableAdapters(adapters, (id, adapter) => credentials.forAdapter(id, adapter) !== null);
  if (usable.size === 0) return [...findings, problem('no adapter can be used, so every message would be refused')];
  if (!none) return findings;
  if (real.length === 0) return [warning('scripted models answer: the registry has no other adapter')];
  // One hint for all of them: on a fresh machine nothing is wrong.
  const names = real.filter(({ adapter }) => adapter.base_url === null);
  const keys = names.map(({ id, adapter }) => credentials.keyName(id, adapter)).join(' or ');
  const hint = `no provider key, so simulated models answer; set ${keys}, or write it to ${envFile.path}, for real ones`;
  return [...findings.filter(({ level }) => level !== 'ok'), warning(hint)];
}

async function tryKeys(context: CommandContext, settings: Settings): Promise<readonly Finding[]> {
  try {
    return await checkKeysOnline(
      context,
      readRegistry(settings.config.registry.path, context.packageDir, settings.dataDir),
      settings,
    );
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
  const findings = [...errors.map(problem), ...warnings.map(warning)];
  if (found === null || found.errors.length + found.warnings.length > 0) return findings;
  return [ok(`routing rules ${config.routing.global_path}`), ...findings];
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

/** Git is optional until workers are to have worktrees. */
async function checkGit({ env }: CommandContext, { config }: Settings): Promise<Finding[]> {
  const { isolation } = config.delegation;
  const found = await checkGitVersion(env);
  const consequence = 'workers cannot have worktrees (`isolation: "worktree"`)';
  if ('obstacle' in found) return [(isolation === 'worktree' ? problem : warning)(`${found.obstacle}: ${consequence}`)];
  const usable = ok(`git ${found.version}: workers can have worktrees`);
  if (isolation === 'shared' || config.tools.shell.sandbox === 'required') return [usable];
  return [
    usable,
    warning(
      `delegation.isolation is "${isolation}", but commands run without a sandbox: one can change the workspace of the planner by an absolute path`,
    ),
  ];
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
  if (canSandbox(env)) return [ok('bubblewrap works: commands of the shell tool run in a sandbox')];
  return [problem(NO_SANDBOX)];
}

/** A server of this data folder that answers is no obstacle: the port is its own. */
async function checkServer(context: CommandContext, settings: Settings, flags: ConfigFlags): Promise<Finding> {
  const configured = getConfiguredServer(context, settings, {});
  const running = await findServer(settings, configured, flags.data !== undefined);
  if (running !== null) return ok(`the server answers at ${running.baseUrl}`);
  return checkPort(settings);
}

function checkPort({ config }: Settings): Promise<Finding> {
  const { host, port: number } = config.server;
  return new Promise((resolve) => {
    const probe = net.createServer();
    probe.once('error', (error: NodeJS.ErrnoException) => {
      const about = `port ${number} on ${host}`;
      const cure = 'choose another with --port';
      if (error.code === 'EADDRINUSE') resolve(warning(`${about} is taken by another program; ${cure}`));
      else resolve(problem(`${about} cannot be bound (${error.code}); ${cure}`));
    });
    probe.listen(number, host, () => probe.close(() => resolve(ok(`port ${number} on ${host} is free`))));
  });
}

/** Exit code: 0 when everything that is read at startup is in order, else 1 with one line per problem. */
export async function checkConfig(context: CommandContext, flags: ConfigFlags): Promise<number> {
  const settings = loadSettings(context, flags);
  if (!settings.ok) return refuse(context, settings.error);
  const { config, credentials, files, envFile } = settings.value;
  const problems: string[] = [];
  if (envFile.problem !== null) problems.push(envFile.problem);
  const warnings: string[] = [...envFile.remarks];
  for (const check of [
    () => {
      const registry = createUsableRegistry(
        readRegistry(config.registry.path, context.packageDir, settings.value.dataDir),
        credentials,
      );
      for (const { errors, warnings: found } of [
        checkDefaultModels(config, registry),
        checkRoutingFile(config.routing.global_path, registry) ?? { errors: [], warnings: [] },
      ]) {
        problems.push(...errors);
        warnings.push(...found);
      }
    },
    () => loadPrices(config.pricing, context.packageDir, settings.value),
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
  const read = files.join(', ') || 'built-in defaults only';
  context.stdout.write(`configuration ok: ${read}\nregistry ok: ${config.registry.path}\n`);
  for (const line of warnings) context.stdout.write(`warning: ${line}\n`);
  context.stdout.write(`prices ok: ${config.pricing.tables.join(', ')}\n`);
  return 0;
}
