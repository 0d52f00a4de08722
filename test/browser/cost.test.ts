// The cost view in a real browser: figures equal to the interface's, drill-down, links that can be shared, CSV (17 §3).
import fs from 'node:fs';
import path from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { exactUsd, modelName } from '#dashboard/format/format.ts';
import { draft } from '#protocol/event.ts';
import { fromPusd, sumPusd, toPusd } from '#protocol/money.ts';
import { SLOTS } from '#protocol/route.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { callCompleted } from '../support/drafts.ts';
import { notApplicable } from '../support/route-chain.ts';
import { scenario } from '../support/scenario.ts';
import { until } from '../support/until.ts';
import { seedLedger, shiftedClock } from './ledger.ts';
import { browserEndpoint, expectWhole, openTab } from './page.ts';
import { type BrowserServer, startBrowserServer } from './server.ts';

/** A decision about the calls of a session that belong to no turn. */
function stickyDecision({ id }: SessionRecord, model: string) {
  const chose = { verdict: 'chose', candidate_model: model } as const;
  return draft({
    type: 'route.decided',
    session_id: id,
    turn_id: null,
    parent: null,
    payload: {
      chosen_model: model,
      chosen_effort: null,
      winner_index: 1,
      elapsed_ms: 0,
      refused: null,
      fallback_costlier: false,
      chain: SLOTS.map((policy) => notApplicable(policy, policy === 'manual_sticky' ? chose : {})),
      requested_model: null,
      facts: {
        estimated_input_tokens: 10,
        smallest_input_tokens: null,
        is_worker: false,
        message_has_images: false,
        needs: [],
        document_media_types: [],
        matched: [],
        unmatched: [],
        worker_model: null,
        worker_tier: null,
        worker_effort: null,
        requested: null,
      },
    },
  });
}

