// How the views fit together: one right edge, named views on a phone, colours that follow the switch (17 §3).
import type { Page } from 'playwright-core';
import { describe, expect, test } from 'vitest';
import { call, planner, scenario } from '../support/scenario.ts';
import { until } from '../support/until.ts';
import { seedLedger, shiftedClock } from './ledger.ts';
import { browserEndpoint, openTab } from './page.ts';
import { startBrowserServer } from './server.ts';

const ASKS = { none: 'auto', read: 'auto', write: 'prompt', execute: 'prompt', network: 'prompt' } as const;
const VIEWS = ['overview?range=all', 'cost?range=all', 'models?days=all', 'settings', 'workers', 'help', 'approvals'];

/** Distances of the right edges of a view's controls and panels from that of the view. */
const measureEdges = (page: Page) =>
  page.evaluate(() => {
    const right =
      document.querySelector('main')!.clientWidth + document.querySelector('main')!.getBoundingClientRect().left;
    const parts = document.querySelectorAll(
      '.view-head > :last-child, .view-body > *, .view-body > .panels > :last-child',
    );
    return [...parts]
      .filter((part) => part.matches('.tools, .panel, .stats-panel, .panels > *'))
      .map((part) => Math.round(right - part.getBoundingClientRect().right));
  });

describe.skipIf(browserEndpoint === null)('the views', () => {
  // Promise 17.8: at 390 px the names and counts of the navigation do not cover each other.
  test('have one right edge at every width, names on a phone, and a count beside no name', async () => {
    const clock = shiftedClock();
    const server = await startBrowserServer({
      clock,
      config: { tool_confirmation: { default: ASKS } },
      scenario: scenario(planner({ tool_calls: [call('write_file', { path: 'a.txt', content: 'a' })] })),
    });
    const { client, workspace, url } = server;
    await seedLedger(server, clock, { trees: 4, days: 6 });
    const { id } = await client.createSession({ workspace_path: workspace });
    await client.submitTurn(id, { content: 'begin' });
    await until(async () => (await client.listConfirmations()).confirmations.length === 1);
    const { page, errors } = await openTab(url);
    for (const width of [390, 1440, 2560]) {
      await page.setViewportSize({ width, height: 900 });
      const seen = new Set<number>();
      for (const view of VIEWS) {
        await page.goto(`${url}/#/${view}`);
        await page.locator('.panel, .list-panel, .approval, .empty').first().waitFor();
        await page.locator('.skeleton').first().waitFor({ state: 'detached' });
        for (const distance of await measureEdges(page)) seen.add(distance);
      }
      expect([...seen], `at ${width} px`).toEqual([width < 760 ? 12 : 24]);
    }
    await page.setViewportSize({ width: 390, height: 844 });
    const navigation = page.getByRole('navigation', { name: 'Views' });
    const boxes = await navigation.locator('.nav-title, .nav-count, .icon').evaluateAll((all) =>
      all.map((one) => {
        const { left, right, top, bottom, width } = one.getBoundingClientRect();
        return { text: one.textContent, left, right, top, bottom, width };
      }),
    );
    expect(boxes.map(({ text }) => text)).toContain('1');
    for (const one of boxes)
      for (const other of boxes) {
        const apart =
          one.right <= other.left || other.right <= one.left || one.bottom <= other.top || other.bottom <= one.top;
        expect(one === other || apart, `${one.text} over ${other.text}`).toBe(true);
      }
    await page.goto(`${url}/#/sessions`);
    const search = page.getByRole('searchbox');
    expect(await search.getAttribute('placeholder')).toBe('Search all');
    // The empty inbox stands where every empty view does.
    await client.cancelTurn(id, (await client.getSession(id)).current_turn_id ?? '');
    await page.setViewportSize({ width: 1440, height: 900 });
    const middles: number[] = [];
    for (const view of ['approvals', 'workers', 'nowhere']) {
      await page.goto(`${url}/#/${view}`);
      const box = await page.locator(`.empty`).first().boundingBox();
      middles.push(Math.round(box!.x + box!.width / 2));
    }
    expect(new Set(middles).size, `${middles}`).toBe(1);
    expect(errors).toEqual([]);
  });

  test('scroll within themselves: the page is never longer than its window', async () => {
    const { url, client, workspace } = await startBrowserServer({
      scenario: scenario(
        planner(
          ...Array.from({ length: 12 }, () => ({
            text: 'a line\n\n'.repeat(12),
            tool_calls: [call('list_files', {})],
          })),
          { text: 'done' },
        ),
      ),
    });
    const { id } = await client.createSession({ workspace_path: workspace });
    await client.submitTurn(id, { content: 'begin' });
    await until(async () => (await client.getSession(id)).status === 'idle');
    const { page, errors } = await openTab(url, { viewport: { width: 390, height: 700 } });
    for (const place of [`sessions/${id}`, `sessions/${id}?tab=timeline`, 'sessions', 'cost?range=all', 'settings']) {
      await page.goto(`${url}/#/${place}`);
      await page.locator('.turn-end, .bar-row, .row-link, .cost-table, .settings-table').first().waitFor();
      const heights = await page.evaluate(() => [document.documentElement.scrollHeight, innerHeight] as const);
      expect(heights[0], place).toBe(heights[1]);
    }
    expect(errors).toEqual([]);
  });

  test('take the colours of the switch, charts included, whatever the system has', async () => {
    const clock = shiftedClock();
    const server = await startBrowserServer({ clock, scenario: scenario() });
    await seedLedger(server, clock, { trees: 4, days: 6 });
    const { page, errors } = await openTab(`${server.url}/#/cost?range=all`, { colorScheme: 'light' });
    await page.locator('.cost-table tfoot').waitFor();
    // What is drawn in a chart is its colours: the picture of its bars is another one.
    const picture = () => page.locator('.chart canvas').evaluate((canvas: HTMLCanvasElement) => canvas.toDataURL());
    await page.waitForTimeout(600);
    const light = await picture();
    await page.getByTitle('Dark').click();
    await until(async () => (await picture()) !== light);
    await page.getByTitle('As the system').click();
    await until(async () => (await picture()) === light);
    expect(errors).toEqual([]);
  });
});
