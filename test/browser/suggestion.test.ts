// The model that slot 4 suggests: its evidence in one sentence, and "use it for this workspace" (12 §12.4, 03 §6.5).
import fs from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { explainRoute } from '#cli/routing.ts';
import { delegate, planner, scenario, worker } from '../support/scenario.ts';
import { until } from '../support/until.ts';
import { browserEndpoint, expectWhole, openTab } from './page.ts';
import { REAL_MODELS, startBrowserServer } from './server.ts';

const FAST = 'anthropic:claude-haiku-4-5';
const BALANCED = 'anthropic:claude-sonnet-4-6';
const MINE = `# mine\ndefault: ${BALANCED} # for now\n`;

// Promise 12.29: explain and dashboard name the evidence, and a person makes the suggestion the workspace's default, after a look at the change.
test.skipIf(browserEndpoint === null)(
  'a suggestion is used for its workspace from the chain of a turn, once its change was shown',
  async () => {
    const { url, client, workspace } = await startBrowserServer({
      scenario: scenario(
        [{ match: { user_contains: 'bug' }, respond: { text: 'fixed' }, times: 'inf' }],
        planner({ tool_calls: [delegate('do it')] }, { text: 'ok' }),
        worker('do it', { text: 'done' }),
      ),
      files: { '.metis/routing.yaml': MINE },
      registry: REAL_MODELS,
    });
    const file = path.join(workspace, '.metis/routing.yaml');
    const run = async (content: string, model: string | null) => {
      const session = await client.createSession({ workspace_path: workspace, initial_active_model: model });
      for await (const _ of client.turn(session.id, { content }));
      return session.id;
    };
    for (let i = 0; i < 5; i += 1) await run('fix the bug', FAST);
    const slot = async () => (await client.explainRoute({ text: 'fix a bug', workspace_path: workspace })).chain[3]!;
    await until(async () => (await slot()).verdict === 'deferred');

    // On the command line: the sentence, and the command that follows it.
    let shown = '';
    const write = (text: string) => {
      shown += text;
    };
    const terminal = { env: { NO_COLOR: '1' }, cwd: workspace, stdout: { write }, stderr: { write } };
    expect(await explainRoute(terminal, { baseUrl: url }, 'fix a bug', { workspace })).toBe(0);
    expect(shown).toContain(`suggested only; 5 turns like this one on ${FAST}, 0 of them checked or rated by a person`);
    expect(shown).toContain(`\nuse it for this workspace: metis routing use ${FAST} --workspace ${workspace}\n`);

    const id = await run('fix the next bug', null);
    const { page, errors } = await openTab(`${url}/#/sessions/${id}`);
    await page.getByText('why this model').click();
    await page.locator('.chain').getByText('suggested only; 5 turns like this one').waitFor();
    await page.getByRole('button', { name: 'Use it for this workspace' }).click();
    const dialog = page.getByRole('dialog');
    const change = dialog.getByRole('figure', { name: 'Change of .metis/routing.yaml' });
    await change.getByText(`- default: ${BALANCED} # for now`).waitFor();
    await change.getByText(`+ default: ${FAST} # for now`).waitFor();
    await expectWhole(page, 'the change of a routing file');
    // Someone saves the file behind the dialog: it is refused, and shown as it is now.
    fs.writeFileSync(file, `${MINE}rules: []\n`);
    await dialog.getByRole('button', { name: 'Write the file' }).click();
    await dialog.getByRole('alert').getByText('ask again').waitFor();
    await change.getByText('rules: []').waitFor();
    expect(fs.readFileSync(file, 'utf8')).toBe(`${MINE}rules: []\n`);
    await dialog.getByRole('button', { name: 'Write the file' }).click();
    await page.getByRole('status').getByText('It is the default in .metis/routing.yaml.').waitFor();
    expect(fs.readFileSync(file, 'utf8')).toBe(`# mine\ndefault: ${FAST} # for now\nrules: []\n`);
    const [turn] = (await client.listTurns(await run('fix one more bug', null))).turns;
    expect(turn?.chosen_model).toBe(FAST);

    // A worker's model was chosen by its planner: nothing is offered there.
    const planned = await run('plan it', BALANCED);
    await page.goto(`${url}/#/sessions/${planned}`);
    await page.locator('.delegation .why summary').first().click();
    await page.locator('.delegation .chain').getByText('delegate_request_in_flight').waitFor();
    expect(await page.getByRole('button', { name: 'Use it for this workspace' }).count()).toBe(0);
    expect(errors).toEqual([]);
  },
);
