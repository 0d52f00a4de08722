// `metis config check`: whether the server would accept what it is given, without starting it.
import { StartupError } from '#protocol/errors.ts';
import type { ConfigFlags } from '../config.ts';
import { type CommandContext, refuse } from '../context.ts';
import { resolveReceiverKeys } from '../notify/notify.ts';
import { loadPrices } from '../prices.ts';
import { createUsableRegistry, readRegistry } from '../registry-file.ts';
import { checkDefaultModels, checkRoutingFile } from '../routing-file.ts';
import { loadSettings } from '../start.ts';

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
