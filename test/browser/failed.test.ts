// A turn that failed: named in every view, explained on its page, and sent again (17 §3).
import { describe, expect, test } from 'vitest';
import { scenario } from '../support/scenario.ts';
import { until } from '../support/until.ts';
import { browserEndpoint, expectWhole, openTab } from './page.ts';
import { startBrowserServer } from './server.ts';

describe.skipIf(browserEndpoint === null)('a session whose turn failed', () => {
  // Promise 17.6: a failed turn with its error, and the overview that lists it, pass axe and log no error.
  test('is failed in list, filter, header and overview, with its whole error, and goes on by Retry', async () => {
    const { url, client, workspace } = await startBrowserServer({
      scenario: scenario([
        {
          match: { user_contains: 'too much', turn: 1 },
          respond: { error: { error_class: 'invalid_request', status: 400 } },
        },
        { match: { user_contains: 'too much', turn: 2 }, respond: { text: 'this time it went well' } },
        { match: { user_contains: 'locked out' }, respond: { error: { error_class: 'auth', status: 401 } } },
      ]),
    });
    const fine = await client.createSession({ workspace_path: workspace });
    const failed = await client.createSession({ workspace_path: workspace });
    const failTurn = async (id: string, content: string) => {
      await client.submitTurn(id, { content });
      await until(async () => (await client.getSession(id)).failure !== null);
    };
    await failTurn(failed.id, 'too much');
    const { page, errors } = await openTab(`${url}/#/sessions`);
    const row = page.getByRole('row').filter({ hasText: 'too much' });
    await row.getByText('failed', { exact: true }).waitFor();
    await page.getByRole('button', { name: /^State/ }).click();
    await page.getByRole('menuitemradio', { name: 'Idle' }).click();
    await row.waitFor({ state: 'detached' });
    await page.locator(`a[href$="${fine.id}"]`).waitFor();
    await page.getByRole('button', { name: /^State/ }).click();
    await page.getByRole('menuitemradio', { name: 'Failed' }).click();
    await page.locator(`a[href$="${fine.id}"]`).waitFor({ state: 'detached' });
    await row.waitFor();

    await row.getByRole('link').click();
    const head = page.locator('.session-head');
    await head.getByText('failed', { exact: true }).waitFor();
    const section = page.getByRole('region', { name: 'Failed turn' });
    await section.getByText('invalid request error of scripted').waitFor();
    await section.getByText('after 1 attempt').waitFor();
    await section.getByText('scripted invalid_request', { exact: true }).waitFor();
    await expectWhole(page, 'a session whose turn failed');
    await section.getByRole('button', { name: 'Retry' }).click();
    await page.getByText('this time it went well').waitFor();
    await section.waitFor({ state: 'detached' });
    expect((await client.getSession(failed.id)).failure).toBeNull();

    await failTurn(fine.id, 'locked out');
    await page.goto(`${url}/#/overview`);
    await page.reload();
    const box = page.locator('.list-panel').filter({ hasText: 'Needs attention' });
    await box.getByText('The key of scripted is not accepted').waitFor();
    await box.getByText('failed: scripted auth').waitFor();
    await page.getByRole('img', { name: '2 matters for your attention' }).waitFor();
    await until(async () => (await page.title()).startsWith('(2) '));
    await expectWhole(page, 'the overview with a failed session');
    expect(errors).toEqual([]);
  });
});
