// `metis prune`: deletes old events, through the server that holds the file or on the file itself, so that one process writes (02 §6).
import fs from 'node:fs';
import path from 'node:path';
import { toPrintable } from '#cli/style.ts';
import { ApiError, createMetisClient } from '#client/client.ts';
import type { PruneReport } from '#core/ports/journal.ts';
import { isoTime, systemClock } from '#protocol/clock.ts';
import { AppError, StartupError } from '#protocol/errors.ts';
import { createIdGenerator } from '#protocol/ids.ts';
import { createBus } from '#store/bus/memory/bus.ts';
import { databaseFault, openDatabase } from '#store/sqlite/connection/open.ts';
import { isOwned } from '#store/sqlite/connection/owner-lock.ts';
import { createJournal } from '#store/sqlite/write/journal.ts';
import type { ConfigFlags } from '../config.ts';
import { type CommandContext, refuse } from '../context.ts';
import { findServer } from '../door/find-server.ts';
import { startLog } from '../log.ts';
import { getConfiguredServer, loadSettings, type Settings } from '../start.ts';

export interface PruneFlags extends ConfigFlags {
  readonly days?: number;
  readonly dryRun?: boolean;
  /** Of the server that holds the file; what the folder says, else the configured address, when left out. */
  readonly server?: string;
  readonly token?: string;
}

/** The flags with the age that holds. */
type Deletion = PruneFlags & { readonly days: number };

interface Report {
  readonly cutoff: string;
  readonly rows_deleted: number;
  readonly sessions_skipped: number;
  readonly oldest_kept_timestamp: string | null;
}

const DAY_MS = 24 * 60 * 60 * 1000;

/** Exit code: 0 also when there was nothing to delete, 1 when it could not be done. */
export async function prune(context: CommandContext, flags: PruneFlags): Promise<number> {
  const settings = loadSettings(context, flags);
  if (!settings.ok) return refuse(context, settings.error);
  const { config } = settings.value;
  const { db_path } = config.storage;
  const days = flags.days ?? config.trace.retention_days;
  if (days === null) return refuse(context, ['--days is required: trace.retention_days keeps events for ever']);
  if (config.database.url === null && !fs.existsSync(db_path))
    return refuse(context, [`there is no database at ${db_path}; see --data`]);
  try {
    const report = await choosePruner(settings.value)(context, settings.value, { ...flags, days });
    const { rows_deleted, cutoff, sessions_skipped, oldest_kept_timestamp } = report;
    const summary =
      `${flags.dryRun ? 'would delete' : 'deleted'} ${rows_deleted} events older than ${cutoff}; ` +
      `${sessions_skipped} sessions with an open turn keep theirs; oldest kept: ${oldest_kept_timestamp ?? 'none'}`;
    context.stdout.write(`${toPrintable(summary)}\n`);
    return 0;
  } catch (cause) {
    const error = databaseFault(db_path, cause);
    if (error instanceof StartupError) return refuse(context, error.problems);
    if (error instanceof AppError) return refuse(context, [`${error.code}: ${error.message}`]);
    if (error instanceof ApiError) return refuse(context, [`the server refused: ${error.code}: ${error.message}`]);
    throw error;
  }
}

/** A server that holds the file does it; in a cluster any program may, one at a time. */
function choosePruner({ config }: Settings): typeof pruneFile {
  if (config.database.url !== null) return pruneInCluster;
  return isOwned(config.storage.db_path) ? pruneThroughServer : pruneFile;
}

async function pruneInCluster(context: CommandContext, settings: Settings, flags: Deletion): Promise<Report> {
  const { withCluster } = await import('../storage/cluster-upkeep.ts');
  const at = { url: settings.config.database.url!, packageDir: context.packageDir, log: startLog(context, settings) };
  return withCluster(at, async (upkeep) => toReport(await upkeep.prune(computeCutoff(flags), flags.dryRun ?? false)));
}

async function pruneThroughServer(context: CommandContext, settings: Settings, flags: Deletion): Promise<Report> {
  const configured = getConfiguredServer(context, settings, flags);
  const found = flags.server === undefined ? await findServer(settings, configured, true) : null;
  const server = { ...configured, baseUrl: found?.baseUrl ?? configured.baseUrl };
  try {
    return await createMetisClient(server).pruneEvents({
      days: flags.days,
      dry_run: flags.dryRun ?? false,
    });
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw new StartupError('address_unusable', [
      `a server holds ${settings.config.storage.db_path}, but nothing answers at ${server.baseUrl}; name its address with --server`,
    ]);
  }
}

async function pruneFile(context: CommandContext, settings: Settings, flags: Deletion): Promise<Report> {
  const { db_path, synchronous } = settings.config.storage;
  const log = startLog(context, settings);
  const migrationsDir = path.join(context.packageDir, 'migrations');
  const db = openDatabase({ path: db_path, synchronous, migrationsDir, log });
  try {
    const ids = createIdGenerator(() => systemClock.now(), Math.random);
    const journal = createJournal({ db, ids, clock: systemClock, bus: createBus(log), log });
    return toReport(await journal.prune(computeCutoff(flags), flags.dryRun ?? false));
  } finally {
    db.close();
  }
}

const computeCutoff = ({ days }: Deletion) => systemClock.now() - days * DAY_MS;

function toReport(report: PruneReport): Report {
  return {
    ...report,
    cutoff: isoTime(report.cutoff),
    oldest_kept_timestamp: report.oldest_kept === null ? null : isoTime(report.oldest_kept),
  };
}
