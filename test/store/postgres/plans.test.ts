// A commit finds its session by its key, although PostgreSQL has no statistics of the table yet (16 §3.3).

import pg from 'pg';
import { describe, expect, test } from 'vitest';
import { ownSchema, postgresService } from '../../support/services.ts';
import { endTurn, storedSession, storedTurn } from '../suite/nouns.ts';
import { NOON } from '../suite/world.ts';
import { openSchema } from './world.ts';

const SESSIONS = 200;
const TURNS = 30;
const READS_PER_TURN = 20;
const { url, missing } = await postgresService();

describe.skipIf(url === null)(`a commit${missing && `, skipped: ${missing}`}`, () => {
  test('reads its own session, however many others are active', async () => {
    const schema = await ownSchema(url!);
    const client = new pg.Client({ connectionString: schema.url });
    await client.connect();
    try {
      const world = await openSchema(schema.url, NOON);
      const [session] = await Promise.all(Array.from({ length: SESSIONS }, () => storedSession(world)));
      for (let i = 0; i < TURNS; i++) await endTurn(world, await storedTurn(world, session!));
      // A connection that ends reports what it read.
      await world.close();
      const { rows } = await client.query<{ read: number }>(
        `SELECT CAST(idx_tup_fetch AS integer) AS read FROM pg_stat_user_tables
         WHERE schemaname = current_schema() AND relname = 'sessions'`,
      );
      expect(rows[0]!.read).toBeGreaterThan(TURNS);
      expect(rows[0]!.read).toBeLessThan(TURNS * READS_PER_TURN);
    } finally {
      await client.end();
      await schema.drop();
    }
  });
});
