// `metis doctor`: what a server on this machine would find, one line each, with what to do about it (17 §2).
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { rgPath } from '@vscode/ripgrep';
import { createStyle } from '../../cli/style.ts';
import { StartupError } from '../../kernel/errors.ts';
import { createModelRegistry, type RegistryFile } from '../../policy/registry/registry.ts';
import { inspectDatabase } from '../../store/sqlite/connection/inspect.ts';
import type { ConfigFlags } from '../config.ts';
import { type CommandContext, refuse } from '../context.ts';
import { loadPrices } from '../prices.ts';
import { readRegistry } from '../registry-file.ts';
import { checkRoutingFile } from '../routing-file.ts';
import { loadSettings, type Settings } from '../start.ts';

interface Finding {
  readonly level: 'ok' | 'warning' | 'error';
  readonly text: string;
}
const ok = (text: string): Finding => ({ level: 'ok', text });
const warning = (text: string): Finding => ({ level: 'warning', text });
const problem = (text: string): Finding => ({ level: 'error', text });

/** Exit code: 1 when something would keep the server from starting or from heeding its rules, else 0. */
export async function doctor(context: CommandContext, flags: ConfigFlags): Promise<number> {
  const settings = loadSettings(context, flags);
  if (!settings.ok) return refuse(context, settings.error);
  const findings = [
    dataFolder(settings.value),
    ...database(context, settings.value),
    ...models(context, settings.value),
    ripgrep(),
    ...sandbox(settings.value),
    await port(settings.value),
  ];
  const style = createStyle(context.stdout.isTTY === true && !context.env.NO_COLOR);
  const paint = { ok: style.green, warning: style.yellow, error: style.red };
  for (const { level, text } of findings) context.stdout.write(`${paint[level](level.padEnd(7))}  ${text}\n`);
  return findings.some(({ level }) => level === 'error') ? 1 : 0;
}

function dataFolder({ dataDir, config, envFile }: Settings): Finding {
  if (envFile.problem !== null) return problem(envFile.problem);
  const folder = path.dirname(config.storage.db_path);
  // The folder is made at the first start: then its nearest ancestor decides.
  let existing = folder;
  while (!fs.existsSync(existing)) existing = path.dirname(existing);
  try {
    fs.accessSync(existing, fs.constants.W_OK);
    return ok(`data folder ${dataDir}, database ${config.storage.db_path}`);
  } catch {
    return problem(`${existing} cannot be written; change its rights or set storage.db_path`);
  }
}

function database({ packageDir }: CommandContext, { config }: Settings): Finding[] {
  try {
    inspectDatabase(config.storage.db_path, path.join(packageDir, 'migrations'));
    return [];
  } catch (error) {
    return problemsOf(error);
  }
}

function models(context: CommandContext, settings: Settings): Finding[] {
  const { config, credentials, envFile } = settings;
  try {
    const registry = readRegistry(config.registry.path);
    const prices = loadPrices(config.pricing, context.packageDir);
    const providers = [...registry.adapters]
      .filter(([, adapter]) => adapter.type !== 'scripted')
      .map(([id, adapter]) =>
        credentials.forAdapter(id, adapter) === null
          ? warning(`${id}: no key; set ${credentials.keyName(id, adapter)} or add it to ${envFile.path}`)
          : ok(`${id}: key found`),
      );
    const unpriced = registry.models.filter((model) => !prices.has(model.pricing_id)).map((model) => model.id);
    return [
      ...providers,
      unpriced.length === 0
        ? ok(`all ${registry.models.length} models of ${config.registry.path} have prices (${prices.version})`)
        : warning(`no price for ${unpriced.join(', ')}; add a table with them to pricing.tables`),
      ...routing(registry, settings),
    ];
  } catch (error) {
    return problemsOf(error);
  }
}

function routing(file: RegistryFile, { config, credentials }: Settings): Finding[] {
  const { global_path } = config.routing;
  const usable = [...file.adapters].filter(
    ([id, adapter]) => adapter.type === 'scripted' || credentials.forAdapter(id, adapter) !== null,
  );
  const registry = createModelRegistry(file, new Set(usable.map(([id]) => id)));
  const found = checkRoutingFile(global_path, registry);
  if (found === null) return [];
  const { errors, warnings } = found;
  return errors.length + warnings.length === 0
    ? [ok(`routing rules ${global_path}`)]
    : [...errors.map(problem), ...warnings.map(warning)];
}

function problemsOf(error: unknown): Finding[] {
  if (error instanceof StartupError) return error.problems.map(problem);
  throw error;
}

function ripgrep(): Finding {
  const run = spawnSync(rgPath, ['--version'], { encoding: 'utf8' });
  if (run.status === 0) return ok(`ripgrep ${run.stdout.split(/\s/)[1]}`);
  return warning('ripgrep does not run, so the grep tool fails; reinstall with npm ci');
}

function sandbox({ config, credentials }: Settings): Finding[] {
  if (config.tools.shell.sandbox !== 'required') {
    if (credentials.secrets.length === 0) return [];
    return [
      warning(
        'commands of the shell tool run without a sandbox: one that is approved can read the keys of the server; with bubblewrap installed set tools.shell.sandbox to "required"',
      ),
    ];
  }
  const run = spawnSync('bwrap', ['--version']);
  return run.status === 0
    ? [ok('bubblewrap is installed')]
    : [problem('tools.shell.sandbox is "required" but bwrap does not run; install bubblewrap or set it to "off"')];
}

function port({ config }: Settings): Promise<Finding> {
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
