// Sessions that came in by the gateway, in a real browser: told apart by door and client, and their cost by door and caller (19).
import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { exactUsd } from '#dashboard/format/format.ts';
import { claudeCode, startGateway } from '../api/gateway/world.ts';
import { until } from '../support/until.ts';
import { browserEndpoint, expectWhole, openTab } from './page.ts';

const bearer = (key: string) => ({ authorization: `Bearer ${key}` });
const entry = (key: string) => ({ token_sha256: createHash('sha256').update(key).digest('hex'), daily_usd: null });

/** A tree of Claude Code with one sub-agent under a key, one of another client under another, and a session of the API. */
async function startWithDoors() {
  const config = { gateway: { keys: { laptop: entry('first'), ci: entry('second') } } };
  const { server, folder, post } = await startGateway(() => ({ usage: { input: 1000, output: 100 } }), { config });
  const say = async (content: string, headers: Readonly<Record<string, string>>) => {
    const body = { model: 'claude-opus-4-7', max_tokens: 50, messages: [{ role: 'user', content }] };
    const answer = await post('/v1/messages', body, headers);
    expect(answer.status).toBe(200);
    await answer.text();
  };
  await say('of the planner', { ...bearer('first'), ...claudeCode('s1') });
  await say('of the worker', { ...bearer('first'), ...claudeCode('s1', 'a1', undefined, 'Explore') });
  await say('of another', { ...bearer('second'), 'x-metis-session': 's2', 'user-agent': 'curl/8.0' });
  const plain = await server.client.getSession(await server.session(folder, 'opus'));
  expect((await server.turn(plain.id, 'of the API')).status).toBe('completed');
  const { sessions } = await server.client.listSessions({ door: 'gateway' });
  const named = (client: string) => sessions.find((session) => session.client?.startsWith(client))!;
  return { server, plain, claude: named('claude-cli'), curl: named('curl') };
}

