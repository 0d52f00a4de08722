// What runs and what waits for a person, told apart in the navigation and the overview (17 §3).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { until } from '../support/until.ts';
import { browserEndpoint, expectWhole, openTab } from './page.ts';
import { startBrowserServer } from './server.ts';

describe.skipIf(browserEndpoint === null)('the overview', () => {
  // Promise 17.6: the overview with approvals, reached caps and running sessions passes axe and logs no error.
  test('lists what waits for a person apart from what runs, and counts sessions instead of turns', async () => {
    const { url, client, workspace } = await startBrowserServer({
      config: {
        tool_confirmation: {
          default: { none: 'auto', read: 'auto', write: 'prompt', execute: 'prompt', network: 'prompt' },
        },
      },
      scenario: scenario(
        [{ match: { role: 'planner', user_contains: 'never ends' }, respond: { hang: true } }],
        planner({ tool_calls: [delegate('write it')] }),
        worker('write it', { tool_calls: [call('write_file', { path: 'a.txt', content: 'a' })] }),
      ),
    });
    const { page, errors } = await openTab(`${url}/#/overview`);
    const state = page.locator('.server-state');
    const panel = (title: string) =>
      page.locator('.list-panel').filter({ has: page.getByRole('heading', { name: title }) });
    await panel('Needs attention').getByText('Nothing is waiting for you.').waitFor();

    const asks = await client.createSession({ workspace_path: workspace });
    await client.submitTurn(asks.id, { content: 'begin' });
    await panel('Needs attention').getByRole('link', { name: 'Run write_file?' }).waitFor();
    await panel('Running').getByText('No session is running.').waitFor();
    await state.getByText('Connected').waitFor();

    const poor = await client.createSession({ workspace_path: workspace, max_cost_usd: '0.000001' });
    await client.submitTurn(poor.id, { content: 'spend' });
    await until(async () => (await client.getSession(poor.id)).status === 'interrupted');
    await panel('Needs attention').getByRole('link', { name: 'Raise the cap' }).waitFor();
    await panel('Running').getByText('No session is running.').waitFor();

    const busy = await client.createSession({ workspace_path: workspace });
    await client.submitTurn(busy.id, { content: 'this never ends' });
    await state.getByText('1 running').waitFor();
    await panel('Running').getByRole('link', { name: 'this never ends' }).waitFor();
    expect(await panel('Running').locator('li').count()).toBe(1);
    await expectWhole(page, 'the overview with sessions that wait');
    expect(errors).toEqual([]);
  });

  // Promise 20.23: the dashboard lists a file that waits for trust, with the difference to what was trusted before.
  test('lists a file that waits for trust; its difference to what was trusted is shown where a person trusts it', async () => {
    const file = '.metis/checks.yaml';
    const { url, client, workspace } = await startBrowserServer({
      scenario: scenario(planner({ text: 'ok' })),
      files: { [file]: 'test: { command: "npm test" }\n' },
    });
    await client.createSession({ workspace_path: workspace });
    const { page, errors } = await openTab(`${url}/#/overview`);
    const attention = page
      .locator('.list-panel')
      .filter({ has: page.getByRole('heading', { name: 'Needs attention' }) });
    await attention.getByRole('link', { name: `Trust ${file}?` }).click();
    const panel = page.getByRole('region', { name: 'Trusted files' });
    await panel.getByText('1 file to review').waitFor();
    await panel.getByText('not trusted', { exact: true }).waitFor();
    await panel.getByText('Review the content to trust it').click();
    const content = panel.getByRole('figure', { name: `Content of ${file}` });
    await content.getByText('+ test: { command: "npm test" }').waitFor();
    await panel.getByRole('button', { name: 'Trust this content' }).click();
    await panel.getByText('trusted', { exact: true }).waitFor();
    const trusted = async () => (await client.listTrustedFiles({ workspace_path: workspace })).files[0]!.trusted;
    expect(await trusted()).toBe(true);

    // What is trusted is what was shown: a file that changes behind the page is refused.
    fs.writeFileSync(path.join(workspace, file), 'test: { command: "true" }\n');
    await page.reload();
    await panel.getByText('Review what changed to trust it').click();
    await content.getByText('- test: { command: "npm test" }').waitFor();
    await content.getByText('+ test: { command: "true" }').waitFor();
    await expectWhole(page, 'workers with a changed file');
    fs.writeFileSync(path.join(workspace, file), 'test: { command: "rm -rf ." }\n');
    await panel.getByRole('button', { name: 'Trust this content' }).click();
    await panel.getByRole('alert').getByText('read the file again').waitFor();
    expect(await trusted()).toBe(false);
    await panel.getByRole('button', { name: 'Revoke trust' }).click();
    await panel.getByText('not trusted', { exact: true }).waitFor();
    expect(errors).toEqual([]);
  });
});
