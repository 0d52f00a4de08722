// A database that is not there, or does not take this server, ends the start with one line (16 §11).
import { describe, expect, test } from 'vitest';
import { silentLogger } from '#core/ports/logger.ts';
import { systemClock } from '#protocol/clock.ts';
import { openDatabase } from '#store/postgres/connection/open.ts';
import { postgresService } from '../../support/services.ts';
import { MIGRATIONS } from './world.ts';

const { url, missing } = await postgresService();
const open = (at: string) =>
  openDatabase({
    url: at,
    size: 2,
    synchronousCommit: 'on',
    log: silentLogger,
    migrationsDir: MIGRATIONS,
    clock: systemClock,
    patienceMs: 0,
  });

test('a server that does not answer is database_unreachable, with its address and without the password', async () => {
  const fault = open('postgres://metis:secret@127.0.0.1:1/metis');
  await expect(fault).rejects.toMatchObject({ code: 'database_unreachable', problems: [expect.any(String)] });
  await expect(fault).rejects.toThrow(/postgres:\/\/metis@127\.0\.0\.1:1\/metis .*ECONNREFUSED.*check database\.url$/);
  await expect(fault).rejects.not.toThrow(/secret/);
});

describe.skipIf(url === null)(`opening PostgreSQL${missing && `, skipped: ${missing}`}`, () => {
  test('a database that does not exist is database_refused at once', async () => {
    const wrong = new URL(url!);
    wrong.pathname = '/metis_has_no_such_database';
    await expect(open(wrong.href)).rejects.toMatchObject({
      code: 'database_refused',
      problems: [expect.stringContaining('metis_has_no_such_database')],
    });
  });
});
