// What a script answered is marked wherever it or its money is shown, and nothing else is (08 §5, 17 §3).
import { describe, expect, test } from 'vitest';
import { delegate, planner, scenario, worker } from '../support/scenario.ts';
import { until } from '../support/until.ts';
import { browserEndpoint, expectWhole, openTab } from './page.ts';
import { REAL_MODELS, startBrowserServer } from './server.ts';

/** Real ids beside those of scripts, all answered alike. */
const REGISTRY = {
  ...REAL_MODELS,
  models: {
    ...REAL_MODELS.models,
    'scripted:balanced': { tier: 'balanced', capabilities: { max_context_tokens: 200_000, max_output_tokens: 8192 } },
  },
};

describe.skipIf(browserEndpoint === null)('a simulated session', () => {
  // Promise 17.6: simulated sessions pass axe in list, page, tree and cost, and log no error.
  test('is marked in the list, on its page, in its workers, in cost, models and overview; a real one is not', async () => {
    const { url, client, workspace } = await startBrowserServer({
      registry: REGISTRY,
      scenario: scenario(
        planner({ tool_calls: [delegate('look into it')] }, { text: 'done' }),
        worker('look into it', { text: 'found nothing' }),
      ),
    });
    const run = async (content: string, initial_active_model: string) => {
      const { id } = await client.createSession({ workspace_path: workspace, initial_active_model });
      await client.submitTurn(id, { content });
      await until(async () => (await client.getSession(id)).status === 'idle');
      return id;
    };
    const { page, errors } = await openTab(`${url}/#/overview`, { viewport: { width: 1440, height: 900 } });
    const show = (place: string) => page.goto(`${url}/#/${place}`);
    const marks = page.getByText('simulated', { exact: true });

    const script = await run('by a script', 'scripted:balanced');
    // Beside real calls its money is in no figure: the overview names it.
    const real = await run('by a model', 'anthropic:claude-sonnet-4-6');
    await page
      .locator('.stat-remark')
      .getByText(/calls? of a script, .* are not in these figures\./)
      .waitFor();
    await expectWhole(page, 'the overview');

    await show('sessions');
    const row = (text: string) => page.getByRole('row').filter({ hasText: text });
    await row('by a script').getByText('simulated', { exact: true }).waitFor();
    await row('by a model').waitFor();
    expect(await marks.count()).toBe(1);
    await expectWhole(page, 'the list');

    await show(`sessions/${script}`);
    await page.locator('.session-head').getByText('simulated', { exact: true }).waitFor();
    await expectWhole(page, 'its page');
    await show(`sessions/${script}?tab=tree`);
    await page.getByRole('article').first().getByText('simulated', { exact: true }).waitFor();
    await show(`sessions/${real}`);
    await page.locator('.delegation').waitFor();
    expect(await marks.count()).toBe(0);

    await show('models');
    await row('scripted').getByText('simulated', { exact: true }).waitFor();
    expect(await marks.count()).toBe(1);
    await show('cost?range=all');
    await page
      .locator('.stat-remark')
      .getByText(/are not in these figures\./)
      .waitFor();
    await show('cost?range=all&model=scripted%3Abalanced');
    await page.getByText('A script answered, at example prices. Nothing was spent.').waitFor();
    await row('by a script').getByText('simulated', { exact: true }).waitFor();
    await expectWhole(page, 'the cost of a script');
    expect(errors).toEqual([]);
  });
});
