// `metis prices update` and `metis models update`: checks a list, shows what it changes, and writes it into the data folder (22 §5).
import fs from 'node:fs';
import { toPrintable } from '#cli/printable-text.ts';
import { printMessage } from '#cli/terminal.ts';
import { isConfirmed } from '#cli/trust.ts';
import { FETCHED_LIST } from '#core/policy/parsing/text-limits.ts';
import { isMapping, readYaml } from '#core/policy/parsing/yaml.ts';
import { formatPriceTable, parsePriceTable } from '#core/policy/pricing/price-file.ts';
import { comparePrices, nameUpdate } from '#core/policy/pricing/price-update.ts';
import { parseRegistry, type RegistryFile } from '#core/policy/registry/model-registry.ts';
import { isoTime, systemClock } from '#protocol/clock.ts';
import { StartupError } from '#protocol/errors.ts';
import { canonicalJson } from '#protocol/text/canonical-json.ts';
import type { ConfigFlags } from '../config.ts';
import { type CommandContext, loadSettings, refuse, type Settings } from '../context.ts';
import { getShippedRegistry, loadPrices, readRegistry } from '../models.ts';
import { getUpdateFile, layModels, type UpdateKind, writeUpdate } from '../update-files.ts';
import { fetchList } from './fetch-list.ts';

const EXIT_USAGE = 2;
const EXIT_UNCHANGED = 3;
/** Names of one kind of change that are printed. */
const MAX_NAMES = 40;
const DAY_MS = 86_400_000;

export interface UpdateFlags extends ConfigFlags {
  readonly from?: string;
  readonly yes?: boolean;
}

/** A kind of change with the models that it concerns. */
type Changes = readonly (readonly [what: string, ids: readonly string[]])[];

/** Exit code: 0 written, 1 the table is wrong or cannot be read, 2 not confirmed, 3 nothing would change. */
export async function updatePrices(context: CommandContext, { from, yes, ...flags }: UpdateFlags): Promise<number> {
  return run(context, flags, async (settings) => {
    const { config, dataDir } = settings;
    const place = from ?? config.pricing.update_url;
    if (place === null) return refuseUsage(context, 'name a table with --from, or set pricing.update_url');
    if (!config.pricing.tables.includes('builtin'))
      return refuse(context, ['pricing.tables does not list builtin, so an update would have no effect']);
    const fetched = await fetchList(context, place);
    if (!fetched.ok) return refuse(context, [fetched.error]);
    const parsed = parsePriceTable(fetched.value.text, fetched.value.name, FETCHED_LIST);
    if (!parsed.ok) return refuse(context, parsed.error);
    const { name } = fetched.value;
    const update = nameUpdate(parsed.value, formatToday());
    if (isInFuture(update.imported_on)) return refuseFuture(context, name, 'imported_on', update.imported_on);
    const before = readPresent(
      () => loadPrices(config.pricing, context.packageDir, { dataDir }),
      () => loadPrices(config.pricing, context.packageDir, { dataDir, update: null }),
    );
    const after = loadPrices(config.pricing, context.packageDir, { dataDir, update });
    const found = comparePrices(before.models, after.models);
    const changes: Changes = [
      ['added', found.added],
      ['removed', found.removed],
      ['more expensive', found.costlier],
      ['cheaper', found.cheaper],
      ['changed', found.changed],
    ];
    const isNewer = (after.importedOn ?? '') > (before.importedOn ?? '');
    if (before.contentHash === after.contentHash && !isNewer)
      return reportUnchanged(context, `the prices are those of ${name} already`);
    const note = `The prices would be of ${after.importedOn}, those now are of ${before.importedOn ?? 'an unknown day'}.`;
    return confirmAndWrite(context, { kind: 'prices', dataDir, text: formatPriceTable(update), yes, changes, note });
  });
}

