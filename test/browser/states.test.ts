// Every view of the dashboard in the states that other tests pass by: loading, empty, failed, open, asking, stopped (17 §3).
import fs from 'node:fs';
import path from 'node:path';
import type { Page } from 'playwright-core';
import { describe, expect, onTestFailed, test } from 'vitest';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { until } from '../support/until.ts';
import { FIXTURE, fixture } from '../tool/mcp/world.ts';
import { browserEndpoint, expectAccessible, expectWhole, openTab } from './page.ts';
import { startBrowserServer } from './server.ts';

const VIEWS = ['overview', 'sessions', 'approvals', 'workers', 'models', 'cost', 'settings', 'help', 'help/doors'];
const ASKS = {
  tool_confirmation: {
    default: { none: 'auto', read: 'auto', write: 'prompt', execute: 'prompt', network: 'prompt' },
  },
} as const;
const FILES = {
  'long.txt': `${'a line of a long file\n'.repeat(400)}`,
  '.metis/workers/reviewer.yaml': [
    'description: Reads the code.',
    'instructions: You review.',
    'tier: fast',
    'sandboxes: { code: { path: ., mode: rw } }',
    'tool_rules: { write_file: { approval_required: true, description: Its files are read first. } }',
    '',
  ].join('\n'),
  '.metis/workers/runner.yaml': [
    'description: Runs the tests.',
    'instructions: You run.',
    'tools: [shell]',
    'tool_rules: { shell: { approval_required: false } }',
    '',
  ].join('\n'),
  '.metis/workers/broken.yaml': 'instructions: x\nmodle: fast\n',
};

/** Looks at state after state and keeps every fault, so that one run names them all. */
function collectFaults() {
  const faults: string[] = [];
  const begun = performance.now();
  let last = 'nothing';
  onTestFailed(() => console.error(`the last state looked at: ${last}`));
  const at = async (name: string, look: () => Promise<void>) => {
    last = `${name}, after ${Math.round(performance.now() - begun)} ms`;
    await look().catch((fault: Error & { actual?: unknown }) =>
      faults.push(`${name}: ${fault.message} ${JSON.stringify(fault.actual)}`),
    );
  };
  return {
    faults,
    whole: (page: Page, name: string) => at(name, () => expectWhole(page, name)),
    /** @param within selector of the part that is looked at; absent = the whole page */
    accessible: (page: Page, name: string, within?: string) => at(name, () => expectAccessible(page, within)),
  };
}

