// `metis reconcile`: what providers report that they billed, beside the ledger of a server or a data folder; it only reads (22 §6).
import fs from 'node:fs';
import path from 'node:path';
import { toJsonLine, toPrintable } from '#cli/printable-text.ts';
import { parseSinceTime } from '#cli/since-time.ts';
import {
  askServer,
  type Column,
  createTerminalStyle,
  formatDollars,
  getTableWidth,
  layOutTable,
  printMessage,
  type ServerFlags,
} from '#cli/terminal.ts';
import { createMetisClient } from '#client/client.ts';
import { type Comparison, compareBills, type Difference, findDays } from '#core/policy/reconcile/compare-bill.ts';
import { EXPORT_FILE } from '#core/policy/reconcile/export-text.ts';
import { type Export, readExport } from '#core/policy/reconcile/read-export.ts';
import type { LedgerDay, TimeWindow } from '#protocol/analytics.ts';
import { isoTime } from '#protocol/clock.ts';
import { StartupError } from '#protocol/errors.ts';
import { fromPusd } from '#protocol/money.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { sha256Hex } from '#protocol/text/canonical-json.ts';
import { missingMigrations } from '#store/sqlite/connection/migrate.ts';
import { databaseFault, openReader } from '#store/sqlite/connection/open.ts';
import { createAnalytics } from '#store/sqlite/report/analytics.ts';
import { type CommandContext, loadSettings, refuse, type Settings } from '../context.ts';
import { startLog } from '../log.ts';
import { readLimited } from './fetch-list.ts';

/** A file that is no export, or a ledger that cannot be read: nothing was compared. */
const EXIT_NOT_COMPARED = 2;
const DAY_MS = 86_400_000;
const MAX_DAYS = 3660;

export interface ReconcileFlags extends ServerFlags {
  readonly server?: string;
  readonly token?: string;
  readonly data?: string;
  /** As `parseSinceTime` takes it. */
  readonly since?: string;
  /** Millionths. */
  readonly tolerance: bigint;
}

/** Exit code: 0 when all sums agree within the tolerance, 1 when some do not, 2 when nothing was compared. */
export async function reconcile(
  context: CommandContext,
  flags: ReconcileFlags,
  files: readonly string[],
): Promise<number> {
  const exports = readExports(context, files);
  if (!exports.ok) return refuseToCompare(context, exports.error);
  const since = findFirstDay(flags.since);
  const window = findDays(exports.value, since);
  if (window === null) return refuseToCompare(context, 'no export has a day from --since on');
  if (window.to - window.from > MAX_DAYS * DAY_MS) return refuseToCompare(context, 'the days span more than ten years');
  for (const kind of listOpenKinds(exports.value))
    printMessage(context.stderr, `${kind} has more pages than these; add them`);
  const compare = async (ledger: readonly LedgerDay[]) =>
    printComparison(context, compareBills(exports.value, ledger, { since, tolerance: flags.tolerance }), flags);
  if (flags.server === undefined) return readFolder(context, flags, window, compare);
  const server = { baseUrl: flags.server, token: flags.token ?? context.env.METIS_TOKEN ?? null };
  let isCompared = false;
  const code = await askServer(context, server, async () => {
    const to = isoTime(window.to);
    const { data } = await createMetisClient(server).getLedgerDays({ from: isoTime(window.from), to });
    isCompared = true;
    return compare(data);
  });
  return isCompared ? code : EXIT_NOT_COMPARED;
}

function refuseToCompare(context: CommandContext, problem: string): number {
  refuse(context, [problem]);
  return EXIT_NOT_COMPARED;
}

function findFirstDay(since: string | undefined): string | null {
  const time = since === undefined ? null : parseSinceTime(since);
  if (time === null || time === 'all') return null;
  return isoTime(Date.parse(time)).slice(0, 10);
}

function readExports({ cwd }: CommandContext, files: readonly string[]): Result<readonly Export[], string> {
  const exports: Export[] = [];
  const known = new Map<string, string>();
  for (const file of files) {
    let text: string;
    try {
      const bytes = readLimited(path.resolve(cwd, file), EXPORT_FILE.bytes);
      text = bytes.toString('utf8');
      if (bytes.length > EXPORT_FILE.bytes) return err(`${file}: has more than ${EXPORT_FILE.bytes} bytes`);
    } catch (cause) {
      return err(`${file}: cannot be read: ${(cause as NodeJS.ErrnoException).code}`);
    }
    const content = sha256Hex(text);
    // It would count everything twice.
    if (known.has(content)) return err(`${file}: has the content of ${known.get(content)}`);
    known.set(content, file);
    const parsed = readExport(text);
    if (!parsed.ok) return err(`${file}: ${parsed.error}`);
    exports.push(parsed.value);
  }
  return ok(exports);
}

/** Of the pages of one kind one is the last. */
function listOpenKinds(exports: readonly Export[]): readonly string[] {
  const kinds = new Set(exports.map(({ kind }) => kind));
  return [...kinds].filter((kind) => exports.every((one) => one.kind !== kind || one.hasMore));
}

