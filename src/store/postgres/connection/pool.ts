// Connections to PostgreSQL: those of the journal and the readers, and two for reports (16 §3.5, §9).
import pg from 'pg';
import type { Logger } from '#core/ports/logger.ts';
import { AppError } from '#protocol/errors.ts';
import { createAnsweredTx, type Tx } from '#store/write/transaction.ts';
import { createSend, type Send, type Statement, sendAtOnce } from './client.ts';
import { connectionConfig } from './connect.ts';
import { isAborted, isConnectionFault, isReadOnly } from './faults.ts';

export interface PoolOptions {
  readonly url: string;
  readonly size: number;
  readonly synchronousCommit: 'on' | 'off';
  /** How long one statement may take, in reports too; absent = the defaults below. */
  readonly statementMs?: number;
  /** The server refuses every statement that writes. */
  readonly isReadOnly?: boolean;
  readonly log: Logger;
}

/** A transaction that can also await an answer before its next statement. */
export interface PoolTx extends Tx {
  readonly send: Send;
}

export interface Pool {
  /** One statement by itself. */
  readonly send: Send;
  /** Rolled back when `work` or a check throws. */
  transaction<T>(work: (tx: PoolTx) => Promise<T>): Promise<T>;
  /** A transaction in one round trip, committed when it resolves; see `sendAtOnce`. */
  atOnce(statements: readonly Statement[]): Promise<void>;
  /** One connection for all of `work`, without a transaction. */
  connection<T>(work: (send: Send) => Promise<T>): Promise<T>;
  /** All reads of `work` see one state of the database. */
  atOneMoment<T>(work: (send: Send) => Promise<T>): Promise<T>;
  /** The same, with the connections and time limits of reports. */
  report<T>(work: (send: Send) => Promise<T>): Promise<T>;
  /** Connections of the journal and the readers, and how much waits for one. */
  usage(): { readonly used: number; readonly idle: number; readonly waiting: number };
  close(): Promise<void>;
}

const IDLE_IN_TRANSACTION_MS = 3000;
const STATEMENT_MS = 10_000;
const REPORT_MS = 60_000;
/** Seconds and probes until PostgreSQL ends the connection of a host that is gone, and frees the rows of what it had sent half. */
const KEEP_ALIVE = { tcp_keepalives_idle: 5, tcp_keepalives_interval: 5, tcp_keepalives_count: 3 };
/** Added to the server's own time limit, for a server that no longer answers. */
const SILENCE_MS = 5000;
const REPORTS = 2;

/** A broken connection may emit several errors, also without a listener. Its statements fail, which is enough. */
function ignoreConnectionErrors(pool: pg.Pool): void {
  pool.on('connect', (client) => void client.on('error', () => {}));
}

export function createPool({
  url,
  size,
  synchronousCommit,
  statementMs,
  isReadOnly: readOnly,
  log,
}: PoolOptions): Pool {
  const open = (max: number, statement: number, settings: Readonly<Record<string, string>>) => {
    const pool = new pg.Pool({
      ...connectionConfig(url, {
        idle_in_transaction_session_timeout: IDLE_IN_TRANSACTION_MS,
        ...KEEP_ALIVE,
        statement_timeout: statement,
        ...(readOnly === true && { default_transaction_read_only: 'on' }),
        ...settings,
      }),
      query_timeout: statement + SILENCE_MS,
      pipeline: true,
      max,
    } as pg.PoolConfig);
    ignoreConnectionErrors(pool);
    // An idle connection that breaks is replaced when it is needed.
    pool.on('error', (err) => log.warn({ err }, 'a connection to the database broke'));
    return pool;
  };
  const main = open(size, statementMs ?? STATEMENT_MS, { synchronous_commit: synchronousCommit });
  const reports = open(REPORTS, statementMs ?? REPORT_MS, {});
  const send = createSend(main as unknown as pg.ClientBase);

  return {
    send,
    transaction: (work) => runInTransaction(main, 'BEGIN', (client) => runChecked(client, work)),
    atOnce: (statements) => runOnClient(main, (client) => sendAtOnce(client, statements)),
    connection: (work) => runOnClient(main, (client) => work(createSend(client))),
    atOneMoment: (work) => runInTransaction(main, AT_ONE_MOMENT, (client) => work(createSend(client))),
    report: (work) => runInTransaction(reports, AT_ONE_MOMENT, (client) => work(createSend(client))),
    usage: () => ({ used: main.totalCount - main.idleCount, idle: main.idleCount, waiting: main.waitingCount }),
    close: async () => {
      await Promise.all([main.end(), reports.end()]);
    },
  };
}

