// Overview, models and settings in a real browser: what each shows is what the interface says (17 §3).
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { exactUsd } from '#dashboard/format/format.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { until } from '../support/until.ts';
import { seedLedger, shiftedClock } from './ledger.ts';
import { browserEndpoint, expectWhole, openTab, type Tab } from './page.ts';
import { type BrowserServer, REAL_MODELS, startBrowserServer } from './server.ts';

describe.skipIf(browserEndpoint === null)('the dashboard', () => {
  let server: BrowserServer;
  const closers: (() => Promise<void>)[] = [];
  beforeAll(async () => {
    const clock = shiftedClock();
    const ask = { none: 'auto', read: 'auto', write: 'prompt', execute: 'prompt', network: 'prompt' } as const;
    server = await startBrowserServer(
      {
        clock,
        config: { tool_confirmation: { default: ask } },
        scenario: scenario(
          planner({ tool_calls: [delegate('write it')] }, { text: 'written' }),
          worker('write it', { tool_calls: [call('write_file', { path: 'a.txt', content: 'a' })] }, { text: 'ok' }),
        ),
      },
      (close) => closers.push(close),
    );
    await seedLedger(server, clock, { trees: 12, days: 12 });
  });
  afterAll(() => Promise.all(closers.map((close) => close())));

  const wholeAndAccessible = async ({ page, errors, origins }: Tab) => {
    await expectWhole(page);
    expect(errors).toEqual([]);
    expect([...origins]).toEqual([new URL(server.url).origin]);
  };

  // Promise 17.6: the overview passes axe and logs no error.
  test('begins with an overview: spent, saved, what runs and waits, the most expensive trees; it follows what happens', async () => {
    const { client, workspace } = server;
    const tab = await openTab(`${server.url}/#/overview?range=all`);
    const { page } = tab;
    const stat = (name: string) => page.locator('.stat').filter({ hasText: name });
    const shows = async () => {
      const [cost, sides, savings] = await Promise.all([
        client.getCost({ from: 'all', group_by: 'none' }),
        client.getCost({ from: 'all', group_by: 'is_worker' }),
        client.getSavings({ from: 'all', baseline: 'planner' }),
      ]);
      const of = (side: string) => exactUsd(sides.data.find((row) => row.is_worker === side)!.cost_usd);
      await stat('Spent').getByTitle(exactUsd(cost.totals.cost_usd), { exact: true }).waitFor();
      await stat('Planner').getByTitle(of('planner'), { exact: true }).waitFor();
      await stat('Workers').getByTitle(of('worker'), { exact: true }).waitFor();
      await stat('Saved').getByTitle(exactUsd(savings.data.savings_usd), { exact: true }).waitFor();
    };
    await shows();
    await page.getByText('No session is running.').waitFor();
    await page.getByText('Nothing is waiting for you.').waitFor();
    const mostExpensive = page.locator('.list-panel').filter({ hasText: 'Most expensive sessions' }).locator('li');
    expect(await mostExpensive.count()).toBe(8);
    const trees = await client.getCost({ from: 'all', group_by: 'parent_session', limit: 1 });
    await mostExpensive.first().getByTitle(exactUsd(trees.data[0]!.cost_usd)).waitFor();

    const session = await client.createSession({ workspace_path: workspace });
    await client.submitTurn(session.id, { content: 'Something that asks' });
    const running = page.locator('.list-panel').filter({ hasText: 'Running' });
    await page.locator('.list-panel').filter({ hasText: 'Needs attention' }).getByText('write_file').waitFor();
    await running.getByText('No session is running.').waitFor();
    await wholeAndAccessible(tab);
    const [open] = (await client.listConfirmations()).confirmations;
    await client.answerConfirmation(open!.confirmation_request_id, { decision: 'approve' });
    await page.getByText('No session is running.').waitFor();
    await until(async () => (await client.getSession(session.id)).status === 'idle');
    await shows();
  });

  test('asks for the reports of the overview anew only when something has changed', async () => {
    const { page } = await openTab(`${server.url}/#/overview`);
    await page.locator('.stat').first().waitFor();
    const asked: string[] = [];
    page.on('request', (request) => asked.push(new URL(request.url()).pathname));
    await until(() => asked.filter((path) => path === '/sessions').length >= 5);
    expect(asked.filter((path) => path.startsWith('/analytics/'))).toEqual([]);
  });

  // Promise 17.6: models pass axe and log no error.
  test('shows every model with its tier, price and state, how often it was chosen, and how it did', async () => {
    const tab = await openTab(`${server.url}/#/models?days=all`);
    const { page } = tab;
    const { models } = await server.client.listModels();
    const rows = page.getByRole('region', { name: 'Models' }).locator('tbody tr');
    await rows.nth(models.length - 1).waitFor();
    expect(await rows.count()).toBe(models.length);
    const { data } = await server.client.getReliability({ from: 'all' });
    const deep = data.find((row) => row.model === 'scripted:deep')!;
    const row = rows.filter({ has: page.getByTitle('scripted:deep', { exact: true }) });
    const rates = models.find(({ id }) => id === 'scripted:deep')!.pricing!;
    await row.getByText(exactUsd(rates.input_per_mtok), { exact: true }).first().waitFor();
    await row.getByText('healthy').waitFor();
    expect(await row.locator('td').nth(8).textContent()).toBe(String(deep.calls));
    expect(await rows.filter({ hasText: 'no key' }).count()).toBe(models.filter((one) => !one.configured).length);
    const { data: routing } = await server.client.getRoutingStats({ from: 'all' });
    const counts = await page.locator('.slots .number').allTextContents();
    expect(counts).toEqual(routing.wins_by_policy.map((win) => String(win.count)));
    await wholeAndAccessible(tab);
  });

  // Promise 17.6: settings pass axe and log no error.
  test('shows the settings in force: server, routing policy and prices', async () => {
    const tab = await openTab(`${server.url}/#/settings`);
    const { page } = tab;
    const { active_version, table } = await server.client.getPricing();
    await page.getByText(active_version).first().waitFor();
    const prices = page.getByRole('region', { name: 'Prices' }).locator('tbody tr');
    expect(await prices.count()).toBe(Object.keys(table.models).length);
    const policy = await server.client.getRoutingPolicy();
    const deep = page.locator('.facts > div').filter({ hasText: 'Tier deep' });
    expect(await deep.locator('dd').textContent()).toBe(policy.tiers.deep ?? 'none');
    await page.getByText('0.0.0-test').first().waitFor();
    await wholeAndAccessible(tab);
  });
});

