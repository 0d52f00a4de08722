// Calls of the gateway that a kill cut off are closed at the next start, and hold no money (19 §2.2).
import { afterEach, expect, it } from 'vitest';
import { until } from '../support/until.ts';
import { startWorld, type World } from './world.ts';

let world: World;
afterEach(() => world.close());

// Promise 19.14: kill -9 with open calls: each failed after the restart, and a call that needs what they held is made.
it('kill -9 with open calls: each is a failed one after the restart, nothing is reserved, and a call that needs what they held goes on', async () => {
  let held = true;
  world = await startWorld(() => (held ? new Promise(() => {}) : { text: 'done', usage: { input: 10, output: 5 } }));
  const first = await world.serve();
  const ask = (agent?: string) =>
    fetch(`${world.url}/v1/messages`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        'x-metis-session': 's1',
        // Two calls of $0.12 fit, and not a third beside them.
        'x-metis-budget-usd': '0.3',
        ...(agent === undefined ? {} : { 'x-metis-agent': agent }),
      },
      body: JSON.stringify({ model: 'planner', max_tokens: 8000, messages: [{ role: 'user', content: 'hi' }] }),
    });
  const open = [ask(), ask('a')].map((call) => call.catch(() => null));
  await until(() => world.provider.calls.length === 2);
  const { sessions } = await world.client.listSessions({ door: 'gateway' });
  expect(Number(sessions[0]!.budget!.reserved_usd)).toBeGreaterThan(0.24);
  await first.stop('SIGKILL');
  await Promise.all(open);
  held = false;
  await world.serveHere();
  const failed = world.rows<{ session_id: string; payload_json: string }>(
    "SELECT session_id, payload_json FROM events WHERE type = 'llm.call_failed'",
  );
  expect(failed).toHaveLength(2);
  expect(new Set(failed.map(({ session_id }) => session_id)).size).toBe(2);
  const [root] = (await world.client.listSessions({ door: 'gateway' })).sessions;
  expect(root!.budget).toMatchObject({ reserved_usd: '0', spent_usd: '0' });
  const next = await ask();
  expect([next.status, next.headers.get('x-metis-session')]).toEqual([200, root!.id]);
  await next.text();
  const closed = world.rows("SELECT id FROM events WHERE type = 'llm.call_failed'");
  expect(closed).toHaveLength(2);
});
