// The inbox of approvals in a real browser: by keyboard alone, with edits checked by the server, and by two people at once.
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { until } from '../support/until.ts';
import { browserEndpoint, expectAccessible, expectWhole, openTab } from './page.ts';
import { startBrowserServer } from './server.ts';

const ASKS = {
  tool_confirmation: {
    default: { none: 'auto', read: 'auto', write: 'prompt', execute: 'prompt', network: 'prompt' },
  },
} as const;

describe.skipIf(browserEndpoint === null)('the approvals', () => {
  // Promise 17.8: in the inbox calls are approved, edited and rejected by keyboard alone, a refused edit told in place.
  // Promise 17.6: the approvals pass axe and log no error.
  test('of every session are counted, shown with exact arguments, and answered by keyboard alone', async () => {
    const { url, client, workspace } = await startBrowserServer({
      config: ASKS,
      files: { 'b.txt': 'one\ntwo\n' },
      scenario: scenario(
        planner({ tool_calls: [delegate('write a'), delegate('edit b'), delegate('write c')] }, { text: 'ready' }),
        worker('write a', { tool_calls: [call('write_file', { path: 'a.txt', content: 'draft' })] }, { text: 'ok' }),
        worker(
          'edit b',
          { tool_calls: [call('edit_file', { path: 'b.txt', old: 'one\ntwo', new: 'one\n2' })] },
          { text: 'ok' },
        ),
        worker(
          'write c',
          { tool_calls: [call('write_file', { path: 'c.txt', content: '<b>c</b>\u200b' })] },
          { text: 'ok' },
        ),
      ),
    });
    const { page, errors, origins } = await openTab(`${url}/#/approvals`);
    await page.getByRole('heading', { name: 'No open approvals' }).waitFor();
    await expectAccessible(page);
    const session = await client.createSession({ workspace_path: workspace });
    await client.submitTurn(session.id, { content: 'three files' });
    const cards = page.locator('.approval');
    await cards.nth(2).waitFor();
    await until(async () => (await page.title()) === '(3) Approvals · Metis');
    expect(await page.locator('.nav-count').textContent()).toBe('3');
    const listed = (await client.listConfirmations()).confirmations;
    expect(listed.map(({ requested_at }) => requested_at)).toEqual(listed.map((one) => one.requested_at).toSorted());
    const a = cards.filter({ hasText: 'write a' });
    const b = cards.filter({ hasText: 'edit b' });
    const c = cards.filter({ hasText: 'write c' });
    const content = c.getByRole('figure', { name: 'Content of c.txt' });
    expect(await content.innerText()).toBe('c.txt\n<b>c</b>\\u{200b}');
    await b.locator('.diff-out', { hasText: '- two' }).waitFor();
    await b.locator('.diff-in', { hasText: '+ 2' }).waitFor();
    await a.getByRole('figure', { name: 'Content of a.txt' }).getByText('draft').waitFor();
    await expectWhole(page);

    // The first edited, what the server refuses told in place, the arguments kept.
    const answers: string[] = [];
    page.on('request', (request) => {
      if (request.method() === 'POST') answers.push(request.url());
    });
    await a.focus();
    await page.keyboard.press('e');
    await page.getByLabel('Arguments as JSON').waitFor();
    await page.keyboard.press('Control+A');
    await page.keyboard.type('{"path": 5, "content": "edited"}');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await a.getByRole('alert').getByText('path').first().waitFor();
    expect(await page.getByLabel('Arguments as JSON').inputValue()).toContain('"edited"');
    await page.keyboard.press('Shift+Tab');
    await page.keyboard.press('Control+A');
    await page.keyboard.type('{"path": "a.txt", "content": "edited"}');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await a.waitFor({ state: 'detached' });

    // Then the others, from card to card. A key that is held down answers nothing.
    await b.focus();
    await b.evaluate((card) =>
      card.dispatchEvent(new KeyboardEvent('keydown', { key: 'a', repeat: true, bubbles: true })),
    );
    await page.waitForRequest(/\/confirmations\?/);
    expect(answers).toHaveLength(2);
    await page.keyboard.press('a');
    await b.waitFor({ state: 'detached' });
    await until(() => c.evaluate((card) => card === document.activeElement));
    await page.keyboard.press('Tab');
    await c.getByLabel('Reason for a rejection, sent to the model').focus();
    await page.keyboard.type('not that one');
    await page.keyboard.press('Shift+Tab');
    await c.focus();
    await page.keyboard.press('r');
    await page.getByRole('heading', { name: 'No open approvals' }).waitFor();
    await page.getByText('“not that one”').waitFor();
    await until(async () => (await page.title()) === 'Approvals · Metis');
    await until(async () => (await client.getSession(session.id)).status === 'idle');
    const read = (name: string) => fs.readFileSync(path.join(workspace, name), 'utf8');
    expect([read('a.txt'), read('b.txt')]).toEqual(['edited', 'one\n2\n']);
    expect(fs.existsSync(path.join(workspace, 'c.txt'))).toBe(false);
    expect(errors).toEqual([]);
    expect([...origins]).toEqual([new URL(url).origin]);
  });

  test('stand in their session together with the line that says they are waited for, not one poll later', async () => {
    const { url, client, workspace } = await startBrowserServer({
      config: ASKS,
      scenario: scenario(
        planner({ tool_calls: [call('write_file', { path: 'a.txt', content: 'a' })] }, { text: 'all right' }),
      ),
    });
    const session = await client.createSession({ workspace_path: workspace });
    const { page, errors } = await openTab(url);
    // A page that is hidden polls no more: what it shows then came by the stream or was asked for because of it.
    await page.addInitScript(() => Object.defineProperty(document, 'visibilityState', { get: () => 'hidden' }));
    await page.goto(`${url}/?fresh#/sessions/${session.id}`);
    await page.getByRole('heading', { name: 'No messages yet' }).waitFor();
    await client.submitTurn(session.id, { content: 'write' });
    await page.locator('.approval').waitFor();
    await page.locator('.waiting-line').getByText('planner is waiting for an approval').waitFor();
    expect(errors).toEqual([]);
  });

  test('of several workers say who asks, and leave the field and every button in sight', async () => {
    const tasks = ['write a', 'write b', 'write c'];
    const { url, client, workspace } = await startBrowserServer({
      config: ASKS,
      scenario: scenario(
        planner({ tool_calls: tasks.map((task) => delegate(task, { tier: 'balanced' })) }, { text: 'all right' }),
        ...tasks.map((task) =>
          worker(task, { tool_calls: [call('write_file', { path: `${task}.txt`, content: task })] }, { text: 'ok' }),
        ),
      ),
    });
    const session = await client.createSession({ workspace_path: workspace });
    await client.submitTurn(session.id, { content: 'three files' });
    const { page, errors } = await openTab(`${url}/#/sessions/${session.id}`);
    const cards = page.locator('.approval');
    await cards.nth(2).waitFor();
    const names = tasks.map((task) => cards.filter({ hasText: task }).locator('.approval-origin a').textContent());
    expect((await Promise.all(names)).toSorted()).toEqual(['worker 1', 'worker 2', 'worker 3']);
    for (const [width, height] of [
      [1280, 700],
      [400, 800],
    ] as const) {
      await page.setViewportSize({ width, height });
      for (const name of ['Send', 'Cancel turn']) {
        const box = await page.getByRole('button', { name, exact: true }).boundingBox();
        expect(box!.y + box!.height, `${name} at ${width}`).toBeLessThanOrEqual(height);
      }
    }
    await page.setViewportSize({ width: 1280, height: 820 });
    await page.getByRole('link', { name: 'Live tree' }).click();
    for (const label of ['worker 1', 'worker 2', 'worker 3']) {
      const pane = page.getByRole('article', { name: label, exact: true });
      const [whole, button] = [await pane.boundingBox(), await pane.getByRole('button').boundingBox()];
      expect(button!.x + button!.width, label).toBeLessThan(whole!.x + whole!.width);
    }
    expect(errors).toEqual([]);
  });

  test('of one delegation leave out the columns that nothing is known for, and state what is not', async () => {
    const { url, client, workspace } = await startBrowserServer({
      config: { delegation: { confirm_above_workers: 0 } },
      scenario: scenario(planner({ tool_calls: [delegate('one')] }, { text: 'ready' }), worker('one', { text: 'ok' })),
    });
    const session = await client.createSession({ workspace_path: workspace });
    await client.submitTurn(session.id, { content: 'one part' });
    const { page, errors } = await openTab(`${url}/#/approvals`);
    const card = page.locator('.approval');
    await card.getByRole('heading', { name: 'Start 1 delegation?' }).waitFor();
    expect(await card.getByRole('columnheader').allTextContents()).toEqual(['Worker', 'Model', 'First call at most']);
    await card.getByText('1 worker without a history, with the first call alone.').waitFor();
    await expectWhole(page);
    expect(errors).toEqual([]);
  });

  test('answered by two people at once: the second is told what the first decided, and the card goes', async () => {
    const { url, client, workspace } = await startBrowserServer({
      config: ASKS,
      scenario: scenario(
        planner({ tool_calls: [call('write_file', { path: 'a.txt', content: 'a' })] }, { text: 'all right' }),
      ),
    });
    const session = await client.createSession({ workspace_path: workspace });
    await client.submitTurn(session.id, { content: 'write' });
    const { page, errors } = await openTab(`${url}/#/approvals`);
    const card = page.locator('.approval');
    await card.getByRole('figure', { name: 'Content of a.txt' }).waitFor();
    let late = true;
    await page.route(/\/confirmations\?/, (route) => (late ? route.abort() : route.continue()));
    const [open] = (await client.listConfirmations()).confirmations;
    await client.answerConfirmation(open!.confirmation_request_id, { decision: 'reject', reason: 'too early' });
    await card.getByRole('button', { name: 'Approve' }).click();
    await card.getByRole('alert').getByText('reject').waitFor();
    late = false;
    await card.waitFor({ state: 'detached' });
    const said = page.getByRole('region', { name: 'Just decided' });
    await said.getByText('rejected').waitFor();
    await said.getByText('by another user').waitFor();
    await said.getByText('“too early”').waitFor();
    expect(fs.existsSync(path.join(workspace, 'a.txt'))).toBe(false);
    expect(errors).toEqual([]);
  });
});
