// One node at a time merges into a workspace that several nodes share (20 §2.5).
import pg from 'pg';
import { StorageFault } from '#core/ports/journal-writer.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { WorkspaceLock } from '#core/ports/worktrees.ts';
import { type Clock, sleep, type Timer } from '#protocol/clock.ts';
import { readErrorMessage } from '#protocol/text/error-message.ts';
import { createSend } from './client.ts';
import { connectionConfig } from './connect.ts';
import { isTransient } from './faults.ts';
import { AWAIT_TURN } from './pool.ts';

/** Workspaces that one node merges into at once; further ones wait. */
const CONNECTIONS = 2;
/** After this time without a statement the database ends the connection of a stopped process, and its lock with it. */
const IDLE_MS = 3000;
const SIGN_OF_LIFE_MS = 1000;
const AGAIN_MS = 100;

/** The name under which the database locks a workspace. */
export const nameWorkspaceLock = (folder: string) => `workspace ${folder}`;

interface ClosableLock {
  readonly run: WorkspaceLock;
  close(): Promise<void>;
}

interface LockOptions {
  readonly url: string;
  /** Whether another attempt to reach the database makes sense. */
  readonly isOfUse: () => boolean;
  readonly clock: Clock;
  readonly log: Logger;
}

/**
 * Locks that end with their process: each is a transaction on a connection of its own. No connection is open while
 * nothing is merged. Where the connection breaks, the work goes on: each write still compares what it replaces.
 * Throws `StorageFault` where the database cannot be reached.
 */
export function createWorkspaceLock({ url, isOfUse, clock, log }: LockOptions): ClosableLock {
  const pool = new pg.Pool({
    // A merge of another node takes as long as it takes.
    ...connectionConfig(url, { idle_in_transaction_session_timeout: IDLE_MS, statement_timeout: 0 }),
    max: CONNECTIONS,
  });
  pool.on('connect', (client) => void client.on('error', () => {}));
  pool.on('error', () => {});

  async function acquire(folder: string): Promise<pg.PoolClient> {
    const client = await pool.connect();
    try {
      await client.query('BEGIN');
      await createSend(client)(AWAIT_TURN, [nameWorkspaceLock(folder)]);
      return client;
    } catch (error) {
      client.release(true);
      throw error;
    }
  }
  async function acquirePatiently(folder: string): Promise<pg.PoolClient> {
    for (;;) {
      try {
        return await acquire(folder);
      } catch (error) {
        if (!isTransient(error)) throw error;
        if (!isOfUse()) throw new StorageFault('the database cannot be reached', error);
      }
      await sleep(clock, AGAIN_MS);
    }
  }

  return {
    async run(folder, work) {
      const client = await acquirePatiently(folder);
      let timer = showLife();
      let isBroken = false;
      function showLife(): Timer {
        return clock.after(SIGN_OF_LIFE_MS, () => {
          client.query('SELECT 1').then(
            () => {
              if (!isOver) timer = showLife();
            },
            (error: unknown) => {
              isBroken = true;
              log.warn({ folder, problem: readErrorMessage(error) }, 'the lock of a workspace was lost');
            },
          );
        });
      }
      let isOver = false;
      try {
        return await work();
      } finally {
        isOver = true;
        timer.cancel();
        // Without a commit the lock ends with the connection.
        await client.query('COMMIT').catch(() => {
          isBroken = true;
        });
        client.release(isBroken);
      }
    },
    close: () => pool.end(),
  };
}