test.skipIf(browserEndpoint === null)(
  'the models show the shapes of tasks of the chosen workspace, told apart where they read alike',
  async () => {
    const { client, workspace, url } = await startBrowserServer({
      registry: REAL_MODELS,
      files: { 'a.ts': 'a', 'docs/b.ts': 'b' },
      scenario: scenario([
        { match: { user_contains: 'first', call: 1 }, respond: { tool_calls: [call('read_file', { path: 'a.ts' })] } },
        {
          match: { user_contains: 'second', call: 1 },
          respond: { tool_calls: [call('read_file', { path: 'docs/b.ts' })] },
        },
        { times: 'inf', respond: { text: 'it parses' } },
      ]),
    });
    const finish = async (id: string, content: string) => {
      const turn = client.turn(id, { content });
      while ((await turn.next()).done !== true);
    };
    // The second turn of each session has the files of its first in its shape, from different folders.
    for (const which of ['first', 'second']) {
      const { id } = await client.createSession({ workspace_path: workspace });
      await finish(id, `${which}: read it`);
      await finish(id, 'debug the parser');
    }
    const patterns = await until(async () => {
      const found = (await client.listPatterns({ workspace_path: workspace })).patterns;
      const alike = found.filter(({ intent_tags }) => intent_tags.includes('debug'));
      return alike.length === 2 && alike;
    });
    const { page, errors } = await openTab(`${url}/#/models`, { viewport: { width: 1440, height: 900 } });
    const shapes = page.getByRole('region', { name: 'Task shapes' }).getByRole('row').filter({ hasText: 'debug' });
    await shapes.nth(1).waitFor();
    const texts = await shapes.evaluateAll((rows) => rows.map((row) => row.querySelector('td')?.textContent));
    expect(new Set(texts).size).toBe(2);
    for (const text of texts) expect(text).toMatch(/debug.*\.ts.*read_file/);
    const [outcome] = patterns[0]!.outcomes;
    await shapes.getByTitle(outcome!.model, { exact: true }).first().waitFor();
    await shapes.getByTitle(exactUsd(outcome!.avg_cost_usd!), { exact: true }).first().waitFor();

    const other = fs.mkdtempSync(`${workspace}-other-`);
    await client.createSession({ workspace_path: other });
    await page.reload();
    const menu = page.getByRole('button', { name: /^Workspace/ });
    await page.getByText('This workspace has no scored turns yet.').waitFor();
    await page.getByText(/^No task shapes yet\. /).waitFor();
    await menu.click();
    await page.getByRole('menuitemradio', { name: new RegExp(`${path.basename(workspace)} `) }).click();
    await page.waitForURL(/workspace=/);
    await shapes.nth(1).waitFor();
    await page.getByText(/ learned, none of them with two models\./).waitFor();
    await expectWhole(page);
    expect(errors).toEqual([]);
  },
);

