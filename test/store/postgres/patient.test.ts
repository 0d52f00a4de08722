// Reads that are asked again while that is of use (16 §3).
import { describe, expect, onTestFinished, test } from 'vitest';
import { silentLogger } from '#core/ports/logger.ts';
import { systemClock } from '#protocol/clock.ts';
import { patientReads } from '#store/postgres/connection/patient-reads.ts';
import { createPool } from '#store/postgres/connection/pool.ts';
import { postgresService } from '../../support/services.ts';

const { url, missing } = await postgresService();

describe.skipIf(url === null)(`patient reads${missing && `, skipped: ${missing}`}`, () => {
  test('a report that takes too long is told so once; one that a fault cut off is asked again', async () => {
    const pool = createPool({ url: url!, size: 1, synchronousCommit: 'on', statementMs: 200, log: silentLogger });
    onTestFinished(() => pool.close());
    const reads = patientReads(pool, systemClock, () => true);
    let asked = 0;
    const slow = reads.report((send) => {
      asked += 1;
      return send('SELECT pg_sleep(60)', []);
    });
    await expect(slow).rejects.toMatchObject({
      code: 'storage_unavailable',
      message: expect.stringContaining('longer'),
    });
    expect(asked).toBe(1);
    const cut = reads.report(async (send) => {
      asked += 1;
      if (asked === 2) await send('SELECT pg_terminate_backend(pg_backend_pid())', []);
      return (await send<{ n: number }>('SELECT 1 AS n', [])).rows[0]?.n;
    });
    expect(await cut).toBe(1);
    expect(asked).toBe(3);
  });

  test('a read that the database cut off for its length is a fault at once, not asked again', async () => {
    const pool = createPool({ url: url!, size: 1, synchronousCommit: 'on', statementMs: 200, log: silentLogger });
    onTestFinished(() => pool.close());
    let attempts = 0;
    const counted = {
      ...pool,
      send: ((...args: Parameters<typeof pool.send>) => {
        attempts += 1;
        return pool.send(...args);
      }) as typeof pool.send,
    };
    const reads = patientReads(counted, systemClock, () => attempts < 3);
    await expect(reads.send('SELECT pg_sleep(60)', [])).rejects.toThrow('took too long');
    expect(attempts).toBe(1);
  });
});