async function readFolder(
  context: CommandContext,
  { data }: ReconcileFlags,
  window: TimeWindow,
  compare: (ledger: readonly LedgerDay[]) => Promise<number>,
): Promise<number> {
  const settings = loadSettings(context, { ...(data !== undefined && { data }) });
  if (!settings.ok) {
    refuse(context, settings.error);
    return EXIT_NOT_COMPARED;
  }
  const { database, storage } = settings.value.config;
  try {
    if (database.url !== null) return compare(await readClusterDays(context, settings.value, window));
    return await readDatabase(context, storage.db_path, window, compare);
  } catch (cause) {
    const error = databaseFault(storage.db_path, cause);
    if (!(error instanceof StartupError)) throw error;
    refuse(context, error.problems);
    return EXIT_NOT_COMPARED;
  }
}

async function readDatabase(
  context: CommandContext,
  file: string,
  window: TimeWindow,
  compare: (ledger: readonly LedgerDay[]) => Promise<number>,
): Promise<number> {
  if (!fs.existsSync(file)) return refuseToCompare(context, `there is no database at ${file}; see --data and --server`);
  const reader = openReader(file);
  try {
    if (missingMigrations(reader, file, path.join(context.packageDir, 'migrations')).length > 0)
      return refuseToCompare(
        context,
        `${file} was written by an older version; start the server once, which brings it forward`,
      );
    return await compare(await createAnalytics(reader).ledgerDays({ window, provider: null }));
  } finally {
    reader.close();
  }
}

async function readClusterDays(
  context: CommandContext,
  settings: Settings,
  window: TimeWindow,
): Promise<readonly LedgerDay[]> {
  const { readCluster } = await import('../storage/cluster-commands.ts');
  const at = { url: settings.config.database.url!, packageDir: context.packageDir, log: startLog(context, settings) };
  return readCluster(at, (reads) => reads.ledgerDays(window));
}

const COLUMNS: readonly Column[] = [
  { title: 'day', whole: true },
  { title: 'model', least: 12 },
  { title: 'class', whole: true },
  { title: 'billed', align: 'right' },
  { title: 'ledger', align: 'right' },
  { title: 'difference', align: 'right' },
  { title: 'likely reason', least: 12 },
];

function printComparison(context: CommandContext, comparison: Comparison, { json, tolerance }: ReconcileFlags): number {
  const { stdout } = context;
  const { differences, agreed } = comparison;
  if (json) stdout.write(toJsonLine(toJson(comparison, tolerance)));
  else {
    if (differences.length > 0) {
      const style = createTerminalStyle(context);
      const rows = differences.map(composeCells);
      const [header, rule, ...lines] = layOutTable(COLUMNS, rows, getTableWidth(context));
      stdout.write(`${[style.bold(header!), style.dim(rule!), ...lines].join('\n')}\n\n`);
    }
    for (const { kind, unit, billed, counted } of comparison.totals)
      stdout.write(`${kind}: ${formatAmount(unit, billed)} billed, ${formatAmount(unit, counted)} in the ledger\n`);
    const percent = formatPercent(tolerance);
    if (differences.length === 0) stdout.write(`All ${agreed} sums agree within ${percent} %.\n`);
    else
      stdout.write(`${differences.length} of ${agreed + differences.length} sums differ by more than ${percent} %.\n`);
  }
  return differences.length === 0 ? 0 : 1;
}

function composeCells({ day, model, class: name, unit, billed, counted, reasons }: Difference): string[] {
  const difference = `${billed > counted ? '+' : ''}${formatAmount(unit, billed - counted)}`;
  return [
    day,
    toPrintable(model ?? 'all'),
    name,
    formatAmount(unit, billed),
    formatAmount(unit, counted),
    difference,
    reasons.join(', '),
  ];
}

type Unit = Difference['unit'];

function formatAmount(unit: Unit, value: bigint): string {
  if (unit === 'usd') return formatDollars(fromPusd(value));
  return value.toLocaleString('en-US');
}

/** Money as decimal text, tokens as numbers, as in every other answer. */
function toNumberOrUsd(unit: Unit, value: bigint): string | number {
  if (unit === 'usd') return fromPusd(value);
  return Number(value);
}

function toJson({ differences, agreed, totals }: Comparison, tolerance: bigint) {
  const amounts = ({ unit, billed, counted }: Pick<Difference, 'unit' | 'billed' | 'counted'>) => ({
    billed: toNumberOrUsd(unit, billed),
    ledger: toNumberOrUsd(unit, counted),
    difference: toNumberOrUsd(unit, billed - counted),
  });
  return {
    tolerance_percent: formatPercent(tolerance),
    agreed,
    totals: totals.map((total) => ({ export: total.kind, unit: total.unit, ...amounts(total) })),
    differences: differences.map((one) => ({
      export: one.kind,
      day: one.day,
      model: one.model,
      class: one.class,
      unit: one.unit,
      ...amounts(one),
      reasons: one.reasons,
    })),
  };
}

/** Of millionths. */
function formatPercent(tolerance: bigint): string {
  return fromPusd(tolerance * 100_000_000n);
}
