// Reads that outlive a restart of the database: asked again while that is of use (16 §3.4).

import { StorageFault } from '#core/ports/journal-writer.ts';
import type { Clock } from '#protocol/clock.ts';
import { AppError } from '#protocol/errors.ts';
import { isOutOfTime, isTooSlow, isTransient } from './faults.ts';
import { pause } from './pause.ts';
import type { Pool } from './pool.ts';

const AGAIN_MS = 100;

/**
 * The pool for whoever only reads.
 * @param ofUse asked before each attempt but the first; then what is still not answered throws `StorageFault`, as what
 * took longer than a statement may does at once. A report that took too long throws `storage_unavailable`
 */
export function patientReads(pool: Pool, clock: Clock, ofUse: () => boolean): Pool {
  async function patiently<T>(ask: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await ask();
      } catch (error) {
        if (!isTransient(error)) throw error;
        // Asked again it would take as long.
        if (isOutOfTime(error)) throw new StorageFault('the database took too long for a read', error);
        if (!ofUse()) throw new StorageFault('the database cannot be reached', error);
      }
      await pause(clock, AGAIN_MS);
    }
  }
  return {
    ...pool,
    send: (sql, values, integers) => patiently(() => pool.send(sql, values, integers)),
    atOneMoment: (work) => patiently(() => pool.atOneMoment(work)),
    report: (work) =>
      patiently(async () => {
        try {
          return await pool.report(work);
        } catch (error) {
          // Asked again it would take as long, and keep others from theirs.
          throw isTooSlow(error) ? tooSlow() : error;
        }
      }),
  };
}

function tooSlow(): AppError {
  return new AppError(
    'storage_unavailable',
    'the database took longer for this report than one may take; ask for a shorter window',
  );
}
