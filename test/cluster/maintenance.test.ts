// What reaches over the whole database of a cluster: one at a time, from any node and from the command line (16 §9).
import { describe, expect, onTestFinished, test } from 'vitest';
import { maintenance } from '#store/postgres/connection/pool.ts';
import { rebuildRollups } from '#store/postgres/write/postgres-maintenance.ts';
import { runHere } from '../app/here.ts';
import { temporaryHome } from '../app/metis.ts';
import { openSchema } from '../store/postgres/world.ts';
import { storedSession } from '../store/suite/nouns.ts';
import { NOON } from '../store/suite/world.ts';
import { callCompleted, systemEvent } from '../support/drafts.ts';
import { ownSchema, postgresService } from '../support/services.ts';

const { url, missing } = await postgresService();

describe.skipIf(url === null)(`maintenance of a cluster${missing && `, skipped: ${missing}`}`, () => {
  async function twoNodes() {
    const schema = await ownSchema(url!);
    onTestFinished(() => schema.drop());
    const a = await openSchema(schema.url, NOON, { name: 'a' });
    const b = await openSchema(schema.url, NOON, { name: 'b' });
    const session = await storedSession(a);
    for (let i = 0; i < 6; i++) {
      await a.journal.commit({
        emit: Array.from({ length: 1000 }, () => systemEvent('x', { session_id: session.id })),
      });
    }
    await a.journal.commit({ emit: [callCompleted(a, session, null, { cost_usd: '0.01' })] });
    return { schema, a, b, session };
  }

  test('while one node is at it, another gets maintenance_running for pruning and for the rollups; then it may', async () => {
    const { a, b, session } = await twoNodes();
    let done = () => {};
    let atWork = Promise.resolve();
    await new Promise<void>((begun) => {
      atWork = maintenance(a.pool, () => {
        begun();
        return new Promise<void>((resolve) => {
          done = resolve;
        });
      });
    });
    await expect(b.journal.prune(NOON + 1, false)).rejects.toMatchObject({ code: 'maintenance_running' });
    await expect(rebuildRollups(b.pool)).rejects.toMatchObject({ code: 'maintenance_running' });
    done();
    await atWork;
    expect(await b.journal.prune(NOON + 1, false)).toMatchObject({ rows_deleted: 6001 });
    expect(await b.store.events.prunedThrough(session.id)).not.toBeNull();
    await rebuildRollups(b.pool);
    expect(await b.differences()).toEqual([]);
  });

  test('the commands work on the database itself; a copy is left to pg_dump', async () => {
    const { schema, a } = await twoNodes();
    const home = temporaryHome();
    onTestFinished(home.remove);
    const metis = (...args: string[]) => runHere(args, { home: home.path, env: { METIS_DATABASE_URL: schema.url } });
    await a.execute('UPDATE rollup_day SET cost_pusd = 0');
    const [wrong, copied] = await Promise.all([metis('rollups', 'verify'), metis('backup', 'copy.db')]);
    expect(wrong).toMatchObject({ code: 1, stdout: expect.stringContaining('rollup_day') });
    expect(copied).toMatchObject({ code: 1, stderr: expect.stringContaining('pg_dump') });
    expect(await metis('rollups', 'rebuild')).toMatchObject({ code: 0, stdout: 'rollups made again from 1 calls\n' });
    const [right, pruned] = await Promise.all([metis('rollups', 'verify'), metis('prune', '--days', '1')]);
    expect(right).toMatchObject({ code: 0, stdout: 'rollups and ledger agree: 1 calls\n' });
    expect(pruned).toMatchObject({ code: 0, stdout: expect.stringContaining('deleted 6001 events') });
  });
});
