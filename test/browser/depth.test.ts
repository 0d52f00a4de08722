// Workers of workers in a real browser: what each cost by itself, with those below it, and in all (04 §11, 17 §3).
import { describe, expect, test } from 'vitest';
import { exactUsd } from '#dashboard/format/format.ts';
import { fromPusd, sumPusd, toPusd } from '#protocol/money.ts';
import { delegate, planner, scenario, worker } from '../support/scenario.ts';
import { until } from '../support/until.ts';
import { browserEndpoint, openTab } from './page.ts';
import { startBrowserServer } from './server.ts';

const usage = (input_tokens: number) => ({ usage: { input_tokens, output_tokens: 11 } });

describe.skipIf(browserEndpoint === null)('workers of workers', () => {
  test('are summed at any depth: in the session, its list, a worker of it, the live tree and the reports', async () => {
    const { url, client, workspace } = await startBrowserServer({
      config: { delegation: { max_depth: 3, delegate_depth: 3 } },
      scenario: scenario(
        planner(
          { tool_calls: [delegate('outer work', { tier: 'deep' })], ...usage(100) },
          { text: 'done', ...usage(10) },
        ),
        worker('outer work', { tool_calls: [delegate('inner work')], ...usage(200) }, { text: 'did', ...usage(20) }),
        worker('inner work', { text: 'found', ...usage(400) }),
      ),
    });
    const session = await client.createSession({ workspace_path: workspace });
    await client.submitTurn(session.id, { content: 'two levels' });
    await until(
      async () =>
        (await client.getSession(session.id)).turn_count > 0 && (await client.getSession(session.id)).status === 'idle',
    );
    const { workers } = await client.listWorkers(session.id, { recursive: true });
    const outer = workers.find(({ parent_session_id }) => parent_session_id === session.id)!;
    const inner = workers.find(({ parent_session_id }) => parent_session_id === outer.worker_session_id)!;
    const own = (await client.getSession(session.id)).cost_so_far_usd;
    const cost = { outer: outer.usage_summary.cost_usd, inner: inner.usage_summary.cost_usd };
    const sum = (...usd: string[]) => exactUsd(fromPusd(sumPusd(usd.map(toPusd))));
    const all = sum(own, cost.outer, cost.inner);
    expect(new Set([own, cost.outer, cost.inner]).size).toBe(3);

    const { page, errors } = await openTab(`${url}/#/sessions/${session.id}`);
    const heads = async () =>
      page.locator('.session-costs .number').evaluateAll((cells) => cells.map((cell) => cell.getAttribute('title')));
    await page.locator('.turn-end').waitFor();
    expect(await heads()).toEqual([exactUsd(own), sum(cost.outer, cost.inner), all]);
    const card = page.getByRole('article', { name: 'Delegation: outer work' });
    await card.getByText('with workers').waitFor();
    await card.getByTitle(sum(cost.outer, cost.inner), { exact: true }).waitFor();

    await page.getByRole('link', { name: 'Live tree' }).click();
    const panes = page.getByRole('article');
    await panes.nth(2).waitFor();
    await panes.nth(2).getByText('of worker 1').waitFor();
    await panes.nth(1).getByTitle(exactUsd(cost.outer), { exact: true }).waitFor();
    await panes.nth(1).getByTitle(sum(cost.outer, cost.inner), { exact: true }).waitFor();
    // Their tokens come from the ledger, at every depth.
    await page.reload();
    await panes.nth(2).getByTitle('411 tokens in and out').waitFor();

    await page.goto(`${url}/#/sessions/${outer.worker_session_id}`);
    await until(
      async () =>
        (await heads()).join() === [exactUsd(cost.outer), exactUsd(cost.inner), sum(cost.outer, cost.inner)].join(),
    );
    await page.getByRole('link', { name: 'Live tree' }).click();
    await panes.first().getByTitle('242 tokens in and out').waitFor();

    await page.goto(`${url}/#/cost?range=all`);
    const row = page.locator('.cost-table tbody').filter({ hasText: 'two levels' });
    await row.getByTitle(all, { exact: true }).waitFor();
    expect(await page.locator('.cost-table tbody').count()).toBe(1);
    await row.getByRole('button', { name: 'two levels' }).click();
    const names = () => page.locator('.cost-table tr.nested th').allTextContents();
    await until(async () => (await names()).length === 3);
    expect((await names()).map((name) => name.replace('worker', ''))).toEqual(['Planner', 'outer work', 'inner work']);
    const costs = page.locator('.cost-table tr.nested td.strong .number');
    expect(await costs.evaluateAll((cells) => cells.map((cell) => cell.getAttribute('title')))).toEqual(
      [own, cost.outer, cost.inner].map(exactUsd),
    );
    await page.goto(`${url}/#/overview?range=all`);
    const mostExpensive = page.locator('.list-panel').filter({ hasText: 'Most expensive sessions' }).locator('li');
    await mostExpensive.getByTitle(all, { exact: true }).waitFor();
    expect(await mostExpensive.count()).toBe(1);
    await page.goto(`${url}/#/sessions`);
    await page.getByRole('row').filter({ hasText: 'two levels' }).getByTitle(all, { exact: true }).waitFor();
    expect(errors).toEqual([]);
  });
});
