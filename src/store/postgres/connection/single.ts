// One connection of its own that comes back by itself: for heartbeats (16 §3.5).
import pg from 'pg';
import { createSend, type Send } from './client.ts';
import { connectionConfig } from './connect.ts';
import { outlivesFaults } from './pool.ts';

export interface Single {
  readonly send: Send;
  close(): Promise<void>;
}

/** @param patienceMs after which a statement counts as not answered */
export function createSingle(url: string, patienceMs: number): Single {
  const pool = new pg.Pool({
    ...connectionConfig(url, { statement_timeout: patienceMs }, patienceMs),
    query_timeout: patienceMs,
    max: 1,
  });
  outlivesFaults(pool);
  pool.on('error', () => {});
  return { send: createSend(pool as unknown as pg.ClientBase), close: () => pool.end() };
}
