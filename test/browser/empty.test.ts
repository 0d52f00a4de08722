// What an empty server shows: each place states what will appear there, and how (17 §3).
import { describe, expect, test } from 'vitest';
import { scenario } from '../support/scenario.ts';
import { browserEndpoint, expectWhole, openTab } from './page.ts';
import { startBrowserServer } from './server.ts';

/** By place: what stands there on a server that has one session without messages. */
const PLACES: Readonly<Record<string, readonly RegExp[]>> = {
  overview: [
    /A session appears here while it works on a message/,
    /Approvals, reached caps, failed turns, refused keys and files that need your trust appear here/,
    /A session appears here when a model has answered/,
    /Open a session under Sessions, or watch one without a key/,
  ],
  'sessions?q=nothing': [/Change the filters to see more sessions/],
  approvals: [/./],
  workers: [/./],
  'cost?range=all': [/A model call appears here when it ends/],
  models: [
    /appears here with the reason/,
    /Each completed turn of a model adds one here/,
    /about twenty scored turns on each/,
  ],
  settings: [/it appears here with its tools and faults/, /Add rules to the file/],
};

describe.skipIf(browserEndpoint === null)('an empty place', () => {
  // Promise 17.6: every view and the parts of a session pass axe while they are empty.
  test('states what will appear there and how, in every view and in every part of a session', async () => {
    const { url, client, workspace } = await startBrowserServer({ scenario: scenario() });
    const { page, errors } = await openTab(`${url}/#/sessions`, { viewport: { width: 1440, height: 900 } });
    await page.getByText('A session is a conversation with a planner in a workspace.').waitFor();
    const { id } = await client.createSession({ workspace_path: workspace });
    for (const [place, texts] of Object.entries(PLACES)) {
      await page.goto(`${url}/#/${place}`);
      for (const text of texts) await page.locator('main').getByText(text).first().waitFor();
    }
    for (const view of ['approvals', 'workers']) {
      await page.goto(`${url}/#/${view}`);
      expect((await page.locator('.empty p').first().textContent())?.length).toBeGreaterThan(20);
    }
    await page.goto(`${url}/#/sessions/${id}`);
    await page.getByText('Write to the planner below.').waitFor();
    await page.goto(`${url}/#/sessions/${id}?tab=timeline`);
    await page.getByText('from the first message on').waitFor();
    await page.goto(`${url}/#/sessions/${id}?tab=tree`);
    await page.locator('.pane, .empty').first().waitFor();
    await expectWhole(page, 'the tree of a session without messages');
    await page.keyboard.press('/');
    await page.keyboard.type('no such thing');
    await page.getByText('Views and sessions appear here').waitFor();
    expect(errors).toEqual([]);
  });
});
