// Copies the write-ahead log into the database file on a thread of its own: the disk syncs of it would stop every stream (01 §11.1).
import { createRequire } from 'node:module';
import { Worker } from 'node:worker_threads';
import type { Logger } from '#core/ports/logger.ts';

export interface Checkpointer {
  /** Counts a committed transaction; the log is copied after a fixed number of them. */
  committed(): void;
  /** Waits until the thread has closed the file. Idempotent. */
  close(): void;
}

/** Transactions between two copies. The writer's own, at `wal_autocheckpoint`, then finds little left to do. */
const EVERY = 64;
const CLOSE_LIMIT_MS = 2000;

// A text, since a thread loads a built file and tests run from the sources. `timeout: 0`: a copy never waits for a lock.
const THREAD = `
  const { parentPort, workerData: { driver, path, synchronous, closed } } = require('node:worker_threads');
  process.on('exit', () => {
    Atomics.store(closed, 0, 1);
    Atomics.notify(closed, 0);
  });
  const db = new (require(driver))(path, { fileMustExist: true, timeout: 0 });
  db.pragma('synchronous = ' + synchronous);
  parentPort.on('message', (task) => {
    if (task === 'copy') {
      try {
        db.pragma('wal_checkpoint(PASSIVE)');
        parentPort.postMessage(null);
      } catch (error) {
        parentPort.postMessage(error.message);
      }
      return;
    }
    db.close();
    parentPort.close();
  });`;

/**
 * Its thread starts with the first copy, so an idle server has none, and again after one that died. A failed copy is
 * left to the writer.
 */
export function createCheckpointer(path: string, synchronous: 'NORMAL' | 'FULL', log: Logger): Checkpointer {
  let thread: { readonly worker: Worker; readonly closed: Int32Array } | null = null;
  let commits = 0;
  let idle = true;
  let shut = false;

  function start(): NonNullable<typeof thread> {
    const driver = createRequire(import.meta.url).resolve('better-sqlite3');
    const closed = new Int32Array(new SharedArrayBuffer(4));
    const worker = new Worker(THREAD, { eval: true, workerData: { driver, path, synchronous, closed } });
    worker.unref();
    worker.on('message', (fault: string | null) => {
      idle = true;
      if (fault !== null) log.warn({ error: fault }, 'the write-ahead log was not copied');
    });
    worker.on('error', (err) => {
      log.warn({ err }, 'the thread that copies the write-ahead log failed; the writer copies it');
    });
    worker.on('exit', () => {
      thread = null;
      idle = true;
    });
    return { worker, closed };
  }
  return {
    committed() {
      commits += 1;
      if (commits < EVERY || !idle || shut) return;
      commits = 0;
      idle = false;
      try {
        thread ??= start();
        thread.worker.postMessage('copy');
      } catch (err) {
        idle = true;
        log.warn({ err }, 'no thread to copy the write-ahead log; the writer copies it');
      }
    },
    close() {
      shut = true;
      thread?.worker.postMessage('close');
      if (thread !== null) Atomics.wait(thread.closed, 0, 0, CLOSE_LIMIT_MS);
      thread = null;
    },
  };
}