describe.skipIf(browserEndpoint === null)('every view', () => {
  // Promise 17.6: every view passes axe while it loads, empty and without its server.
  test('is whole while it is empty, and accessible while it loads and after its server is gone', async () => {
    const server = await startBrowserServer({ scenario: scenario() });
    const { page, errors } = await openTab(server.url);
    const { faults, whole, accessible } = collectFaults();
    const show = (view: string) => page.goto(`${server.url}/#/${view}`);
    for (const view of [...VIEWS, 'nowhere', 'sessions/sess_00000000000000000000000000']) {
      await show(view);
      await page.locator('.empty, .failure, .panel, .list-panel, .document .markdown').first().waitFor();
      await page.locator('.skeleton').first().waitFor({ state: 'detached' });
      await whole(page, `${view} empty`);
    }
    // Answers that are held back: what a page shows until they come.
    let release: (() => void) | undefined;
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    await page.route(/\/(sessions|models|analytics|confirmations|pricing|healthz|routing)/, async (route) => {
      await held;
      await route.continue().catch(() => undefined);
    });
    for (const view of [...VIEWS, 'sessions/sess_00000000000000000000000001', 'workers/reviewer']) {
      await show(view);
      await page.locator('.view, .skeleton').first().waitFor();
      await accessible(page, `${view} loading`);
    }
    release?.();
    await page.unrouteAll({ behavior: 'ignoreErrors' });
    await server.close();
    await page.getByText('Reconnecting…').waitFor();
    // The shell keeps the approvals that it read; every other view asks anew.
    for (const view of VIEWS.filter((one) => one !== 'approvals')) {
      await show(view);
      await page.getByRole('alert').first().waitFor();
      await whole(page, `${view} without its server`);
    }
    expect(faults).toEqual([]);
    expect(errors).toEqual([]);
  });

  // Promise 17.6: failed, running and interrupted turns, a refused key and an invalid policy pass axe.
  test('is whole with failures, long texts and open details in it', async () => {
    const server = await startBrowserServer({
      config: { recovery: { on_start: 'hold' } },
      files: FILES,
      scenario: scenario(
        [{ match: { user_contains: 'locked out' }, respond: { error: { error_class: 'auth', status: 401 } } }],
        planner(
          {
            thinking: 'first the files, then a worker',
            text: 'I look.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n- [x] done\n- [ ] open\n\n```js\nlet a = 1;\n```',
            tool_calls: [
              call('read_file', { path: 'long.txt' }),
              call('read_file', { path: 'nowhere.txt' }),
              delegate('fail at it'),
              delegate('fail at it'),
              delegate('answer it', { output_schema: { type: 'object', properties: { n: { type: 'number' } } } }),
            ],
          },
          { text: 'both came back' },
        ),
        worker('fail at it', { error: { error_class: 'invalid_request', error_detail: 'no such thing' } }),
        worker('answer it', { text: '{"n": 1}' }),
        [
          { match: { turn: 2 }, respond: { error: { error_class: 'invalid_request', status: 400 } } },
          { match: { turn: 3, call: 1 }, respond: { tool_calls: [delegate('never ends')] } },
          { match: { role: 'worker', user_contains: 'never ends' }, respond: { text: 'I', hang: true } },
        ],
      ),
    });
    const { client, workspace, url } = server;
    const { faults, whole, accessible } = collectFaults();
    const session = await client.createSession({ workspace_path: workspace });
    const idle = async () => (await client.getSession(session.id)).status === 'idle';
    for (const content of ['look at the files', 'and again']) {
      await client.submitTurn(session.id, { content });
      await until(idle);
    }
    await client.submitTurn(session.id, { content: 'go on' });
    const { page, errors } = await openTab(`${url}/#/sessions/${session.id}`);
    const show = (place: string) => page.goto(`${url}/#/${place}`);
    await page.getByRole('button', { name: 'Cancel turn' }).waitFor();
    await page.locator('.delegation-live').waitFor();
    await until(async () => (await page.locator('.turn-end').count()) === 2);
    for (const summary of await page.locator('.conversation details:not(details details) > summary').all())
      await summary.click();
    await page.locator('.chain').first().waitFor();
    await whole(page, 'a session with a failed turn, a failed tool, a failed worker, and a running one');
    for (const tab of ['tree', 'timeline']) {
      await show(`sessions/${session.id}?tab=${tab}`);
      await page.locator('.pane, .bar-row').nth(2).waitFor();
      await whole(page, `${tab} with a failed and a running worker`);
    }
    await page.getByRole('button', { name: /^Turn/ }).click();
    await accessible(page, 'the turns of the timeline');
    await show(`sessions/${session.id}`);
    await page.getByRole('button', { name: /^Model/ }).click();
    await accessible(page, 'the models of a session');
    await page.keyboard.press('Escape');
    const { workers } = await client.listWorkers(session.id);
    for (const { worker_session_id: id } of workers.slice(0, 3)) {
      await show(`sessions/${id}`);
      await page.getByRole('link', { name: 'Back to the planner' }).waitFor();
      await accessible(page, 'a worker of a session');
    }
    await show('overview?range=all');
    await page.locator('.list-panel li').first().waitFor();
    await accessible(page, 'the overview while a session runs');

    // What a restart stops is interrupted; what ended stays to be read.
    const after = await server.restart();
    await show(`sessions/${session.id}`);
    await page.getByRole('button', { name: 'Resume' }).waitFor();
    await whole(page, 'an interrupted turn');
    const ended = await after.client.createSession({ workspace_path: workspace });
    await after.client.endSession(ended.id);
    await show(`sessions/${ended.id}?tab=timeline`);
    await page.getByRole('heading', { name: 'No turns yet' }).waitFor();
    await whole(page, 'the timeline of no turn');
    await show(`sessions/${ended.id}`);
    await page.getByRole('heading', { name: 'No messages yet' }).waitFor();
    await whole(page, 'an ended session');

    // A provider that refuses its key, and a routing policy that cannot be read.
    const locked = await after.client.createSession({ workspace_path: workspace });
    await after.client.submitTurn(locked.id, { content: 'locked out' });
    await show(`sessions/${locked.id}`);
    await page.locator('.turn-end .field-error').waitFor();
    await whole(page, 'a turn whose provider refuses the key');
    await show('models?days=all');
    await page.locator('.bad-text').first().waitFor();
    await whole(page, 'models with a provider that is not available');
    fs.writeFileSync(path.join(path.dirname(workspace), 'data/routing.yaml'), 'rules: [{ name: 5 }]\n');
    await until(async () => !(await after.client.getRoutingPolicy()).valid);
    await show('settings');
    await page.getByText('invalid', { exact: true }).waitFor();
    await whole(page, 'settings with a routing policy that is not valid');
    expect(faults).toEqual([]);
    expect(errors).toEqual([]);
  });

  // Promise 17.6: open menus and the cost down to its calls pass axe.
  test('is accessible with each of its menus open, and its cost is whole down to the calls', async () => {
    const { client, url, workspace } = await startBrowserServer({
      files: FILES,
      scenario: scenario(planner({ tool_calls: [delegate('answer it')] }), worker('answer it', { text: 'done' })),
    });
    const { faults, whole, accessible } = collectFaults();
    const session = await client.createSession({ workspace_path: workspace });
    await client.submitTurn(session.id, { content: 'go' });
    await until(async () => (await client.getSession(session.id)).status === 'idle');
    const { page, errors } = await openTab(url);
    const show = (place: string) => page.goto(`${url}/#/${place}`);
    for (const [place, menus] of [
      ['sessions', ['State', 'Workspace', 'Source', 'Worker']],
      ['workers', ['Workspace', 'Created by', 'Cost in']],
      ['models', ['Range', 'Calls of', 'Workspace']],
      ['cost?range=all', ['Range', 'Group by', 'Prices', 'Model', 'Tier', 'Baseline']],
      ['overview', ['Range']],
    ] as const) {
      await show(place);
      await page.locator('.menu').first().waitFor();
      for (const menu of menus) {
        const button = page.locator('.menu > button').filter({ hasText: menu }).first();
        if ((await button.count()) === 0) continue;
        await button.click();
        await page.getByRole('menu').waitFor();
        await accessible(page, `${place} with its menu ${menu}`, '.menu');
        await page.keyboard.press('Escape');
      }
    }
    await show('cost?range=all');
    await page.locator('.cost-table button[aria-expanded]').first().click();
    await page.locator('.cost-table tr.nested button').first().click();
    await page.locator('.cost-table tr.call').first().waitFor();
    await page.getByText('Show as table').click();
    await whole(page, 'the cost down to its calls');
    for (const question of ['range=all&model=no:model', 'range=custom&from=2026-02-02&to=2026-01-01']) {
      await show(`cost?${question}`);
      await page.locator('.empty, .field-error').first().waitFor();
      await whole(page, `the cost of ${question}`);
    }
    expect(faults).toEqual([]);
    expect(errors).toEqual([]);
  });

  // Promise 17.6: approvals of every kind, problems of workers and tools, and refused dialogs pass axe.
  test('is whole while calls of every kind ask, and workers and tools have problems', async () => {
    const schemas = JSON.stringify({ never: { type: 'object', anyOf: [false] }, fine: { type: 'object' } });
    const spec = { name: 'counter', instructions: 'You count.', description: 'Counts.' };
    const calls = {
      'write it': call('write_file', { path: 'a.txt', content: 'draft\n'.repeat(300) }),
      'edit it': call('edit_file', { path: 'long.txt', old: 'a line', new: 'one line' }),
      'run it': call('shell', { command: `echo ${'x'.repeat(300)}` }),
      'store it': call('write_file', { path: 'c.txt', content: 'c' }),
      'add to it': call('write_file', { path: 'd.txt', content: 'd' }),
      'end it': call('write_file', { path: 'e.txt', content: 'e' }),
    };
    const alone = {
      'make a worker': call('worker_create', spec),
      'ask the reviewer': call('reviewer', { input: 'look at it' }),
      'call a server': call('mcp__mixed__fine', {}),
    };
    const { url, client, workspace } = await startBrowserServer({
      config: {
        ...ASKS,
        workers: { dynamic: true, planner_allow_workers: ['*'] },
        mcp_servers: { mixed: fixture('schemas', { args: [FIXTURE, 'schemas', schemas] }), gone: fixture('exits') },
      },
      files: FILES,
      scenario: scenario(
        Object.entries(alone).map(([user_contains, one]) => ({
          match: { role: 'planner', user_contains },
          times: 2,
          respond: { tool_calls: [one] },
        })),
        planner({ tool_calls: Object.keys(calls).map((task) => delegate(task)) }),
        ...Object.entries(calls).map(([task, one]) => worker(task, { tool_calls: [one] })),
        worker('look at it', { tool_calls: [call('write_file', { path: 'code/b.txt', content: 'b' })] }),
      ),
    });
    const { faults, whole, accessible } = collectFaults();
    const session = await client.createSession({ workspace_path: workspace });
    await client.submitTurn(session.id, { content: 'begin' });
    // Two of them ask the same in sessions of the same title.
    for (const content of [...Object.keys(alone), 'call a server']) {
      const { id } = await client.createSession({ workspace_path: workspace });
      await client.submitTurn(id, { content });
    }
    await until(async () => (await client.listConfirmations()).confirmations.length === 10);
    const { page, errors } = await openTab(`${url}/#/approvals`);
    const show = (place: string) => page.goto(`${url}/#/${place}`);
    const cards = page.locator('.approval');
    await cards.nth(9).waitFor();
    await page.getByText('Its files are read first.').waitFor();
    await whole(page, 'approvals of each kind');
    for (const kind of ['Run write_file?', 'Create worker counter?']) {
      const card = page.getByRole('article', { name: kind }).first();
      await card.getByRole('button', { name: 'Edit' }).click();
      await card.getByRole('textbox').first().fill('{ nothing');
      await card.getByRole('button', { name: /^Approve/ }).click();
      await card.getByRole('alert').waitFor();
    }
    await whole(page, 'edits that are refused');
    await show(`sessions/${session.id}`);
    await page.getByText('They appear when').waitFor();
    await whole(page, 'more approvals in a session than it shows');
    await show('overview');
    await page.locator('.list-panel').filter({ hasText: 'Needs attention' }).getByText('shell').waitFor();
    await accessible(page, 'the overview with approvals');

    await show('approvals');
    for (const { confirmation_request_id: id } of (await client.listConfirmations()).confirmations.slice(0, 2))
      await client.answerConfirmation(id, { decision: 'reject', reason: 'not now' });
    await client.cancelTurn(session.id, (await client.getSession(session.id)).current_turn_id!);
    await page.locator('.decided p').nth(3).waitFor();
    await whole(page, 'approvals that were decided');

    await show('workers');
    const problems = page.getByRole('region', { name: 'Problems' });
    await problems.getByText('metis trust .metis/workers/runner.yaml').waitFor();
    await page.getByRole('region', { name: 'MCP servers' }).getByText('gone ended').waitFor();
    await whole(page, 'workers with problems and an untrusted file');
    for (const name of ['runner', 'broken', 'nobody']) {
      await show(`workers/${name}`);
      await page.locator('.problems, .failure').first().waitFor();
      await whole(page, `the worker ${name}`);
    }
    await show('workers/reviewer');
    await page.getByRole('button', { name: 'Lock' }).click();
    fs.rmSync(path.join(workspace, '.metis/workers/reviewer.yaml'));
    await page.getByRole('dialog').getByRole('button', { name: 'Lock' }).click();
    await page.getByRole('dialog').getByRole('alert').waitFor();
    await accessible(page, 'a dialog that is refused');
    await show('sessions');
    await page.getByRole('button', { name: 'New session' }).click();
    await page.getByRole('combobox', { name: 'Workspace' }).fill('/nowhere/at/all');
    await page.getByRole('button', { name: 'Open session' }).click();
    await page.getByRole('dialog').getByRole('alert').waitFor();
    await whole(page, 'a new session that is refused');
    expect(faults).toEqual([]);
    expect(errors).toEqual([]);
  });
});
