// What work will cost, in a real browser: the table of a message's delegations before they start, and forecasts beside what came (21 §1).
import type { Page } from 'playwright-core';
import { describe, expect, test } from 'vitest';
import type { MetisClient } from '#client/client.ts';
import { exactUsd } from '#dashboard/format/format.ts';
import { delegate, planner, scenario, worker } from '../support/scenario.ts';
import { until } from '../support/until.ts';
import { browserEndpoint, expectWhole, openTab } from './page.ts';
import { REAL_MODELS, startBrowserServer } from './server.ts';

const SONNET = 'anthropic:claude-sonnet-4-6';
const usage = (output_tokens: number) => ({ input_tokens: 1000, output_tokens });

/** Of what overlaps within a table or a card: texts that cover each other, by their words. */
const overlaps = (page: Page, selector: string) =>
  page.locator(selector).evaluateAll((all) => {
    const boxes = all.map((one) => ({ text: one.textContent ?? '', box: one.getBoundingClientRect() }));
    return boxes.flatMap(({ text, box }, i) =>
      boxes
        .slice(i + 1)
        .filter(
          ({ box: other }) =>
            box.right > other.left + 1 &&
            other.right > box.left + 1 &&
            box.bottom > other.top + 1 &&
            other.bottom > box.top + 1,
        )
        .map((other) => `${text} over ${other.text}`),
    );
  });

async function atBothWidths(page: Page, look: (width: number) => Promise<void>): Promise<void> {
  for (const width of [1280, 390]) {
    await page.setViewportSize({ width, height: 844 });
    await look(width);
  }
}

async function runTurn(client: MetisClient, workspace: string, content: string): Promise<void> {
  const session = await client.createSession({ workspace_path: workspace, initial_active_model: SONNET });
  const { turn_id } = await client.submitTurn(session.id, { content });
  await until(async () => (await client.getTurn(session.id, turn_id)).ended_at !== null);
}

