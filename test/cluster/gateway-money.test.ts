// Money of the gateway's calls on several nodes: a tree that is lost takes no money with it (14 §2, 19 §2.5).
import { describe, expect, test, vi } from 'vitest';
import { startNodes, type TestNode } from '../support/nodes.ts';
import { postgresService } from '../support/services.ts';
import { until } from '../support/until.ts';

const { url, missing } = await postgresService();
vi.setConfig({ testTimeout: 120_000 });

/** Fixture A: reserves more than $0.04. */
function message(node: TestNode, session: string): Promise<Response> {
  return fetch(`${node.url}/v1/messages`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-metis-session': session },
    body: JSON.stringify({
      model: 'claude-haiku-4-5',
      max_tokens: 8000,
      stream: true,
      messages: [{ role: 'user', content: [{ type: 'text', text: session }] }],
    }),
  });
}

describe.skipIf(url === null)(`money of gateway calls in a cluster${missing && `, skipped: ${missing}`}`, () => {
  // Promise 19.26: a call whose tree is lost releases its reservation.
  test('a call whose tree is lost gives its reservation back', async () => {
    let answer = () => {};
    const held = new Promise<void>((resolve) => {
      answer = resolve;
    });
    const nodes = await startNodes({
      database: url!,
      answer: async ({ user }) => {
        if (user === 'lost') await held;
        return { text: 'done', usage: { input: 10, output: 10 } };
      },
      set: { 'budgets.daily_usd': '0.06', 'gateway.wait_seconds': 1 },
    });
    const node = await nodes.start('a');
    const lost = message(node, 'lost');
    await until(() => nodes.fake.calls.length === 1);
    // The tree of the call is another node's from here on.
    await nodes.rows('UPDATE trees SET owner_epoch = owner_epoch + 1');
    answer();
    await (await lost).text().catch(() => '');

    const next = await message(node, 'next');
    expect([next.status, await next.text()]).toEqual([200, expect.stringContaining('done')]);
    expect(node.log()).not.toContain('could not be stored');
  });
});
