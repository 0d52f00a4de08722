// A session that is opened while it works: what was done before is shown, and what counts goes on (17 §3).
import { describe, expect, test } from 'vitest';
import { formatNumber } from '#dashboard/format/format.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { until } from '../support/until.ts';
import { browserEndpoint, expectWhole, openTab } from './page.ts';
import { startBrowserServer } from './server.ts';

const READS = [
  {
    text: 'I read the list first.',
    tool_calls: [call('read_file', { path: 'list.txt' })],
    usage: { input_tokens: 77 },
  },
  { hang: true },
];

describe.skipIf(browserEndpoint === null)('a session that is opened late', () => {
  // Promise 17.6: a live tree that is opened late passes axe and logs no error.
  test('shows what each worker wrote before, counts its tokens once, and its clock runs while it waits', async () => {
    const { url, client, workspace } = await startBrowserServer({
      files: { 'list.txt': 'one\n' },
      scenario: scenario(
        planner({ text: 'I hand it out.', tool_calls: [delegate('count a'), delegate('count b')] }),
        worker('count a', ...READS),
        worker('count b', ...READS),
      ),
    });
    const session = await client.createSession({ workspace_path: workspace });
    await client.submitTurn(session.id, { content: 'count both' });
    const getCalls = () => client.getCost({ group_by: 'session', parent_session: session.id, from: 'all' });
    await until(async () => (await getCalls()).totals.call_count === 3);

    const { page, errors } = await openTab(`${url}/#/sessions/${session.id}?tab=tree`);
    for (const round of ['opened', 'reloaded']) {
      for (const name of ['worker 1', 'worker 2']) {
        const pane = page.getByRole('article', { name });
        await pane.getByText('I read the list first.').waitFor();
        await pane.getByText('→ read_file list.txt').waitFor();
        await pane.locator('.pane-doing').getByText('thinking').waitFor();
      }
      await page.getByRole('article', { name: 'planner' }).getByText('→ delegate').first().waitFor();
      const { data } = await getCalls();
      const counts = data.map(
        (row) => row.input_tokens + row.cached_input_tokens + row.cache_creation_input_tokens + row.output_tokens,
      );
      const titles = counts.map((n) => `${formatNumber(n)} tokens in and out`).sort();
      const shown = page.locator('.pane-facts [title$="in and out"]');
      expect((await shown.evaluateAll((all) => all.map((one) => one.getAttribute('title')))).sort(), round).toEqual(
        titles,
      );
      await page.reload();
    }
    await expectWhole(page, 'a live tree that is opened late');

    await page.goto(`${url}/#/sessions/${session.id}?tab=timeline`);
    const clock = page.locator('.timeline-head .number');
    const first = await clock.textContent();
    await until(async () => (await clock.textContent()) !== first);
    expect(errors).toEqual([]);
  });
});