describe.skipIf(browserEndpoint === null)('the cost view', () => {
  let server: BrowserServer;
  let planners: readonly SessionRecord[];
  const closers: (() => Promise<void>)[] = [];
  beforeAll(async () => {
    const clock = shiftedClock();
    server = await startBrowserServer({ scenario: scenario(), clock }, (close) => closers.push(close));
    planners = await seedLedger(server, clock, { trees: 12, days: 40 });
  });
  afterAll(() => Promise.all(closers.map((close) => close())));

  const open = (query = '') => openTab(`${server.url}/#/cost${query}`);
  const total = (page: Page) => page.locator('[data-total]');
  const choose = async (page: Page, menu: string, choice: string) => {
    await page.getByRole('button', { name: new RegExp(`^${menu} `) }).click();
    await page.getByRole('menuitemradio', { name: choice }).click();
  };

  // Promise 17.8: the total of the cost view equals `/analytics/cost` for every range and filter.
  test('shows the total of /analytics/cost to the last digit, for every range, and a link to it shows the same', async () => {
    const { page, errors, origins } = await open('?range=all');
    const all = await server.client.getCost({ from: 'all', group_by: 'none' });
    expect(all.totals.cost_usd).toMatch(/\.\d{10,}$/);
    await total(page).getByTitle(exactUsd(all.totals.cost_usd), { exact: true }).waitFor();
    await choose(page, 'Range', '30 days');
    await page.waitForURL(/range=30d/);
    const month = new Date(Math.floor(Date.now() / 86_400_000 - 29) * 86_400_000).toISOString();
    const recent = await server.client.getCost({ from: month, group_by: 'none' });
    expect(recent.totals.call_count).toBeLessThan(all.totals.call_count);
    await total(page).getByTitle(exactUsd(recent.totals.cost_usd), { exact: true }).waitFor();
    await choose(page, 'Group by', 'Model');
    await page.getByRole('rowheader', { name: 'deep' }).waitFor();
    await choose(page, 'Model', 'deep');
    const deep = await server.client.getCost({ from: month, group_by: 'none', model: 'scripted:deep' });
    await total(page).getByTitle(exactUsd(deep.totals.cost_usd), { exact: true }).waitFor();
    const { page: other } = await openTab(page.url());
    await total(other).getByTitle(exactUsd(deep.totals.cost_usd), { exact: true }).waitFor();
    await other.getByRole('rowheader', { name: 'deep' }).waitFor();
    expect(errors).toEqual([]);
    expect([...origins]).toEqual([new URL(server.url).origin]);
  });

  test('unfolds a tree into its sessions and a worker into its calls, each with what the interface says', async () => {
    const { page, errors } = await open('?range=all');
    const tree = planners.at(-1)!;
    await page.getByRole('button', { name: 'Port the parser (12)' }).press('Enter');
    const rows = page.locator('.cost-table tr.nested');
    await rows.nth(3).waitFor();
    const report = await server.client.getCost({ from: 'all', parent_session: tree.id, group_by: 'session,model' });
    const cost = (row: ReturnType<typeof rows.nth>) =>
      row.locator('td').last().locator('.number').getAttribute('title');
    const shown = await Promise.all((await rows.all()).map(cost));
    expect(shown.toSorted()).toEqual(report.data.map((row) => exactUsd(row.cost_usd)).toSorted());
    await rows.filter({ hasText: 'reviewer' }).getByRole('button').click();
    const calls = page.locator('.cost-table tr.call');
    await calls.nth(1).waitFor();
    const worker = report.data.find((row) => row.model === 'scripted:balanced')!;
    await rows.filter({ hasText: 'balanced' }).getByRole('button').click();
    const { events } = await server.client.listEvents(worker.session_id!, { types: ['llm.call_completed'] });
    for (const { payload } of events) {
      if (!('cost_usd' in payload)) throw new Error('not a call');
      await calls.getByTitle(exactUsd(payload.cost_usd)).waitFor();
    }
    expect(errors).toEqual([]);
  });

  test('links each row to its session, and going back keeps the filter', async () => {
    const { page, errors } = await open('?range=all&model=scripted%3Abalanced');
    const row = page.getByRole('row').filter({ hasText: 'Port the parser (12)' });
    const link = row.getByRole('link');
    const { id, workspace_path } = planners.at(-1)!;
    const session = await server.client.getSession(id);
    const text = `${session.created_at.slice(0, 10)} · ${path.basename(workspace_path)} · ${id}`;
    await link.getByText(text).waitFor();
    const amounts = await page
      .locator('.cost-table td .number[title^="$"], .stat-figure [title^="$"]')
      .evaluateAll((all) => all.map((one) => one.textContent));
    expect(amounts.length).toBeGreaterThan(5);
    for (const amount of amounts) expect(amount).toMatch(/^(\$[\d,]+\.\d\d|<\$0\.01)$/);
    // Its id is whole where there is room for it.
    await page.setViewportSize({ width: 1440, height: 900 });
    expect(await link.evaluate((text) => text.scrollWidth <= text.clientWidth)).toBe(true);
    await link.click();
    await page.waitForURL(/sessions\/sess_/);
    await page.goBack();
    await page.waitForURL(/model=scripted/);
    await row.waitFor();
    await page.getByRole('button', { name: /^Model balanced/ }).waitFor();
    expect(errors).toEqual([]);
  });

  test('sets stamped beside current prices, and the saving against a chosen baseline', async () => {
    const { page } = await open('?range=all&group=model');
    const planner = await server.client.getSavings({ from: 'all', baseline: 'planner' });
    const saved = page.locator('.stat').filter({ hasText: 'Saved' });
    await saved.getByTitle(exactUsd(planner.data.savings_usd), { exact: true }).waitFor();
    await saved.getByRole('button').click();
    await page.getByRole('menuitemradio', { name: 'fast', exact: false }).filter({ hasText: 'scripted' }).click();
    const fast = await server.client.getSavings({ from: 'all', baseline: 'scripted:fast' });
    await saved.getByTitle(exactUsd(fast.data.savings_usd), { exact: true }).waitFor();
    await choose(page, 'Prices', 'Current');
    const current = await server.client.getCost({ from: 'all', pricing: 'current', group_by: 'model' });
    await total(page).getByTitle(exactUsd(current.totals.cost_usd), { exact: true }).waitFor();
    await page.getByRole('columnheader', { name: 'At time of call' }).waitFor();
    const [row] = current.data;
    const cells = page.getByRole('row').filter({ hasText: row!.model!.split(':')[1]! });
    expect(await cells.locator('.number').evaluateAll((all) => all.map((cell) => cell.getAttribute('title')))).toEqual(
      expect.arrayContaining([exactUsd(row!.cost_usd), exactUsd(row!.stamped_cost_usd!)]),
    );
    // Down to the call, the sum of which is the row above them.
    await choose(page, 'Group by', 'Session and workers');
    await page.getByRole('button', { name: 'Port the parser (12)' }).click();
    const nested = page.locator('.cost-table tr.nested').filter({ hasText: 'balanced' });
    await nested.getByRole('button').click();
    const calls = page.locator('.cost-table tr.call');
    const prices = () =>
      calls.evaluateAll((rows) =>
        rows.map((one) =>
          [...one.querySelectorAll('td .number[title^="$"]')].map((cell) => cell.getAttribute('title')),
        ),
      );
    const ofCalls = { from: 'all', parent_session: planners.at(-1)!.id, group_by: 'session,model' } as const;
    const { data } = await server.client.getCost({ ...ofCalls, pricing: 'current' });
    const whole = data.find(({ model }) => model === 'scripted:balanced')!;
    const sum = (at: number, shown: (string | null)[][]) =>
      exactUsd(fromPusd(sumPusd(shown.map((one) => toPusd((one[at] ?? '$0').replace(/[$,]/g, ''))))));
    await until(async () => {
      const shown = await prices();
      return shown.length === 2 && shown.every((one) => one.length === 2);
    });
    const shown = await prices();
    expect([sum(0, shown), sum(1, shown)]).toEqual([exactUsd(whole.stamped_cost_usd!), exactUsd(whole.cost_usd)]);
    expect(whole.stamped_cost_usd).not.toBe(whole.cost_usd);
  });

  test('writes what it shows as CSV, exact, with no formula in it', async () => {
    const clock = shiftedClock();
    const one = await startBrowserServer({ scenario: scenario(), clock });
    await seedLedger(one, clock, { trees: 1, days: 1, title: '=HYPERLINK("http://a.example","x")' });
    const { page, errors } = await openTab(`${one.url}/#/cost?range=all`);
    await page.getByRole('button', { name: '=HYPERLINK' }).waitFor();
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: 'CSV' }).click(),
    ]);
    const file = path.join(one.workspace, 'cost.csv');
    await download.saveAs(file);
    const [head, row] = fs.readFileSync(file, 'utf8').split('\r\n');
    const { data } = await one.client.getCost({ from: 'all', group_by: 'parent_session' });
    expect(head).toMatch(
      /^root_session,name,created_at,workspace,call_count,.*,cost_usd,planner_cost_usd,worker_cost_usd$/,
    );
    expect(row).toMatch(/,"'=HYPERLINK\(""http:\/\/a.example"",""x""\) \(1\)",\d{4}-\d\d-\d\dT[^,]+,[^,]+,8,/);
    expect(row).toMatch(new RegExp(`,${data[0]!.cost_usd},${data[0]!.planner_cost_usd},${data[0]!.worker_cost_usd}$`));
    expect(errors).toEqual([]);
  });

  // Promise 21.2: The cost view shows the other bill as a second bar beside the real one, always as a range.
  test('shows what the same work would have cost on another model, as a range', async () => {
    const clock = shiftedClock();
    const one = await startBrowserServer({ scenario: scenario(), clock });
    const [planner] = await seedLedger(one, clock, { trees: 1, days: 1 });
    const [deep] = (await one.client.getCost({ from: 'all', group_by: 'model' })).data.map(({ model }) => model!);
    await one.engine.journal.commit({ writes: [], emit: [stickyDecision(planner!, deep!)] });
    const other = deep === 'scripted:fast' ? 'scripted:deep' : 'scripted:fast';
    const { page, errors } = await openTab(`${one.url}/#/cost?range=all`);
    await page.getByText('Choose two models').waitFor();
    await choose(page, 'In place of', modelName(deep!));
    await choose(page, 'use', modelName(other));
    const { hypothetical_usd, decisions } = await one.client.askWhatIf({ from: 'all', models: { [deep!]: other } });
    expect(decisions.changed).toBe(1);
    const { low, high } = hypothetical_usd;
    await page.getByTitle(`${exactUsd(low)} to ${exactUsd(high)}`, { exact: true }).waitFor();
    await page.getByText('1 decision changed').waitFor();
    for (const width of [390, 1280]) {
      await page.setViewportSize({ width, height: 900 });
      const tracks = await page.locator('.bill-track').all();
      const widths = await Promise.all(tracks.map(async (track) => (await track.boundingBox())!.width));
      expect(widths[0], `one scale at ${width}`).toBeCloseTo(widths[1]!, 1);
      expect(widths[0]).toBeGreaterThanOrEqual(60);
    }
    await expectWhole(page);
    expect(errors).toEqual([]);
  });

  test('says what to do where nothing was spent, and reads its bars as a table', async () => {
    const { page } = await open('?range=custom&from=2001-01-01&to=2001-01-02');
    await page.getByRole('heading', { name: 'No cost in this period' }).waitFor();
    await choose(page, 'Range', '7 days');
    await page.getByText('Show as table').click();
    const table = page.getByRole('region', { name: 'Spend by day' }).getByRole('row');
    await until(async () => (await table.count()) === 8);
  });

  // Promise 17.8: at 400 px nothing of the cost view is cut off.
  // Promise 17.6: the cost view passes axe and logs no error.
  test('is whole from 400 to 2560 px, light and dark, and passes axe', async () => {
    const { page, errors } = await open('?range=all');
    await page.locator('.cost-table tfoot').waitFor();
    await page.getByRole('button', { name: 'Port the parser (12)' }).click();
    await expectWhole(page);
    expect(errors).toEqual([]);
  });

  test('warns of calls without a price in every price table, whole and without a fault of axe', async () => {
    const { engine } = server;
    const source = { ids: engine.ids, time: { now: engine.clock.now() } };
    const model = 'gone:model';
    const unpriced = callCompleted(source, planners.at(-1)!, null, { model, cost_usd: '0', priced: false });
    const dropped = callCompleted(source, planners.at(-1)!, null, { model, cost_usd: '0.25' });
    await engine.journal.commit({ writes: [], emit: [unpriced, dropped] });
    const { page, errors } = await open('?range=all&baseline=scripted:fast');
    const warnings = page.locator('.stat-warning');
    await warnings.getByText('1 call without a price, counted as $0.00').waitFor();
    await warnings.getByText(/^The saving leaves out \d calls? without a current price/).waitFor();
    await expectWhole(page, 'stamped');
    await choose(page, 'Prices', 'Current');
    await warnings.getByText(/^\d calls? of models that this price table lacks/).waitFor();
    await expectWhole(page, 'current');
    expect(errors).toEqual([]);
  });
});