describe.skipIf(browserEndpoint === null)('what work will cost', () => {
  test('delegations of one message are a table with a row each, changed for all and answered once', async () => {
    const tasks = ['one', 'two', 'three'];
    const { url, client, workspace } = await startBrowserServer({
      registry: REAL_MODELS,
      scenario: scenario(
        planner({ tool_calls: tasks.map((task) => delegate(`task ${task}`)) }, { text: 'All are done.' }),
        ...tasks.map((task) => worker(`task ${task}`, { text: `result ${task}`, usage: usage(10) })),
      ),
    });
    const session = await client.createSession({
      workspace_path: workspace,
      approval_mode: 'interactive',
      confirm_above_workers: 2,
    });
    await client.submitTurn(session.id, { content: 'do all three' });
    const [question] = await until(async () => {
      const { confirmations } = await client.listConfirmations();
      return confirmations.length === 1 && confirmations;
    });
    const { compared_usd, ceiling_usd } = question!.payload as { compared_usd: string; ceiling_usd: string };
    for (const place of ['approvals', `sessions/${session.id}`]) {
      const { page, errors } = await openTab(`${url}/#/${place}`);
      const card = page.locator('.approval');
      await card.getByRole('heading', { name: 'Start 3 delegations?' }).waitFor();
      const table = card.locator('.bill-table');
      expect(await table.locator('tbody tr').count()).toBe(3);
      await table.getByText(`Together up to ${exactUsd(compared_usd)}`).waitFor();
      await table.locator('tfoot').getByText(exactUsd(ceiling_usd), { exact: true }).waitFor();
      await atBothWidths(page, async (width) => {
        expect(await overlaps(page, '.bill-table th, .bill-table td'), `${place} at ${width}`).toEqual([]);
        expect(await overlaps(page, '.approval select, .approval button'), `${place} at ${width}`).toEqual([]);
        const edge = (await card.boundingBox())!;
        for (const part of await card.locator('.bill-table td, select, button').all()) {
          const box = (await part.boundingBox())!;
          expect(box.x + box.width, `${await part.textContent()}: ${place} at ${width}`).toBeLessThan(
            edge.x + edge.width,
          );
        }
      });
      await expectWhole(page, place);
      expect(errors).toEqual([]);
    }
    const { page, errors } = await openTab(`${url}/#/approvals`);
    const tier = page.getByLabel('Tier for all');
    // A letter in a list of choices chooses there, and answers nothing.
    await tier.focus();
    await page.keyboard.type('Tier for all: b');
    expect((await client.listConfirmations()).confirmations).toHaveLength(1);
    await tier.selectOption('balanced');
    await page.getByLabel('Start only the first').selectOption('2');
    await page.getByRole('button', { name: 'Approve' }).click();
    await until(async () => (await client.listWorkers(session.id)).workers.length === 2);
    const { workers } = await client.listWorkers(session.id);
    expect(workers.map(({ resolved_model }) => resolved_model)).toEqual([SONNET, SONNET]);
    await page.getByRole('heading', { name: 'No open approvals' }).waitFor();
    expect(errors).toEqual([]);
  });

  test('a forecast is marked on the budget bar of a running turn, and the cost view checks the forecasts', async () => {
    const { url, client, workspace } = await startBrowserServer({
      registry: REAL_MODELS,
      // The first call of the running turn has to fit into its cap.
      config: { turn: { max_output_tokens: 2200 } },
      scenario: scenario([
        { match: { user_contains: 'hold' }, respond: { hang: true } },
        { match: { user_contains: 'more' }, times: 'inf', respond: { text: 'done', usage: usage(2200) } },
        { match: {}, times: 'inf', respond: { text: 'done', usage: usage(1000) } },
      ]),
    });
    // 3 and 15 dollars a million tokens: five turns of $0.018 and three of $0.036.
    for (const content of [...Array(5).fill('read it'), ...Array(3).fill('read more')])
      await runTurn(client, workspace, content);
    for (const content of ['read it', 'read more']) await runTurn(client, workspace, content);
    const session = await client.createSession({
      workspace_path: workspace,
      initial_active_model: SONNET,
      max_cost_usd: '0.1',
    });
    await client.submitTurn(session.id, { content: 'read and hold it' });
    const { page, errors } = await openTab(`${url}/#/sessions/${session.id}`);
    const bar = page.getByTitle(
      '$0.00 of $0.10 spent; the running turn is expected to end at $0.018 (9 of 10: $0.036)',
    );
    await bar.waitFor();
    const marks = bar.locator('.budget-mark');
    const shares = await marks.evaluateAll((all) => all.map((one) => (one as HTMLElement).style.left));
    expect(shares.map(Number.parseFloat)).toEqual([expect.closeTo(18, 3), expect.closeTo(36, 3)]);
    const [track, ...found] = await Promise.all(
      [bar.locator('.budget-track'), marks.nth(0), marks.nth(1)].map((part) => part.boundingBox()),
    );
    const [p50, p90] = found.map((box) => ({ left: box!.x, right: box!.x + box!.width }));
    expect(p50!.left).toBeGreaterThan(track!.x);
    expect(p90!.left).toBeGreaterThan(p50!.right);
    expect(p90!.right).toBeLessThan(track!.x + track!.width);
    // A phone has room for the button alone.
    await page.setViewportSize({ width: 390, height: 844 });
    expect(await bar.isVisible()).toBe(false);
    await page.setViewportSize({ width: 1280, height: 844 });
    await expectWhole(page, 'session with a forecast');

    const check = await client.getForecastCheck();
    expect(check).toEqual({ n: 2, within_p50: 0.5, within_p90: 1 });
    await page.goto(`${url}/#/cost?range=all`);
    const line = page.getByRole('region', { name: 'Forecasts' });
    await line
      .getByText(
        'of the last 2 turns with a forecast, 50.0 % cost at most the p50 (half were expected to) and 100.0 % at most the p90.',
      )
      .waitFor();
    await atBothWidths(page, async (width) => {
      const box = await line.boundingBox();
      expect(box!.x + box!.width, `at ${width}`).toBeLessThanOrEqual(width);
    });
    await expectWhole(page, 'cost with forecasts');
    expect(errors).toEqual([]);
  });
});
