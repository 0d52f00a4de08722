// `metis config check`: whether the server would accept what it is given, without starting it.
import { StartupError } from '../../kernel/errors.ts';
import { createModelRegistry } from '../../policy/registry/registry.ts';
import type { ConfigFlags } from '../config.ts';
import { type CommandContext, refuse } from '../context.ts';
import { loadPrices } from '../prices.ts';
import { readRegistry } from '../registry-file.ts';
import { checkRoutingFile } from '../routing-file.ts';
import { loadSettings } from '../start.ts';

/** Exit code: 0 when everything that is read at startup is in order, else 1 with one line per problem. */
export async function checkConfig(context: CommandContext, flags: ConfigFlags): Promise<number> {
  const settings = loadSettings(context, flags);
  if (!settings.ok) return refuse(context, settings.error);
  const { config, files, envFile } = settings.value;
  const problems: string[] = envFile.problem === null ? [] : [envFile.problem];
  for (const check of [
    () => {
      const registry = createModelRegistry(readRegistry(config.registry.path), new Set());
      problems.push(...(checkRoutingFile(config.routing.global_path, registry)?.errors ?? []));
    },
    () => loadPrices(config.pricing, context.packageDir),
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
  context.stdout.write(`prices ok: ${config.pricing.tables.join(', ')}\n`);
  return 0;
}
