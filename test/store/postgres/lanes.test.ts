// Trees that share the one transaction of their kind do not hold each other up, and a lost answer costs none of them a batch (16 §3).

import pg from 'pg';
import { afterAll, describe, expect, test } from 'vitest';
import type { IdempotencyRow } from '#protocol/journal-batch.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { turnRecord, userMessage } from '../../support/records.ts';
import { ownSchema, postgresService } from '../../support/services.ts';
import { until } from '../../support/until.ts';
import { storedSession } from '../suite/nouns.ts';
import { NOON, type World } from '../suite/world.ts';
import { dropSchemas, openSchema, openWorld } from './world.ts';

const { url, missing } = await postgresService();
const startTurn = (world: World, session: SessionRecord) => {
  const turn = turnRecord(world, session);
  return {
    writes: [
      { kind: 'turn.insert', turn },
      { kind: 'message.insert', message: userMessage(world, turn, 'hello') },
    ],
    emit: [],
  } as const;
};

describe.skipIf(url === null)(`trees in one transaction${missing && `, skipped: ${missing}`}`, () => {
  afterAll(dropSchemas);

  test('a purge that waits for a row lets the commits of other trees go on', async () => {
    const world = await openWorld(url!);
    const [gone, other] = [await storedSession(world), await storedSession(world)];
    const holder = new pg.Client({ connectionString: world.url });
    await holder.connect();
    try {
      await holder.query('BEGIN');
      await holder.query('SELECT 1 FROM sessions WHERE id = $1 FOR UPDATE', [gone.id]);
      const purged = world.journal.purge(gone.id);
      const waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
      await until(async () => (await holder.query(waiting)).rows.length > 0);
      await world.journal.commit(startTurn(world, other));
      expect(await world.store.turns.open(other.id)).not.toBeNull();
      await holder.query('ROLLBACK');
      expect(await purged).toBe(1);
    } finally {
      await holder.end();
    }
  });

  test('what was stored before its answer was lost is not written again because something beside it was refused', async () => {
    const schema = await ownSchema(url!);
    let isLost = false;
    const world = await openSchema(schema.url, NOON, {
      through: (pool) => ({
        ...pool,
        async atOnce(statements) {
          await pool.atOnce(statements);
          if (!isLost) return;
          isLost = false;
          throw Object.assign(new Error('connection reset'), { code: 'ECONNRESET' });
        },
      }),
    });
    try {
      const session = await storedSession(world);
      const key: IdempotencyRow = {
        ...{ method: 'POST', path: '/sessions', token_hash: '', key: 'k', session_id: null, body_hash: 'h' },
        ...{ status: 201, response_json: '{}', expires_at: NOON + 1_000_000 },
      };
      isLost = true;
      const [started, kept] = await Promise.allSettled([
        world.journal.commit(startTurn(world, session)),
        // It cannot be written twice, and nothing tells that it was.
        world.journal.commit({ writes: [{ kind: 'idempotency.insert', row: key }], emit: [] }),
      ]);
      expect([started.status, kept.status]).toEqual(['fulfilled', 'rejected']);
      expect(await world.store.turns.open(session.id)).not.toBeNull();
    } finally {
      await world.close();
      await schema.drop();
    }
  });
});
