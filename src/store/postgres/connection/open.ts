// Opens the database of a cluster: waits for the server, migrates; every failure is one clear line (16 §11).
import { orAbort } from '../../../kernel/abort.ts';
import type { Clock } from '../../../kernel/clock.ts';
import { StartupError } from '../../../kernel/errors.ts';
import { isTransient } from './faults.ts';
import { migrate } from './migrate.ts';
import { pause } from './pause.ts';
import { createPool, type Pool, type PoolOptions } from './pool.ts';

export interface OpenOptions extends PoolOptions {
  readonly migrationsDir: string;
  readonly clock: Clock;
  /** How long a server that is not there is waited for. */
  readonly patienceMs?: number;
  /** Ends the waiting with its reason. */
  readonly leave?: AbortSignal;
}

const PATIENCE_MS = 30_000;
const AGAIN_MS = 500;

/**
 * Throws `StartupError`: `database_unreachable`, `database_refused`, `database_too_old`, `schema_too_new`,
 * `database_foreign`.
 */
export async function openDatabase(options: OpenOptions): Promise<Pool> {
  const { url, migrationsDir, clock, log, patienceMs = PATIENCE_MS, leave = new AbortController().signal } = options;
  const from = clock.monotonic();
  // Nothing else is open yet, and a pause keeps no process alive: without this it would end in the first one.
  const alive = setInterval(() => {}, patienceMs + AGAIN_MS);
  let told = false;
  try {
    for (;;) {
      try {
        const applied = await orAbort(migrate(url, migrationsDir), leave);
        if (applied.length > 0) log.info({ migrations: applied }, 'database migrated');
        return createPool(options);
      } catch (error) {
        if (leave.aborted) throw leave.reason;
        if (!isTransient(error)) throw startupFault(url, error);
        if (clock.monotonic() - from >= patienceMs) throw unreachable(url, error, patienceMs);
        // An error, so that who started it at a terminal knows what it waits for.
        if (!told) {
          log.error(
            { reason: reasonOf(error) },
            `PostgreSQL does not answer at ${shown(url)}; it is tried for ${patienceMs / 1000} s`,
          );
        }
        told = true;
      }
      await orAbort(pause(clock, AGAIN_MS), leave);
    }
  } finally {
    clearInterval(alive);
  }
}

/** A fault that waiting does not mend, as one line. */
export function startupFault(url: string, error: unknown): StartupError {
  if (error instanceof StartupError) return error;
  return isTransient(error) ? unreachable(url, error, 0) : refused(url, error);
}

/** Never with its password. */
function shown(url: string): string {
  const { host, pathname, username } = new URL(url);
  return `postgres://${username === '' ? '' : `${username}@`}${host}${pathname}`;
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message || String((error as NodeJS.ErrnoException).code) : String(error);
}

function unreachable(url: string, error: unknown, patienceMs: number): StartupError {
  return new StartupError('database_unreachable', [
    `database_unreachable: no answer from ${shown(url)}${patienceMs === 0 ? '' : ` for ${patienceMs / 1000} s`} (${reasonOf(error)}); start PostgreSQL or check database.url`,
  ]);
}

function refused(url: string, error: unknown): StartupError {
  return new StartupError('database_refused', [
    `database_refused: ${shown(url)} does not take this server (${reasonOf(error)}); check user, password and database in database.url`,
  ]);
}