test.skipIf(browserEndpoint === null)(
  'the models say what a comparison of quality needs, and then which shape a cheaper one does as well for less',
  async () => {
    const fallback = { text: 'done', usage: { input_tokens: 10_000 } };
    const { client, workspace, url } = await startBrowserServer({
      registry: REAL_MODELS,
      scenario: { version: 1, strict: false, rules: [], fallback },
    });
    const { page, errors } = await openTab(`${url}/#/models`);
    const panel = page.getByRole('region', { name: 'Quality and cost' });
    await page.getByText(/No session exists yet.* about twenty scored turns on each/).waitFor();
    const { models } = await client.listModels();
    for (const tier of ['balanced', 'fast'])
      for (let n = 0; n < 24; n += 1) {
        const { id: initial_active_model } = models.find((model) => model.configured && model.tier === tier)!;
        const { id } = await client.createSession({ workspace_path: workspace, initial_active_model });
        const turn = client.turn(id, { content: 'fix the bug' });
        while ((await turn.next()).done !== true);
      }
    const learned = async () => (await client.getQuality({ workspace_path: workspace })).data;
    await until(async () => (await learned()).scored_turns === 48);
    await page.reload();
    await panel.getByText(/^debug is as good on fast as on balanced: saves \$.* per day\.$/).waitFor();
    await panel.getByTitle(exactUsd((await learned()).saving_per_day_usd), { exact: true }).waitFor();
    await expectWhole(page);
    expect(errors).toEqual([]);
  },
);

// Promise 22.9: the dashboard reports old prices, and models in use whose successor costs less.
test.skipIf(browserEndpoint === null)(
  'the models name prices older than 30 days, and a model in use whose successor costs less',
  async () => {
    const capabilities = { max_context_tokens: 90_000, max_output_tokens: 900 };
    const models = {
      'scripted:old': { tier: 'balanced', superseded_by: 'scripted:new', capabilities },
      'scripted:idle': { superseded_by: 'scripted:new', capabilities },
      'scripted:new': { tier: 'fast', capabilities },
    };
    const rates = (input: string) => ({ input_per_mtok_usd: input, output_per_mtok_usd: '4' });
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'metis-prices-'));
    onTestFinished(() => fs.rmSync(folder, { recursive: true, force: true }));
    const file = path.join(folder, 'prices.json');
    const table = { 'scripted:old': rates('2'), 'scripted:idle': rates('2'), 'scripted:new': rates('1') };
    fs.writeFileSync(file, JSON.stringify({ pricing_version: 'p', imported_on: '2020-01-01', models: table }));
    const { client, workspace, url } = await startBrowserServer({
      scenario: { version: 1, strict: false, rules: [], fallback: { text: 'done' } },
      registry: { adapters: { scripted: { type: 'scripted' } }, models },
      config: { pricing: { tables: [file] } },
    });
    const { id } = await client.createSession({ workspace_path: workspace });
    const turn = client.turn(id, { content: 'hello' });
    while ((await turn.next()).done !== true);
    const { page, errors } = await openTab(`${url}/#/models`);
    await page.getByText('old is in use; its successor new costs less.').waitFor();
    await page
      .getByText(/^The prices are \d+ days old \(of 2020-01-01\); metis prices update takes newer ones\.$/)
      .waitFor();
    expect(await page.getByText('replaced by new').count()).toBe(2);
    expect(await page.getByText(/^idle is in use/).count()).toBe(0);
    await expectWhole(page);
    expect(errors).toEqual([]);
  },
);

