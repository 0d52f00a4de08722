// The named workers in a real browser: what each may touch, its problems and its cost, keeping, locking, and a session on one.
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { exactUsd } from '#dashboard/format/format.ts';
import { call, planner, scenario, worker } from '../support/scenario.ts';
import { until } from '../support/until.ts';
import { FIXTURE, fixture } from '../tool/mcp/world.ts';
import { browserEndpoint, expectAccessible, expectWhole, openTab } from './page.ts';
import { type BrowserServer, startBrowserServer } from './server.ts';

const FILES = {
  'src/a.ts': 'export const a = 1;\n',
  '.metis/workers/reviewer.yaml': [
    'description: Reads the code and says what is wrong with it.',
    'instructions: You review.',
    'tier: fast',
    'sandboxes:',
    '  code: { path: src, mode: ro, allowed_suffixes: [.ts] }',
    '  notes: { path: notes, mode: rw }',
    'tools: [shell]',
    'tool_rules:',
    '  shell: { approval_required: true, description: Commands are read first. }',
    '  web_fetch: { allowed: false }',
    'attachment_policy: { max_attachments: 2, allowed_suffixes: [.ts] }',
    '',
  ].join('\n'),
  '.metis/workers/broken.yaml': 'instructions: x\nmodle: fast\n',
  '.claude/agents/helper.md': '---\nname: helper\ndescription: Helps.\ntools: Read\nmodel: haiku\n---\nYou help.\n',
};
const CONFIG = { workers: { dynamic: true, planner_allow_workers: ['*'] } };

/** A session that called `reviewer`, and made a worker of its own. */
async function worked(): Promise<BrowserServer & { readonly session: string }> {
  const spec = { name: 'counter', instructions: 'You count.', description: 'Counts.' };
  const server = await startBrowserServer({
    config: CONFIG,
    files: FILES,
    scenario: scenario(
      planner(
        { tool_calls: [call('reviewer', { input: 'look at a' }), call('worker_create', spec)] },
        { text: 'looked at' },
      ),
      worker('look at a', { text: 'it is fine' }),
    ),
  });
  const session = await server.client.createSession({ workspace_path: server.workspace });
  await server.client.submitTurn(session.id, { content: 'review the code' });
  await until(async () => {
    const [open] = (await server.client.listConfirmations()).confirmations;
    if (open) await server.client.answerConfirmation(open.confirmation_request_id, { decision: 'approve' });
    const { status, turn_count } = await server.client.getSession(session.id);
    return status === 'idle' && turn_count > 0;
  });
  return { ...server, session: session.id };
}

