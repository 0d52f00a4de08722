// What a receiver was not told before a kill it is told after the restart (20 §7).
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import { until } from '../support/until.ts';
import { startWorld, type World } from './world.ts';

let world: World;
afterEach(() => world.close());

// Promise 20.12: Killed in between, each event is told after the restart, in order.
it('kill -9 while a receiver is down: each event reaches it in order once it is back, over the real process', async () => {
  let status = 503;
  const told: { id: string; taken: boolean }[] = [];
  const hook = createServer((request, response) => {
    request.resume().on('end', () => {
      told.push({ id: String(request.headers['metis-event-id']), taken: status < 300 });
      response.writeHead(status).end();
    });
  }).listen(0, '127.0.0.1');
  await once(hook, 'listening');
  try {
    const url = `http://127.0.0.1:${(hook.address() as AddressInfo).port}/`;
    const notify = ['--set', `notify=${JSON.stringify([{ url, events: ['turn.completed'] }])}`];
    world = await startWorld(() => ({ text: 'done' }));
    const first = await world.serve(...notify);
    const id = await world.session();
    for (const text of ['one', 'two', 'three']) await world.ended(id, await world.submit(id, text));
    await until(() => told.length > 0);
    await first.stop('SIGKILL');
    status = 200;
    await world.serveHere(...notify);
    await until(() => told.filter(({ taken }) => taken).length === 3);
    const ids = world.rows<{ id: string }>("SELECT id FROM events WHERE type = 'turn.completed' ORDER BY id");
    expect(told.filter(({ taken }) => taken).map((one) => one.id)).toEqual(ids.map((row) => row.id));
  } finally {
    hook.closeAllConnections();
    hook.close();
  }
});
