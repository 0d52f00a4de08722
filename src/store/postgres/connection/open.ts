// Opens the database of a cluster: waits for the server, migrates; every failure is one clear line (16 §11).
import { orAbort } from '#protocol/abort.ts';
import type { Clock } from '#protocol/clock.ts';
import { StartupError } from '#protocol/errors.ts';
import {
  ADD_EVENT_TYPE,
  findMissingTypes,
  LIST_EVENT_TYPES,
  type TypeNumbers,
  type TypeRow,
  toTypeNumbers,
} from '#store/schema/event-types.ts';
import { isTransient } from './faults.ts';
import { migrate, OlderNodesRunning } from './migrate.ts';
import { pause } from './pause.ts';
import { createPool, type Pool, type PoolOptions } from './pool.ts';
import { requireSessionMode } from './pooler.ts';

export interface OpenPool extends Pool {
  readonly typeNumbers: TypeNumbers;
}

export interface OpenOptions extends PoolOptions {
  readonly migrationsDir: string;
  readonly clock: Clock;
  /** How long a server that is not there, and the end of older nodes, are waited for; null, or absent = as long as it takes. */
  readonly patienceMs?: number | null;
  /** Ends the waiting with its reason. */
  readonly leave?: AbortSignal;
}

const AGAIN_MS = 500;
const ALIVE_MS = 60_000;

/**
 * Throws `StartupError`: `database_unreachable`, `database_refused`, `database_pooler_mode`, `database_too_old`,
 * `schema_too_new`, `database_foreign`, `older_nodes_running`.
 */
export async function openDatabase(options: OpenOptions): Promise<OpenPool> {
  const { url, migrationsDir, clock, log, patienceMs = null, leave = new AbortController().signal } = options;
  const from = clock.monotonic();
  // Nothing else is open yet, and a pause keeps no process alive: without this it would end in the first one.
  const alive = setInterval(() => {}, ALIVE_MS);
  let reported: boolean | null = null;
  try {
    for (;;) {
      try {
        await orAbort(requireSessionMode(url), leave);
        const applied = await orAbort(migrate(url, migrationsDir), leave);
        if (applied.length > 0) log.info({ migrations: applied }, 'database migrated');
        const pool = createPool(options);
        try {
          return { ...pool, typeNumbers: await orAbort(registerEventTypes(pool), leave) };
        } catch (error) {
          await pool.close();
          throw error;
        }
      } catch (error) {
        if (leave.aborted) throw leave.reason;
        if (!(isTransient(error) || error instanceof OlderNodesRunning)) throw startupFault(url, error);
        if (patienceMs !== null && clock.monotonic() - from >= patienceMs) throw startupFault(url, error, patienceMs);
        // An error, so that the terminal shows what the start waits for.
        if (reported !== isTransient(error))
          log.error({ reason: describeFault(error) }, waitingFor(url, error, patienceMs));
        reported = isTransient(error);
      }
      await orAbort(pause(clock, AGAIN_MS), leave);
    }
  } finally {
    clearInterval(alive);
  }
}

async function registerEventTypes(pool: Pool): Promise<TypeNumbers> {
  for (;;) {
    const numbers = toTypeNumbers((await pool.send<TypeRow>(LIST_EVENT_TYPES, [])).rows);
    const missing = findMissingTypes(numbers);
    if (missing.length === 0) return numbers;
    // Read again afterwards: another node may have taken a number that was to be given here.
    for (const type of missing) await pool.send(ADD_EVENT_TYPE, [type]);
  }
}

function waitingFor(url: string, error: unknown, patienceMs: number | null): string {
  const time = patienceMs === null ? 'until it does' : `for ${patienceMs / 1000} s`;
  return isTransient(error)
    ? `PostgreSQL does not answer at ${hideCredentials(url)}; trying ${time}`
    : 'the migration waits for older nodes, which could not write the database after it: stop them';
}

/** A fault that waiting does not repair, as one line. @param waitedMs how long it was waited for */
export function startupFault(url: string, error: unknown, waitedMs = 0): StartupError {
  if (error instanceof StartupError) return error;
  if (error instanceof OlderNodesRunning) return olderNodes(error);
  return isTransient(error) ? unreachable(url, error, waitedMs) : createRefusal(url, error);
}

function olderNodes({ message }: OlderNodesRunning): StartupError {
  return new StartupError('older_nodes_running', [
    `older_nodes_running: ${message}; they could not write the database after its migration: stop them, then start this node again`,
  ]);
}

/** Never with its password. */
function hideCredentials(url: string): string {
  const { host, pathname, username } = new URL(url);
  return `postgres://${username === '' ? '' : `${username}@`}${host}${pathname}`;
}

function describeFault(error: unknown): string {
  return error instanceof Error ? error.message || String((error as NodeJS.ErrnoException).code) : String(error);
}

function unreachable(url: string, error: unknown, patienceMs: number): StartupError {
  return new StartupError('database_unreachable', [
    `database_unreachable: no answer from ${hideCredentials(url)}${patienceMs === 0 ? '' : ` for ${patienceMs / 1000} s`} (${describeFault(error)}); start PostgreSQL or check database.url`,
  ]);
}

function createRefusal(url: string, error: unknown): StartupError {
  return new StartupError('database_refused', [
    `database_refused: ${hideCredentials(url)} does not take this server (${describeFault(error)}); check user, password, database and parameters in database.url`,
  ]);
}