describe.skipIf(browserEndpoint === null)('sessions of the gateway', () => {
  // Promise 17.8: at 400 px nothing of a gateway's session, in the list and on its page, is cut off.
  test('are told apart by door and client in the list, filtered by door in the address, and whole on their page', async () => {
    const { server, plain, claude, curl } = await startWithDoors();
    const { page, errors } = await openTab(`${server.url}/#/sessions`);
    const row = (id: string) => page.getByRole('row').filter({ has: page.locator(`a[href="#/sessions/${id}"]`) });
    await row(claude.id).getByText(claude.client!, { exact: true }).waitFor();
    await row(curl.id).getByText(curl.client!, { exact: true }).waitFor();
    await row(curl.id).getByRole('link', { name: curl.client_ref! }).waitFor();
    await row(plain.id).waitFor();
    expect(await row(plain.id).locator('.door').count()).toBe(0);

    await page.getByRole('button', { name: /^Source / }).click();
    await page.getByRole('menuitemradio', { name: 'Gateway' }).click();
    await page.waitForURL(/sessions\?door=gateway$/);
    await row(plain.id).waitFor({ state: 'detached' });
    await row(claude.id).waitFor();
    const { page: other, errors: theirs } = await openTab(page.url());
    await other.getByRole('row').filter({ hasText: curl.client! }).waitFor();
    expect(await other.locator(`a[href="#/sessions/${plain.id}"]`).count()).toBe(0);
    await expectWhole(page, 'the list');

    await row(claude.id).getByRole('link').click();
    for (const fact of ['Source: Gateway', `Client: ${claude.client}`, 'Caller: laptop'])
      await page.getByText(fact, { exact: true }).waitFor();
    // It opens on its calls, those of its worker included; the conversation is its client's.
    const timeline = page.getByRole('region', { name: 'Timeline' });
    const bars = timeline.getByRole('listitem').filter({ hasText: 'claude-opus-4-7' });
    await until(async () => (await bars.count()) === 2);
    await bars.filter({ hasText: 'Explore' }).waitFor();
    expect(await timeline.getByText('running').count()).toBe(0);
    expect(await page.getByRole('textbox').count()).toBe(0);
    await expectWhole(page, 'the session');
    await page.getByRole('button', { name: /^Show last hour/ }).click();
    await page.getByRole('menuitemradio', { name: 'last 10 minutes' }).click();
    await until(async () => (await bars.count()) === 2);
    await page.getByRole('link', { name: 'Conversation' }).click();
    await page.getByRole('heading', { name: 'The client keeps the conversation' }).waitFor();
    await expectWhole(page, 'its conversation');
    expect([...errors, ...theirs]).toEqual([]);
  });

  test('without a workspace are no choice of the workers', async () => {
    const { server, post } = await startGateway(() => ({ usage: { input: 1000, output: 100 } }), {});
    const body = { model: 'claude-opus-4-7', max_tokens: 50, messages: [{ role: 'user', content: 'hi' }] };
    await (await post('/v1/messages', body, claudeCode('s1'))).text();
    const { page, errors } = await openTab(`${server.url}/#/workers`);
    await page.getByRole('heading', { name: 'No workspace yet' }).waitFor();
    expect(errors).toEqual([]);
  });

  test('say which cap would let a refused call pass, also to who comes later, until the cap is another', async () => {
    const { server, post } = await startGateway(() => ({ usage: { input: 100, output: 5000 } }));
    const headers = { ...claudeCode('s1'), 'x-metis-budget-usd': '0.4' };
    const ask = async (max_tokens: number) =>
      (await post('/v1/messages', { model: 'claude-opus-4-7', max_tokens, messages: [] }, headers)).status;
    expect([await ask(5000), await ask(5000)]).toEqual([200, 402]);
    const [session] = (await server.client.listSessions({ door: 'gateway' })).sessions;
    const { page, errors } = await openTab(`${server.url}/#/sessions/${session!.id}`);
    const told = await page.getByText('A call did not fit into the cap of $0.40: $0.3765 spent').textContent();
    const [, cap] = /A cap of \$([\d.]+) lets it pass/.exec(told!)!;
    await expectWhole(page, 'the session');
    expect(await page.getByLabel('New cap').inputValue()).toBe(cap!.replace(/0+$/, ''));
    await page.getByRole('button', { name: 'Raise' }).click();
    await page.getByText('A call did not fit').waitFor({ state: 'detached' });
    expect(await ask(4096)).toBe(200);
    expect(errors).toEqual([]);
  });

  // Promise 17.8: the cost view's total equals `/analytics/cost` by door and by caller.
  test('have their cost grouped and filtered by door and by caller, to the last digit', async () => {
    const { server } = await startWithDoors();
    const { page, errors } = await openTab(`${server.url}/#/cost`);
    const choose = async (menu: string, choice: string) => {
      await page.getByRole('button', { name: new RegExp(`^${menu} `) }).click();
      await page.getByRole('menuitemradio', { name: choice }).click();
    };
    const total = page.locator('[data-total]');
    const spent = async (filter: { readonly door?: 'gateway'; readonly caller?: string }) => {
      const { totals } = await server.client.getCost({ from: 'all', group_by: 'none', ...filter });
      expect(totals.call_count).toBeGreaterThan(0);
      return exactUsd(totals.cost_usd);
    };
    await choose('Group by', 'Source');
    await page.getByRole('rowheader', { name: 'Gateway', exact: true }).getByRole('link').click();
    await page.waitForURL(/door=gateway/);
    await total.getByTitle(await spent({ door: 'gateway' }), { exact: true }).waitFor();
    await choose('Group by', 'Caller');
    await page.getByRole('rowheader', { name: 'laptop' }).waitFor();
    await expectWhole(page, 'the cost');
    await choose('Caller', 'laptop');
    await page.waitForURL(/caller=laptop/);
    await total.getByTitle(await spent({ caller: 'laptop' }), { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Clear' }).click();
    await choose('Caller', 'Without a key');
    await page.waitForURL(/caller=(&|$)/);
    await total.getByTitle(await spent({ caller: '' }), { exact: true }).waitFor();
    expect(errors).toEqual([]);
  });
});
