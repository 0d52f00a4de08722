// Tokens of several nodes on one database (23 §2).
import pg from 'pg';
import { afterAll, describe, expect, test } from 'vitest';
import { postgresService } from '../../support/services.ts';
import { until } from '../../support/until.ts';
import { NOON } from '../suite/world.ts';
import { dropSchemas, openWorld } from './world.ts';

const { url, missing } = await postgresService();

describe.skipIf(url === null)(`tokens on PostgreSQL${missing && `, skipped: ${missing}`}`, () => {
  afterAll(dropSchemas);

  // Promise 23.8: of the last two admins' tokens, revoked at one moment on two nodes, one is left.
  test('a revocation waits for that of another node, and is refused where it took the last other admin', async () => {
    const world = await openWorld(url!);
    const token = (id: string) => ({
      id,
      name: id,
      token_sha256: id.padEnd(64, '0'),
      role: 'admin' as const,
      daily_usd: null,
      monthly_usd: null,
      workspaces: null,
      expires_at: null,
      created_by: null,
      created_at: NOON,
      revoked_at: null,
    });
    const writes = ['T1', 'T2'].map((id) => ({ kind: 'token.insert', token: token(id) }) as const);
    await world.journal.commit({ writes, emit: [] });
    const other = new pg.Client({ connectionString: world.url });
    const watch = new pg.Client({ connectionString: world.url });
    await Promise.all([other.connect(), watch.connect()]);
    try {
      await other.query('BEGIN');
      await other.query("UPDATE tokens SET revoked_at = 1 WHERE id = 'T1'");
      const { rows } = await other.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
      const revoke = { kind: 'token.revoke', id: 'T2', at: NOON, other_admins: 0 } as const;
      const result = world.journal.commit({ writes: [revoke], emit: [] }).then(
        () => 'revoked',
        (error: Error) => error.message,
      );
      const isWaiting = 'SELECT 1 FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid))';
      await until(async () => (await watch.query(isWaiting, [rows[0]!.pid])).rowCount === 1);
      await other.query('COMMIT');
      expect(await result).toContain('last of an admin');
    } finally {
      await Promise.all([other.end(), watch.end()]);
    }
    await world.close();
  });
});