/** Exit codes as above. */
export async function updateModels(context: CommandContext, { from, yes, ...flags }: UpdateFlags): Promise<number> {
  return run(context, flags, async ({ config, dataDir }) => {
    if (from === undefined) return refuseUsage(context, 'name a registry with --from');
    const shipped = getShippedRegistry(context.packageDir);
    if (config.registry.path !== shipped)
      return refuse(context, [
        `${config.registry.path} replaces the shipped registry, so an update would have no effect`,
      ]);
    const fetched = await fetchList(context, from);
    if (!fetched.ok) return refuse(context, [fetched.error]);
    const { name } = fetched.value;
    const yaml = readYaml(fetched.value.text, FETCHED_LIST);
    if (!yaml.ok) return refuse(context, [`${name}: ${yaml.error}`]);
    if (!isMapping(yaml.value) || !isMapping(yaml.value.models))
      return refuse(context, [`${name}: must be a mapping with the key models`]);
    const { models, updated_on = formatToday() } = yaml.value;
    if (isInFuture(updated_on)) return refuseFuture(context, name, 'updated_on', updated_on);
    const text = `${JSON.stringify({ updated_on, models }, null, 2)}\n`;
    const laid = parseRegistry(layModels(fs.readFileSync(shipped, 'utf8'), { file: name, text }), shipped);
    if (!laid.ok)
      return refuse(
        context,
        laid.error.map((line) => line.replace(shipped, name)),
      );
    const before = readPresent(
      () => readRegistry(shipped, context.packageDir, dataDir),
      () => readRegistry(shipped, context.packageDir, null),
    );
    const changes = compareRegistries(before, laid.value);
    if (changes.every(([, ids]) => ids.length === 0))
      return reportUnchanged(context, `the models are those of ${name} already`);
    return confirmAndWrite(context, { kind: 'models', dataDir, text, yes, changes, note: null });
  });
}

/** An update that is broken is replaced by another one: without it is what the server would have. */
function readPresent<T>(read: () => T, readWithout: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof StartupError)) throw error;
    return readWithout();
  }
}

function compareRegistries(before: RegistryFile, after: RegistryFile): Changes {
  const old = new Map(before.models.map((model) => [model.id, canonicalJson(model)]));
  const ids = new Set(after.models.map(({ id }) => id));
  const order = (file: RegistryFile) => file.models.map(({ id }) => id).join('\n');
  const changed = after.models.filter((model) => old.has(model.id) && old.get(model.id) !== canonicalJson(model));
  const added = after.models.filter(({ id }) => !old.has(id)).map(({ id }) => id);
  const removed = [...old.keys()].filter((id) => !ids.has(id));
  const isReordered = added.length + removed.length === 0 && order(before) !== order(after);
  return [
    ['added', added],
    ['removed', removed],
    ['changed', changed.map(({ id }) => id)],
    ['in another order, which tiers choose by', isReordered ? [...ids] : []],
  ];
}

async function run(
  context: CommandContext,
  flags: ConfigFlags,
  body: (settings: Settings) => Promise<number>,
): Promise<number> {
  const settings = loadSettings(context, flags);
  if (!settings.ok) return refuse(context, settings.error);
  try {
    return await body(settings.value);
  } catch (error) {
    if (error instanceof StartupError) return refuse(context, error.problems);
    throw error;
  }
}

function formatToday(): string {
  return isoTime(systemClock.now()).slice(0, 10);
}

/** A day of the future would win over every list to come. A publisher's day may be ahead of UTC's. */
function isInFuture(day: unknown): day is string {
  return typeof day === 'string' && day > isoTime(systemClock.now() + DAY_MS).slice(0, 10);
}

function refuseFuture(context: CommandContext, name: string, field: string, day: string): number {
  return refuse(context, [`${name}: ${field}: ${day} is in the future; correct it, or the clock of this machine`]);
}

function refuseUsage(context: CommandContext, line: string): number {
  refuse(context, [line]);
  return EXIT_USAGE;
}

function reportUnchanged(context: CommandContext, line: string): number {
  context.stdout.write(`${toPrintable(line)}\n`);
  return EXIT_UNCHANGED;
}

async function confirmAndWrite(
  context: CommandContext,
  update: {
    readonly kind: UpdateKind;
    readonly dataDir: string;
    readonly text: string;
    readonly yes: boolean | undefined;
    readonly changes: Changes;
    readonly note: string | null;
  },
): Promise<number> {
  const { kind, dataDir, text, yes, changes, note } = update;
  for (const [what, ids] of changes) {
    if (ids.length === 0) continue;
    const more = ids.length > MAX_NAMES ? `, and ${ids.length - MAX_NAMES} more` : '';
    context.stdout.write(`${what}: ${toPrintable(ids.slice(0, MAX_NAMES).join(', '))}${more}\n`);
  }
  if (note !== null) context.stdout.write(`${toPrintable(note)}\n`);
  const file = getUpdateFile(dataDir, kind);
  if (yes !== true) {
    if (context.stdin.isTTY !== true) return refuseUsage(context, 'nothing was changed: without a terminal, add --yes');
    if (!(await isConfirmed(context, `Write ${file}? yes or no: `))) return refuseUsage(context, 'nothing was changed');
  }
  writeUpdate(dataDir, kind, text);
  printMessage(context.stderr, `${file} is written; a running server takes it at SIGHUP, any other at its start`);
  return 0;
}
