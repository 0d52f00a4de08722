// Work that one node of a cluster does at a time (16 §9).
import { AppError } from '#protocol/errors.ts';
import type { Send } from './client.ts';
import type { Pool } from './pool.ts';

/** Of this schema: a database may hold several clusters. */
const KEY = "hashtext(current_schema() || ' ' || ?)";

const MAINTENANCE = 'maintenance';
/** Held while a node registers, and by a migration that older nodes would not outlive. */
export const REGISTRATION = 'node names';

/** With the name of the work: takes it for the rest of the transaction, waiting for whoever has it. */
export const AWAIT_TURN = `SELECT pg_advisory_xact_lock(${KEY})`;

/** With the name of the work: takes it for as long as the connection stands, if nobody has it. Answers with `got`. */
export const TRY_TURN = `SELECT pg_try_advisory_lock(${KEY}) AS got`;
export const RELEASE_TURN = `SELECT pg_advisory_unlock(${KEY})`;

/** Runs `work` when nobody else does what bears this name, waiting for whoever does. */
export async function inTurn<T>(pool: Pool, name: string, work: (send: Send) => Promise<T>): Promise<T> {
  return pool.connection(async (send) => {
    await send(`SELECT pg_advisory_lock(${KEY})`, [name]);
    try {
      return await work(send);
    } finally {
      await send(RELEASE_TURN, [name]);
    }
  });
}

/** What reaches over the whole database, pruning and rebuilding, is done one at a time. Throws `maintenance_running`. */
export async function maintenance<T>(pool: Pool, work: () => Promise<T>): Promise<T> {
  return pool.connection(async (send) => {
    const { rows } = await send<{ got: number }>(TRY_TURN, [MAINTENANCE]);
    if (rows[0]?.got !== 1) {
      throw new AppError('maintenance_running', 'events are being pruned or rollups rebuilt; try again later');
    }
    try {
      return await work();
    } finally {
      await send(RELEASE_TURN, [MAINTENANCE]);
    }
  });
}
