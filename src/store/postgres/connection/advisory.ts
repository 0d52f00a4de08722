// Work that one node of a cluster does at a time (16 §9).
import { AppError } from '../../../kernel/errors.ts';
import type { Pool } from './pool.ts';

/** Of this schema: a database may hold several clusters. */
const KEY = "hashtext(current_schema() || ' ' || ?)";

/** With the name of the work: takes it for the rest of the transaction, waiting for whoever has it. */
export const AWAIT_TURN = `SELECT pg_advisory_xact_lock(${KEY})`;

/** Runs `work` while nobody else does what bears this name. Throws `maintenance_running`. */
export async function alone<T>(pool: Pool, name: string, work: () => Promise<T>): Promise<T> {
  return pool.connection(async (send) => {
    const { rows } = await send<{ got: number }>(`SELECT pg_try_advisory_lock(${KEY}) AS got`, [name]);
    if (rows[0]?.got !== 1) throw new AppError('maintenance_running', `another node is at ${name}; try again later`);
    try {
      return await work();
    } finally {
      await send(`SELECT pg_advisory_unlock(${KEY})`, [name]);
    }
  });
}
