// Finding a session among all, by typing, and doing things by keys (17 §3).
import { describe, expect, test } from 'vitest';
import { sessionRecord } from '../support/records.ts';
import { planner, scenario } from '../support/scenario.ts';
import { until } from '../support/until.ts';
import { browserEndpoint, expectAccessible, expectWhole, openTab } from './page.ts';
import { startBrowserServer } from './server.ts';

describe.skipIf(browserEndpoint === null)('finding', () => {
  // Promise 17.6: the palette and the list of keys pass axe and log no error.
  test('searches all sessions on the server, in the list and in the palette, by keys alone', async () => {
    const { url, client, workspace, engine } = await startBrowserServer({
      scenario: scenario(planner({ text: 'The **answer** is 42.' })),
    });
    const session = await client.createSession({ workspace_path: workspace });
    await client.submitTurn(session.id, { content: 'Repair the login page' });
    await until(async () => (await client.getSession(session.id)).status === 'idle');
    const source = { ids: engine.ids, time: { now: engine.clock.now() } };
    const many = Array.from({ length: 600 }, () => sessionRecord(source));
    await engine.journal.commit({ writes: many.map((one) => ({ kind: 'session.insert', session: one })), emit: [] });

    const { page, errors } = await openTab(`${url}/#/sessions`);
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await page.getByRole('link').nth(20).waitFor();
    // Older than what is loaded.
    await page.getByRole('searchbox').fill('LOGIN page');
    await page.getByRole('link', { name: 'Repair the login page' }).waitFor();
    await until(async () => (await page.locator('tbody tr').count()) === 1);
    await page.getByRole('searchbox').fill('no such words');
    await page.getByRole('heading', { name: 'No session matches' }).waitFor();
    await page.goto(`${url}/#/cost`);
    await page.getByRole('heading', { name: 'Cost' }).first().waitFor();

    await page.keyboard.press('?');
    await page.getByRole('dialog', { name: 'Keys' }).getByText('Approve the selected call').waitFor();
    await expectAccessible(page);
    await page.keyboard.press('Escape');
    await page.getByRole('dialog', { name: 'Keys' }).waitFor({ state: 'detached' });
    await page.keyboard.press('/');
    const palette = page.getByRole('dialog', { name: 'Go to' });
    await palette.getByRole('option', { name: /^Models/ }).waitFor();
    await page.keyboard.type('model');
    await until(async () => (await palette.getByRole('option').first().textContent())?.startsWith('Models') ?? false);
    await page.keyboard.press('Enter');
    await until(() => page.url().endsWith('#/models'));
    await page.keyboard.press('Control+k');
    await page.keyboard.type(session.id.slice(-10));
    await palette.getByRole('option', { name: /^Repair the login page/ }).waitFor();
    await expectWhole(page, 'the palette with a session');
    await page.keyboard.press('Enter');
    await until(() => page.url().endsWith(session.id));

    const copied = () => page.evaluate(() => navigator.clipboard.readText());
    await page.getByRole('button', { name: 'Copy the session id' }).click();
    await until(async () => (await copied()) === session.id);
    await page.getByRole('button', { name: 'Copy the answer' }).click();
    await until(async () => (await copied()) === 'The **answer** is 42.');
    await page.getByText('The answer is 42.').waitFor();
    // A key that is typed into a field is text.
    await page.getByLabel('Message').pressSequentially('/?');
    expect(await page.getByLabel('Message').inputValue()).toBe('/?');
    await expectWhole(page, 'a session with its id');
    expect(errors).toEqual([]);
  });
});
