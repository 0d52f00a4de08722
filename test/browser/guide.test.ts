// The first steps in a real browser: keys that were found, snippets that work as they are, documents (17 §3).
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { until } from '../support/until.ts';
import { browserEndpoint, expectWhole, openTab } from './page.ts';
import { startBrowserServer } from './server.ts';

const KEY = 'sk-or-a-key-that-nobody-may-see';

describe.skipIf(browserEndpoint === null)('the first steps', () => {
  // Promise 17.6: the first steps pass axe and log no error.
  test('show keys and snippets of this server until the first session, and again under Help', async () => {
    const server = await startBrowserServer({ scenario: null, keys: { OPENROUTER_API_KEY: KEY } });
    const { page, errors } = await openTab(server.url, { permissions: ['clipboard-read', 'clipboard-write'] });
    const keys = page.getByRole('region', { name: 'Provider keys' });
    await keys.getByRole('listitem').filter({ hasText: 'openrouter' }).getByText('found', { exact: true }).waitFor();
    await keys.getByRole('listitem').filter({ hasText: 'anthropic' }).getByText('not found').waitFor();
    await keys.getByText(/echo 'ANTHROPIC_API_KEY=YOUR_KEY' >> '.*\.env'/).waitFor();
    await expectWhole(page, 'the overview without a session');
    expect(await page.content()).not.toContain(KEY);

    const clients = page.getByRole('region', { name: 'Connect a client' });
    const copy = async (name: string) => {
      await clients.getByRole('button', { name: `Copy: ${name}` }).click();
      return page.evaluate(() => navigator.clipboard.readText());
    };
    expect(await copy('Claude Code')).toContain(`ANTHROPIC_BASE_URL=${server.url} `);
    expect(await copy('Codex')).toContain(`base_url = "${server.url}/v1"`);
    expect(JSON.parse(await copy('MCP')).mcpServers.metis.url).toContain(`${server.url}/mcp?`);
    expect(JSON.parse(await copy('ACP')).agent_servers.Metis.args).toContain(server.url);
    // Its first command alone: the second one calls a model.
    const [first = ''] = (await copy('curl')).split(/\n(?=curl )/);
    const done = await promisify(execFile)('sh', ['-c', `${first}; echo $S`], { cwd: server.workspace });
    const { sessions } = await server.client.listSessions();
    expect(sessions).toMatchObject([{ id: done.stdout.trim(), workspace_path: server.workspace }]);
    await clients.waitFor({ state: 'detached' });
    await page.getByRole('link', { name: 'Help' }).click();
    await clients.waitFor();
    await keys.waitFor();
    expect(errors).toEqual([]);
  });

  test('read the token from its variable where the server requires one', async () => {
    const token = 'x'.repeat(32);
    const { url } = await startBrowserServer({ scenario: null, token });
    const { page } = await openTab(url);
    await page.getByLabel('Token').fill(token);
    await page.getByRole('button', { name: 'Sign in' }).click();
    const clients = page.getByRole('region', { name: 'Connect a client' });
    await clients.getByText('ANTHROPIC_AUTH_TOKEN=$METIS_TOKEN').waitFor();
    await clients.getByText('Authorization: Bearer $METIS_TOKEN').first().waitFor();
    await page.getByText('No key was found.').waitFor();
    expect(await page.locator('main').innerText()).not.toContain(token);
  });

  test('lead to the documents, which lead to each other', async () => {
    const { url } = await startBrowserServer({ scenario: null });
    const { page, errors, origins } = await openTab(`${url}/#/help`);
    await page.getByRole('link', { name: 'Concepts' }).click();
    await page.getByRole('heading', { name: 'Concepts', exact: true }).waitFor();
    await page.locator('.document .markdown').getByRole('link', { name: /.+/ }).first().waitFor();
    await page.goto(`${url}/#/help/doors`);
    await page.locator('.document .markdown').getByText('The gateway', { exact: true }).waitFor();
    await page.goto(`${url}/#/help/http`);
    await page.locator('.document .markdown a[href="#/help/workers"]').first().waitFor();
    await page.goto(`${url}/#/help/dashboard`);
    await page.locator('.document a[href="#/help/what-if/the-other-bill"]').first().waitFor();
    // A link to a section opens the document there, below the head of the view.
    await page.goto(`${url}/#/help/operations/stop-and-upgrade`);
    const heading = page.locator('.document .heading').getByText('Stop and upgrade', { exact: true });
    const top = () => heading.evaluate((one) => one.getBoundingClientRect().top);
    await until(async () => (await top()) < 120);
    expect(await top()).toBeGreaterThan(50);
    await page.goto(`${url}/#/help/what-if`);
    await page.getByRole('heading', { name: 'What if', exact: true }).waitFor();
    await page.goto(`${url}/#/help/nothing-such`);
    await page.getByText('Help has no page “nothing-such”.').waitFor();
    expect(errors).toEqual([]);
    expect([...origins]).toEqual([url]);
  });

  test('the token and the theme outlive a reload, the token only in its tab, and a phone names the views', async () => {
    const token = 'y'.repeat(32);
    const server = await startBrowserServer({ scenario: null, token });
    const { page, errors } = await openTab(server.url, { viewport: { width: 390, height: 844 } });
    await page.getByLabel('Token').fill(token);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByTitle('Dark').click();
    await page.reload();
    await page.getByRole('region', { name: 'Connect a client' }).waitFor();
    expect(await page.getByRole('radio', { name: 'Dark' }).isChecked()).toBe(true);
    const scheme = () => page.evaluate(() => getComputedStyle(document.documentElement).colorScheme);
    expect(await scheme()).toBe('dark');
    // By the keyboard too: the three are one group.
    await page.getByRole('radio', { name: 'Dark' }).press('ArrowLeft');
    expect(await scheme()).toBe('light');
    await page.getByTitle('Dark').click();
    for (const name of ['Overview', 'Approvals', 'Help'])
      expect((await page.getByRole('link', { name }).first().getByText(name).boundingBox())?.width).toBeGreaterThan(20);
    await expectWhole(page, 'a chosen theme');
    const other = await page.context().newPage();
    await other.goto(server.url);
    await other.getByLabel('Token').waitFor();
    await server.restart('z'.repeat(32));
    await page.getByLabel('Token').waitFor();
    expect(await page.evaluate(() => sessionStorage.length)).toBe(0);
    expect(errors).toEqual([]);
  });
});
