// Webhooks of a cluster: each event is told by one node, in the order of its session, also when that node dies (20 §7, 16 §9).
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, onTestFinished, test } from 'vitest';
import { startNodes } from '../support/nodes.ts';
import { postgresService } from '../support/services.ts';
import { until } from '../support/until.ts';

const { url, missing } = await postgresService();

async function receiver(status = 204) {
  const told: { id: string; session_id: string; type: string }[] = [];
  const server = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (part: string) => {
      body += part;
    });
    request.on('end', () => {
      told.push(JSON.parse(body).event);
      response.writeHead(status).end();
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { told, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook` };
}

describe.skipIf(url === null)(`webhooks of a cluster${missing && `, skipped: ${missing}`}`, () => {
  test('two nodes tell each event once; when the one that tells is killed, the other goes on where it stood', async () => {
    const hook = await receiver();
    const cluster = await startNodes({
      database: url!,
      answer: () => ({ text: 'done' }),
      set: { notify: [{ url: hook.url, events: ['turn.completed'] }] },
    });
    const [a, b] = await Promise.all([cluster.start('a'), cluster.start('b')]);
    const workspace = cluster.workspace('one');
    const [first, second] = [await a.session(workspace), await b.session(workspace)];
    for (let i = 0; i < 3; i++) await Promise.all([a.turn(first, 'go'), b.turn(second, 'go')]);
    await until(() => hook.told.length >= 6);
    const allTold = () => until(async () => (await cluster.rows('SELECT 1 FROM notices')).length === 0);
    await allTold();
    expect(hook.told).toHaveLength(6);
    for (const session of [first, second]) {
      const ids = hook.told.filter((one) => one.session_id === session).map(({ id }) => id);
      expect(ids).toEqual(ids.toSorted());
      expect(ids).toHaveLength(3);
    }

    // One of the two told; so one of these kills was its.
    await a.kill();
    await b.turn(second, 'after the first');
    await until(() => hook.told.length === 7);
    await allTold();
    const c = await cluster.start('c');
    await b.kill();
    await c.turn(await c.session(workspace), 'after the second');
    await until(() => hook.told.length === 8);
    expect(new Set(hook.told.map(({ id }) => id)).size).toBe(8);
  });

  // Promise 20.12: in a cluster one that is down silences no other after the lock's connection broke.
  test('after the connection with the lock broke, a receiver that is down does not silence another', async () => {
    const [down, well] = [await receiver(503), await receiver()];
    const cluster = await startNodes({
      database: url!,
      answer: () => ({ text: 'done' }),
      set: { notify: [down, well].map((hook) => ({ url: hook.url, events: ['turn.completed'] })) },
    });
    const a = await cluster.startHere('a');
    const session = await a.session(cluster.workspace('one'));
    await a.turn(session, 'before');
    await until(() => well.told.length === 1 && down.told.length > 0);
    const holders = () =>
      cluster.rows(
        `SELECT l.pid FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
          WHERE l.locktype = 'advisory' AND a.application_name = $1`,
        cluster.schema.name,
      );
    const [broken] = await holders();
    await cluster.rows('SELECT pg_terminate_backend($1)', broken!.pid);
    await until(async () => (await holders()).some(({ pid }) => pid !== broken!.pid));
    await a.turn(session, 'after');
    await until(() => well.told.length === 2);
  });
});