describe.skipIf(browserEndpoint === null)('the named workers', () => {
  test('stand with what each may touch, their problems by file and line, and what they cost to the last digit', async () => {
    const { url, client, workspace } = await worked();
    const { page, errors, origins } = await openTab(`${url}/#/workers`);
    const row = (name: string) => page.getByRole('row').filter({ has: page.getByRole('link', { name, exact: true }) });
    await row('reviewer').getByText('write notes').waitFor();
    await row('reviewer').getByText('read src').waitFor();
    await row('reviewer').getByText('shell').waitFor();
    await row('helper').getByText('read only').waitFor();
    await row('broken').getByText('cannot be called').waitFor();
    const problems = page.getByRole('region', { name: 'Problems' });
    await problems.getByRole('link', { name: '.metis/workers/broken.yaml:2' }).waitFor();
    await problems.getByText('modle').first().waitFor();
    const { data } = await client.getCost({ group_by: 'worker_name' });
    const spent = data.find(({ worker_name }) => worker_name === 'reviewer')!;
    await row('reviewer')
      .locator(`[title="${exactUsd(spent.cost_usd)}"]`)
      .waitFor();
    await row('reviewer').locator('[title="1 call to models"]').waitFor();

    await row('reviewer').getByRole('link', { name: 'reviewer' }).press('Enter');
    const limits = page.getByRole('region', { name: 'Permissions and limits' });
    await limits.getByText('needs approval').waitFor();
    await limits.getByText('forbidden').waitFor();
    await limits.getByText('up to 2 files, 10,000,000 bytes in total, .ts').waitFor();
    const definition = page.getByRole('figure', { name: 'Definition' });
    const { yaml } = await client.getWorkerDefinition('reviewer', { workspace_path: workspace });
    expect(await definition.locator('code').textContent()).toBe(yaml);
    await page.getByRole('region', { name: 'Recent sessions' }).getByRole('link', { name: 'look at a' }).click();
    await page.getByRole('heading', { name: 'look at a' }).waitFor();
    // All sessions of one worker, and no others: by the menu, and by the address.
    await page.goto(`${url}/#/sessions`);
    await page.getByRole('link', { name: 'review the code' }).waitFor();
    await page.getByRole('button', { name: /^Worker / }).click();
    await page.getByRole('menuitemradio', { name: 'reviewer' }).click();
    await page.getByRole('link', { name: 'look at a' }).waitFor();
    expect(page.url()).toBe(`${url}/#/sessions?worker=reviewer`);
    await page.reload();
    await page.getByRole('link', { name: 'look at a' }).waitFor();
    expect(await page.locator('tbody tr').count()).toBe(1);
    await page.goto(`${url}/#/sessions?worker=nobody`);
    await page.getByRole('heading', { name: 'No session matches' }).waitFor();
    expect(errors).toEqual([]);
    expect([...origins]).toEqual([new URL(url).origin]);
  });

  // Promise 13.24: a session's worker is kept in the project from the dashboard, byte for byte as it is shown.
  test('a worker that a session made is kept in the project, locked, and unlocked', async () => {
    const { url, client, workspace, session } = await worked();
    const { page, errors } = await openTab(`${url}/#/workers`);
    await page.getByRole('link', { name: 'reviewer', exact: true }).waitFor();
    expect(await page.getByRole('link', { name: 'counter' }).count()).toBe(0);
    await page.getByRole('button', { name: /Created by/ }).press('Enter');
    await page.getByRole('menuitemradio', { name: 'review the code' }).click();
    await page.getByRole('link', { name: 'counter' }).click();
    const file = path.join(workspace, '.metis/workers/counter.yaml');
    const press = async (name: string) => {
      await page.getByRole('button', { name }).click();
      await page.getByRole('dialog').getByRole('button', { name }).click();
    };
    await press('Keep in the project');
    await page.getByRole('button', { name: 'Lock' }).waitFor();
    const made = await client.getWorkerDefinition('counter', { workspace_path: workspace, session_id: session });
    expect([made.origin, fs.readFileSync(file, 'utf8')]).toEqual(['project', made.yaml]);
    await press('Lock');
    await page.getByText('locked', { exact: true }).waitFor();
    expect(fs.readFileSync(file, 'utf8')).toContain('locked: true');
    await press('Unlock');
    await page.getByText('locked', { exact: true }).waitFor({ state: 'detached' });
    expect((await client.getWorkerDefinition('counter', { workspace_path: workspace })).locked).toBe(false);
    expect(errors).toEqual([]);
  });

  test('that name no model show in their planner which one ran them, also later, and what they cost beside it', async () => {
    const { url, client, workspace } = await startBrowserServer({
      config: CONFIG,
      files: { ...FILES, '.metis/workers/plain.yaml': 'instructions: You do it.\n' },
      scenario: scenario(
        planner(
          { tool_calls: [call('plain', { input: 'look at a', attachments: ['src/a.ts'] })] },
          { text: 'looked at' },
        ),
        worker('look at a', { text: 'it is fine' }),
      ),
    });
    const session = await client.createSession({ workspace_path: workspace });
    await client.submitTurn(session.id, { content: 'have it done' });
    await until(async () => {
      const { status, turn_count } = await client.getSession(session.id);
      return status === 'idle' && turn_count > 0;
    });
    const { page, errors } = await openTab(`${url}/#/sessions/${session.id}`);
    const [run] = (await client.listWorkers(session.id)).workers;
    await page.locator('.delegation .why-model').getByText(run!.usage_summary.model.split(':')[1]!).waitFor();
    const [turn] = (await client.listTurns(session.id)).turns;
    await page.locator(`.turn-end [title="${exactUsd(turn!.workers_cost_usd)}"]`).waitFor();
    await page.getByRole('link', { name: 'Live tree' }).click();
    await page.getByRole('article', { name: 'plain' }).locator('.pane-task').getByText('look at a').waitFor();
    expect(errors).toEqual([]);
  });

  test('stand below the MCP servers that do not answer and the tools that are left out', async () => {
    const schemas = JSON.stringify({ never: { type: 'object', anyOf: [false] } });
    const { url, client, workspace } = await startBrowserServer({
      config: {
        mcp_servers: { mixed: fixture('schemas', { args: [FIXTURE, 'schemas', schemas] }), gone: fixture('exits') },
      },
      files: FILES,
      scenario: scenario(planner({ text: 'done' })),
    });
    const session = await client.createSession({ workspace_path: workspace });
    await client.submitTurn(session.id, { content: 'go' });
    await until(async () => (await client.listTools({ workspace_path: workspace })).problems.length === 2);
    const { page, errors } = await openTab(`${url}/#/workers`);
    const servers = page.getByRole('region', { name: 'MCP servers' });
    await servers.getByText('has a tool "never" that is left out').waitFor();
    await servers.getByText('ended with exit status 1').waitFor();
    for (const name of ['mixed', 'gone']) await servers.locator('code', { hasText: name }).waitFor();
    await expectAccessible(page);
    expect(errors).toEqual([]);
  });

  // Promise 17.6: the views of named workers pass axe and log no error.
  // Promise 17.8: at 400 px nothing of the named workers is cut off.
  test('are whole from 400 to 2560 px, light and dark, and pass axe', async () => {
    const { url } = await worked();
    const { page, errors } = await openTab(`${url}/#/workers`);
    for (const [place, sign] of [
      ['workers', '.touch'],
      ['workers/reviewer', '.worker-sessions'],
    ]) {
      await page.goto(`${url}/#/${place}`);
      await page.locator(sign!).first().waitFor();
      await expectWhole(page, place);
    }
    expect(errors).toEqual([]);
  });

  test('are chosen for a new session, with files handed over and what would ask denied', async () => {
    const { url, client, workspace } = await startBrowserServer({
      config: CONFIG,
      files: FILES,
      scenario: scenario(
        [1, 2].map((turn) => ({
          match: { turn, user_contains: 'export const a = 1' },
          respond: { text: 'read it' },
        })),
      ),
    });
    await client.createSession({ workspace_path: workspace });
    const { page, errors } = await openTab(`${url}/#/sessions`);
    await page.getByRole('link', { name: 'Untitled session' }).waitFor();
    await page.getByRole('button', { name: 'New session' }).click();
    await page.getByLabel('Named worker').selectOption('reviewer');
    expect(await page.getByLabel('Named worker').locator('option').allTextContents()).not.toContain('broken');
    await page.getByRole('combobox', { name: 'Approvals' }).selectOption('strict');
    await page.getByLabel('First message').fill('judge it');
    await page.getByLabel('Attached files').fill('src/b.ts\n');
    await expectAccessible(page);
    await page.getByRole('button', { name: 'Open session' }).click();
    // The session is open, its first message was refused: nothing that was written is lost.
    await page.getByRole('alert').getByText('b.ts').waitFor();
    expect(await page.getByLabel('Message').inputValue()).toBe('judge it');
    expect(await page.getByLabel('Attached files').inputValue()).toBe('src/b.ts\n');
    await page.locator('.session-title').getByText('reviewer').waitFor();
    await page.getByLabel('Attached files').fill('src/a.ts');
    await page.getByLabel('Message').press('Enter');
    await page.getByText('read it').waitFor();
    const [opened] = (await client.listSessions()).sessions;
    expect(opened).toMatchObject({ worker_name: 'reviewer', is_worker: false, approval_mode: 'strict' });
    // In the session too; what its policy refuses is told, and the message stays.
    await page.getByRole('button', { name: 'Files' }).click();
    await page.getByLabel('Attached files').fill('nowhere.ts');
    await page.getByLabel('Message').fill('judge it again');
    await page.keyboard.press('Enter');
    await page.getByRole('alert').getByText('nowhere.ts').waitFor();
    await page.getByLabel('Attached files').fill('src/a.ts');
    await page.getByLabel('Message').press('Enter');
    await page.locator('.turn-end').nth(1).waitFor();
    expect(await page.getByText('read it').count()).toBe(2);
    expect(errors).toEqual([]);
  });
});
