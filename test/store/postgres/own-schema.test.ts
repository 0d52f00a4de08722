// Schemas of tests that were killed go with the next run, and those of tests that run now stay.
import { expect, onTestFinished, test } from 'vitest';
import { silentLogger } from '#core/ports/logger.ts';
import { createPool } from '#store/postgres/connection/pool.ts';
import { ownSchema, postgresService } from '../../support/services.ts';
import { until } from '../../support/until.ts';

const { url, missing } = await postgresService();
const HOUR_MS = 3_600_000;

test.skipIf(url === null)(
  `a schema that a test left behind is dropped after an hour${missing && `, skipped: ${missing}`}`,
  async () => {
    const old = await ownSchema(url!, Date.now() - HOUR_MS - 1000);
    const young = await ownSchema(url!);
    onTestFinished(() => young.drop());
    const pool = createPool({ url: url!, size: 1, synchronousCommit: 'on', log: silentLogger });
    onTestFinished(() => pool.close());
    const there = async (name: string) =>
      (await pool.send('SELECT 1 FROM pg_namespace WHERE nspname = ?', [name])).rows.length === 1;
    expect([await there(old.name), await there(young.name)]).toEqual([true, true]);
    // Whoever else starts now may be the one who drops it.
    await until(async () => (await postgresService()) && !(await there(old.name)));
    expect(await there(young.name)).toBe(true);
  },
);