async function runOnClient<T>(pool: pg.Pool, work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
  const client = await pool.connect();
  let fault: unknown = null;
  try {
    return await work(client);
  } catch (error) {
    fault = error;
    throw error;
  } finally {
    client.release(isUnusable(fault));
  }
}

/** Closing a connection frees its session locks. The one after a read-only server's may lead to the server that was promoted. */
function isUnusable(fault: unknown): boolean {
  return isConnectionFault(fault) || isReadOnly(fault);
}

const AT_ONE_MOMENT = 'BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY';

async function runInTransaction<T>(
  pool: pg.Pool,
  begin: string,
  work: (client: pg.PoolClient) => Promise<T>,
): Promise<T> {
  const client = await pool.connect();
  let fault: unknown = null;
  try {
    // Not awaited: if this fails, the statements after it fail.
    const begun = client.query(begin);
    begun.catch(() => {});
    const result = await work(client);
    await begun;
    await client.query('COMMIT');
    return result;
  } catch (error) {
    fault = error;
    await client.query('ROLLBACK').catch((cause: unknown) => {
      fault = cause;
    });
    throw error;
  } finally {
    // One that could not even be rolled back is thrown away too.
    client.release(isUnusable(fault));
  }
}

async function runChecked<T>(client: pg.PoolClient, work: (tx: PoolTx) => Promise<T>): Promise<T> {
  const send = createSend(client);
  const sent: Promise<unknown>[] = [];
  let running = sent;
  const tx: PoolTx = {
    send,
    ...createAnsweredTx((sql, values, check) => {
      const answered = send(sql, values).then((answer) => check && follow(() => check(answer)));
      answered.catch(() => {});
      running.push(answered);
    }),
  };
  /** A statement that a check runs belongs to the checked statement: its failure is reported there. */
  async function follow(check: () => void): Promise<void> {
    const own: Promise<unknown>[] = [];
    const outer = running;
    running = own;
    try {
      check();
    } finally {
      running = outer;
    }
    const fault = await firstFault(own);
    if (fault !== null) throw fault;
  }
  let result: T;
  try {
    result = await work(tx);
  } catch (error) {
    throw (await firstFault(sent)) ?? error;
  }
  const fault = await firstFault(sent);
  if (fault !== null) throw fault;
  return result;
}

/** The first in the order of sending; later statements only report that an earlier one failed. */
async function firstFault(sent: readonly Promise<unknown>[]): Promise<unknown> {
  for (const outcome of await Promise.allSettled(sent)) {
    if (outcome.status === 'rejected' && !isAborted(outcome.reason)) return outcome.reason;
  }
  return null;
}

interface Single {
  readonly send: Send;
  close(): Promise<void>;
}

/**
 * One connection, which stays open while it is idle: locks belong to it.
 * @param patienceMs time after which a statement counts as not answered
 */
export function createSingle(url: string, patienceMs: number): Single {
  const pool = new pg.Pool({
    ...connectionConfig(url, { statement_timeout: patienceMs }, patienceMs),
    query_timeout: patienceMs,
    idleTimeoutMillis: 0,
    max: 1,
  });
  ignoreConnectionErrors(pool);
  pool.on('error', () => {});
  return { send: createSend(pool as unknown as pg.ClientBase), close: () => pool.end() };
}

// Advisory locks for work that one node of a cluster does at a time (16 §9).

/** The lock's number in this schema: a database may hold several clusters. */
const KEY = "hashtext(current_schema() || ' ' || ?)";

const MAINTENANCE = 'maintenance';
/** Held while a node registers, and by a migration that older nodes would not outlive. */
export const REGISTRATION = 'node names';

/** Takes the name of the work. Waits for the lock and holds it until the end of the transaction. */
export const AWAIT_TURN = `SELECT pg_advisory_xact_lock(${KEY})`;

/** Takes the name of the work. Takes a free lock until the connection closes; `got` = taken. */
export const TRY_TURN = `SELECT pg_try_advisory_lock(${KEY}) AS got`;
export const RELEASE_TURN = `SELECT pg_advisory_unlock(${KEY})`;

/** Runs `work` under the lock of this name and waits for the lock. */
export async function runInTurn<T>(pool: Pool, name: string, work: (send: Send) => Promise<T>): Promise<T> {
  return pool.connection(async (send) => {
    await send(`SELECT pg_advisory_lock(${KEY})`, [name]);
    try {
      return await work(send);
    } finally {
      await send(RELEASE_TURN, [name]);
    }
  });
}

/** Pruning and rebuilding cover the whole database, so they run one at a time. Throws `maintenance_running`. */
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