// Promise 20.24: the dashboard shows what a verified result cost.
test.skipIf(browserEndpoint === null)('the models show what was checked, and what a verified result cost', async () => {
  // Each has a check of its own: what one worker made may be in the workspace before the other is checked.
  const job = (task: string, check: string) => delegate(task, { check });
  const lookFor = (file: string) => ({ command: `test -f ${file}`, timeout_seconds: 60, protect: [], paths: null });
  const { client, workspace, url } = await startBrowserServer({
    config: { checks: { made: lookFor('a.txt'), said: lookFor('b.txt') } },
    scenario: scenario(
      planner({ tool_calls: [job('do it', 'made'), job('say it', 'said')] }, { text: 'ok' }),
      worker('do it', { tool_calls: [call('write_file', { path: 'a.txt', content: 'a' })] }, { text: 'done' }),
      worker('say it', { text: 'done, and it passes' }),
    ),
  });
  execFileSync('git', ['init', '-q', workspace]);
  const tab = await openTab(`${url}/#/models?days=all`, { viewport: { width: 1440, height: 900 } });
  const panel = tab.page.getByRole('region', { name: 'Verified results' });
  await panel.getByText('No result was checked in this time.').waitFor();
  const session = await client.createSession({ workspace_path: workspace });
  for await (const _ of client.turn(session.id, { content: 'go' }));
  const { data } = await client.getVerifiedResults({ from: 'all' });
  expect(data).toMatchObject([{ checked: 2, passed_first: 1, passed: 1, failed: 1 }]);
  await tab.page.reload();
  await panel.getByTitle(exactUsd(data[0]!.cost_per_verified_usd!), { exact: true }).first().waitFor();
  expect(await panel.locator('tbody td.numeric').allTextContents()).toEqual(
    expect.arrayContaining(['2', '1', '1', '1']),
  );
  await expectWhole(tab.page);
  expect(tab.errors).toEqual([]);
});

test.skipIf(browserEndpoint === null)(
  'results of scripts are in no figure of verified results beside real ones',
  async () => {
    const job = (task: string, tier: string) => delegate(task, { check: 'made', tier });
    const { client, workspace, url } = await startBrowserServer({
      config: { checks: { made: { command: 'test -f b.txt', timeout_seconds: 60, protect: [], paths: null } } },
      files: { 'b.txt': 'b' },
      registry: {
        ...REAL_MODELS,
        models: {
          ...REAL_MODELS.models,
          'anthropic:claude-sonnet-4-6': { ...REAL_MODELS.models['anthropic:claude-sonnet-4-6'], tier: 'deep' },
          'scripted:balanced': { ...REAL_MODELS.models['anthropic:claude-sonnet-4-6'], tier: 'balanced' },
        },
      },
      scenario: scenario(
        planner({ tool_calls: [job('do it', 'fast'), job('play it', 'balanced')] }, { text: 'ok' }),
        worker('do it', { tool_calls: [call('write_file', { path: 'a.txt', content: 'a' })] }, { text: 'done' }),
        worker('play it', { tool_calls: [call('write_file', { path: 'c.txt', content: 'c' })] }, { text: 'done' }),
      ),
    });
    execFileSync('git', ['init', '-q', workspace]);
    const session = await client.createSession({
      workspace_path: workspace,
      initial_active_model: 'anthropic:claude-opus-4-7',
    });
    for await (const _ of client.turn(session.id, { content: 'go' }));
    for (const group_by of ['check', 'model'] as const) {
      const { data, simulated } = await client.getVerifiedResults({ from: 'all', group_by });
      const key = group_by === 'check' ? 'made' : 'anthropic:claude-haiku-4-5';
      expect(data).toMatchObject([{ key, delegations: 1, checked: 1, passed: 1 }]);
      expect(simulated).toMatchObject({ call_count: 2, included: false });
    }
    const { page, errors } = await openTab(`${url}/#/models?days=all`);
    const panel = page.getByRole('region', { name: 'Verified results' });
    await panel.getByText('are not in these figures').waitFor();
    await page.goto(`${url}/#/sessions/${session.id}`);
    const card = page.getByRole('article', { name: 'Delegation: do it' });
    await card.getByText('Check made: passed at the first attempt.').waitFor();
    expect(errors).toEqual([]);
  },
);
