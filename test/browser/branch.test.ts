// A branch in a real browser: its price before it is made, its conversation, and two sessions side by side (21 §4).
import { describe, expect, test } from 'vitest';
import { call, planner, scenario } from '../support/scenario.ts';
import { browserEndpoint, expectWhole, openTab } from './page.ts';
import { startBrowserServer } from './server.ts';

describe.skipIf(browserEndpoint === null)('a branch', () => {
  test('is priced before it is made, begins with the messages before it, and is compared with the original', async () => {
    const { url, client, workspace } = await startBrowserServer({
      files: { 'a.txt': 'a\n' },
      scenario: scenario(
        planner(
          { text: 'I look.', tool_calls: [call('read_file', { path: 'a.txt' })] },
          { text: 'It is in a.txt.', usage: { input_tokens: 1000, output_tokens: 100 } },
        ),
        [
          { match: { turn: 2, user_contains: 'fix it' }, respond: { text: 'It is fixed.' } },
          { match: { turn: 2 }, respond: { text: 'Another way.' } },
        ],
      ),
    });
    const session = await client.createSession({ workspace_path: workspace });
    const { page, errors } = await openTab(`${url}/#/sessions/${session.id}`);
    await client.submitTurn(session.id, { content: 'where is it?' });
    await page.getByText('It is in a.txt.').waitFor();
    await page.locator('.turn-end').waitFor();
    await client.submitTurn(session.id, { content: 'fix it' });
    await page.getByText('It is fixed.').waitFor();

    // Behind a tool step, the next answer is offered.
    const buttons = page.getByRole('button', { name: 'Branch from here' });
    await buttons.nth(1).click();
    await page.getByText('A branch begins behind a complete answer: the next answer is taken.').waitFor();
    await page.getByText('4 messages before the branch.').waitFor();
    await page.getByText(/As input of the first call they cost about/).waitFor();
    await expectWhole(page, 'branch dialog');
    await page.setViewportSize({ width: 1280, height: 820 });
    await page.getByLabel('Workspace').selectOption('none');
    await page.getByText('Files: without the tools that need a workspace.').waitFor();
    await page.getByLabel('First message').fill('try another way');
    await page.getByRole('button', { name: 'Branch', exact: true }).click();
    await page.getByText('Another way.').waitFor();
    await page.getByRole('button', { name: 'Show the messages before the branch' }).click();
    await page.getByText('where is it?').waitFor();

    await page.getByRole('link', { name: 'Compare' }).click();
    await page.getByRole('region', { name: 'The original' }).getByText('It is fixed.').waitFor();
    await page.getByRole('region', { name: 'This session' }).getByText('Another way.').waitFor();
    await page.getByText('Both begin with 4 messages').waitFor();
    await expectWhole(page, 'compare');
    expect(errors).toEqual([]);
  });
});
