// One session in a real browser: followed live, cancelled, approved, reopened, and full of what strangers wrote (17 §3).
import fs from 'node:fs';
import path from 'node:path';
import type { Page } from 'playwright-core';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { exactUsd } from '#dashboard/format/format.ts';
import { sumPusd, toPusd } from '#protocol/money.ts';
import type { ConfigOver } from '../support/engine.ts';
import { ROOT } from '../support/real-server.ts';
import { assistantMessage, outcome, sessionRecord, turnRecord, userMessage } from '../support/records.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { until } from '../support/until.ts';
import { browserEndpoint, expectAccessible, expectWhole, openTab } from './page.ts';
import { startBrowserServer } from './server.ts';

const open = (url: string, sessionId: string, tab = '') => `${url}/#/sessions/${sessionId}${tab && `?tab=${tab}`}`;
/** A person is asked before anything is written or run. */
const ASKING: ConfigOver = {
  tool_confirmation: {
    default: { none: 'auto', read: 'auto', write: 'prompt', execute: 'prompt', network: 'prompt' },
  },
};
const jumps = (page: Page) =>
  page.evaluate(
    () =>
      new Promise<number>((resolve) => {
        let sum = 0;
        new PerformanceObserver((list) => {
          for (const entry of list.getEntries()) sum += (entry as PerformanceEntry & { value: number }).value;
        }).observe({ type: 'layout-shift', buffered: true });
        requestAnimationFrame(() => requestAnimationFrame(() => resolve(sum)));
      }),
  );

describe.skipIf(browserEndpoint === null)('a session', () => {
  test('takes thumbs on an ended turn, the other one instead, follows those of others, and shows what stands when it is opened again', async () => {
    const { url, client, workspace } = await startBrowserServer({ scenario: scenario(planner({ text: 'done' })) });
    const session = await client.createSession({ workspace_path: workspace });
    const { page, errors } = await openTab(open(url, session.id));
    await client.submitTurn(session.id, { content: 'fix the bug' });
    const good = page.getByRole('button', { name: 'Good answer' });
    const bad = page.getByRole('button', { name: 'Bad answer' });
    await good.waitFor();
    await expectAccessible(page);
    await good.click();
    await page.getByRole('button', { name: 'Good answer', pressed: true }).waitFor();
    await bad.click();
    await page.getByRole('button', { name: 'Bad answer', pressed: true }).waitFor();
    expect(await good.getAttribute('aria-pressed')).toBe('false');
    const [turn] = (await client.listTurns(session.id)).turns;
    expect(turn?.user_score).toMatchObject({ score: 0, comment: null });
    await client.scoreTurn(session.id, turn!.id, { score: 'good' });
    await page.getByRole('button', { name: 'Good answer', pressed: true }).waitFor();
    expect(await bad.getAttribute('aria-pressed')).toBe('false');
    await client.scoreTurn(session.id, turn!.id, { score: 'bad', comment: 'it broke' });
    // The same thumb again leaves a comment alone.
    await page.getByRole('button', { name: 'Bad answer', pressed: true }).click();
    await good.click();
    await page.getByRole('button', { name: 'Good answer', pressed: true }).waitFor();
    const { events } = await client.listEvents(session.id, { limit: 200 });
    expect(events.filter(({ type, actor }) => type === 'eval.completed' && actor === 'user')).toHaveLength(5);
    await bad.click();
    await page.getByRole('button', { name: 'Bad answer', pressed: true }).waitFor();
    await page.reload();
    await page.getByRole('button', { name: 'Bad answer', pressed: true }).waitFor();
    await expectAccessible(page);
    expect(errors).toEqual([]);
  });

  // Promise 04.26: The card of a delegation lists the tools that its worker did not get.
  // Promise 17.6: conversation, live tree and timeline of a session pass axe and log no error.
  // Promise 17.8: a job with two workers is followed to its end in the browser, its costs those of the report to the last digit.
  test('is started and talked to in the page, and followed live to its end: workers, tools, exact costs', async () => {
    const TOOLS = { allowed_tools: ['write_file', 'memory_add'] };
    const words = 'The work is **done**: `a.txt` and b.txt are written. '.repeat(6);
    const server = await startBrowserServer({
      scenario: scenario(
        planner(
          { text: 'I hand it out.', tool_calls: [delegate('write a', TOOLS), delegate('write b')] },
          { text: words, chunk_chars: 9, chunk_delay_ms: 4 },
        ),
        worker(
          'write a',
          { tool_calls: [call('write_file', { path: 'a.txt', content: 'a' })], usage: { input_tokens: 77 } },
          { text: 'a is written', chunk_chars: 3, chunk_delay_ms: 20 },
        ),
        worker('write b', { text: 'b is written', chunk_chars: 3, chunk_delay_ms: 20 }),
      ),
    });
    const { url, client, workspace } = server;
    const { page, errors, origins } = await openTab(`${url}/#/sessions`);
    await page.getByRole('button', { name: 'New session' }).click();
    await expectAccessible(page);
    await page.getByRole('combobox', { name: 'Workspace' }).fill(workspace);
    await page.getByLabel('First message').fill('write two files');
    await page.getByRole('button', { name: 'Open session' }).click();

    const cards = page.getByRole('article', { name: /^Delegation/ });
    await cards.nth(1).waitFor();
    await cards.first().getByText('completed').waitFor();
    await cards.first().getByText('Tools that this worker did not get: memory_add').waitFor();
    await page.getByText('b.txt are written').first().waitFor();
    await page.locator('.turn-end').waitFor();
    expect(await page.locator('.markdown strong').first().textContent()).toBe('done');
    const [session] = (await client.listSessions()).sessions;
    expect(page.url()).toBe(open(url, session!.id));
    const total = sumPusd([toPusd(session!.cost_so_far_usd), toPusd(session!.workers_cost_usd)]);
    const report = await client.getCost({ group_by: 'parent_session', parent_session: session!.id, from: 'all' });
    expect(toPusd(report.totals.cost_usd)).toBe(total);
    const shown = page.locator('.session-costs .number');
    await until(async () => (await shown.last().getAttribute('title')) === exactUsd(report.totals.cost_usd));
    await cards.first().getByText('why this model').click();
    await cards.first().locator('.chain li').nth(6).waitFor();
    expect(await cards.first().locator('.chain .won').textContent()).toContain('Tier of the delegation');

    await page.getByRole('link', { name: 'Live tree' }).click();
    expect(await page.getByRole('article').count()).toBe(3);
    await page
      .getByRole('article', { name: /^worker/ })
      .getByText('a is written')
      .waitFor();
    await page.getByRole('link', { name: 'Timeline' }).click();
    await page.locator('.bar-row.tool').getByText('write_file').waitFor();
    expect(await page.locator('.bar-row').getByText('running').count()).toBe(0);

    await page.getByRole('link', { name: 'Conversation' }).click();
    await cards.first().getByRole('link', { name: 'Open' }).click();
    await page.getByRole('link', { name: 'Back to the planner' }).waitFor();
    await page.locator('.tool-card').getByText('write_file').waitFor();
    await page.getByRole('region', { name: 'Task' }).getByText('write a').waitFor();
    await page.getByRole('link', { name: 'Back to the planner' }).click();
    await cards.first().waitFor();
    expect(errors).toEqual([]);
    expect([...origins]).toEqual([new URL(url).origin]);
  });

  // Promise 17.8: the demo's job is followed to its end in the browser, planner and workers side by side, each with the cost of the report.
  test('the demo is followed to its end: a planner, three workers side by side, and what they cost', async () => {
    const script = parse(fs.readFileSync(path.join(ROOT, 'config/scenarios/auth-refactor.yaml'), 'utf8'));
    const { url, client, workspace } = await startBrowserServer({
      scenario: { ...script, defaults: { delay_ms: 60, chunk_delay_ms: 2 } },
    });
    fs.cpSync(path.join(ROOT, 'examples/auth-refactor'), workspace, { recursive: true });
    const session = await client.createSession({ workspace_path: workspace });
    const { page, errors } = await openTab(open(url, session.id, 'tree'));
    await page.getByRole('article', { name: 'planner' }).waitFor();
    await client.submitTurn(session.id, { content: 'Put the checks into one place, one worker per provider.' });
    const workers = page.getByRole('article', { name: /^worker/ });
    await workers.nth(2).waitFor();
    await workers
      .getByRole('button', { name: /Cancel/ })
      .first()
      .waitFor();
    for (const worker of await workers.all()) {
      await worker
        .getByText(/→ edit_file src\/g/)
        .first()
        .waitFor();
      await worker.getByText('completed').waitFor();
    }
    await page.getByRole('article', { name: 'planner' }).getByText('the tests pass').waitFor();
    const { data } = await client.getCost({ group_by: 'session', parent_session: session.id, from: 'all' });
    const costs = page.locator('.pane-facts .number[title^="$"]');
    await until(async () => {
      const shown = await costs.evaluateAll((cells) => cells.map((cell) => cell.getAttribute('title')));
      return (
        shown.sort().join() ===
        data
          .map(({ cost_usd }) => exactUsd(cost_usd))
          .sort()
          .join()
      );
    });
    expect(data).toHaveLength(4);
    expect(fs.existsSync(path.join(workspace, 'src/checks.mjs'))).toBe(true);
    expect(errors).toEqual([]);
  });

  test('the turn that is cancelled is the one that runs, also before the session was read again', async () => {
    const { url, client, workspace } = await startBrowserServer({
      scenario: scenario(
        planner({ tool_calls: [delegate('never ends')] }, { text: 'It was stopped.' }),
        worker('never ends', { hang: true }),
        [{ match: { role: 'planner', turn: 2 }, respond: { hang: true } }],
      ),
    });
    const session = await client.createSession({ workspace_path: workspace });
    const first = await client.submitTurn(session.id, { content: 'begin' });
    const { page, errors } = await openTab(open(url, session.id));
    const card = page.getByRole('article', { name: /^Delegation/ });
    await card.getByRole('button', { name: /Cancel/ }).waitFor();
    const body = JSON.stringify(await client.getSession(session.id));
    expect(body).toContain(`"current_turn_id":"${first.turn_id}"`);
    await page.route(`**/sessions/${session.id}`, (route) =>
      route.request().method() === 'GET' ? route.fulfill({ contentType: 'application/json', body }) : route.continue(),
    );
    const [delegation] = (await client.listWorkers(session.id)).workers;
    const { current_turn_id: running } = await client.getSession(delegation!.worker_session_id!);
    await client.cancelTurn(delegation!.worker_session_id!, running!);
    await page.locator('.turn-end').waitFor();

    await page.getByLabel('Message').fill('again');
    await page.keyboard.press('Enter');
    await page.locator('.conversation > * .why').nth(2).waitFor();
    await page.getByRole('button', { name: 'Cancel turn' }).click();
    await page.locator('.turn-end').getByText('cancelled').waitFor();
    expect(errors).toEqual([]);
  });

  // Promise 17.8: a worker is cancelled from its card.
  test('a worker is cancelled from its card and its planner goes on, on the model that was chosen; a turn is cancelled too', async () => {
    const { url, client, workspace } = await startBrowserServer({
      scenario: scenario(
        planner({ tool_calls: [delegate('never ends')] }, { text: 'It was stopped, so I stop too.' }),
        worker('never ends', { hang: true }),
        [{ match: { role: 'planner', turn: 2 }, respond: { hang: true } }],
      ),
    });
    const session = await client.createSession({ workspace_path: workspace });
    const { page, errors } = await openTab(open(url, session.id));
    await page.getByLabel('Message').fill('begin');
    await page.keyboard.press('Enter');
    const card = page.getByRole('article', { name: /^Delegation/ });
    await page.getByRole('button', { name: /^Model/ }).click();
    await page.getByRole('menuitemradio', { name: /^balanced/ }).click();
    await page.getByText('applies from the next turn').waitFor();
    await card.getByRole('button', { name: /Cancel/ }).click();
    await card.getByText('cancelled by user').waitFor();
    await page.getByText('so I stop too').waitFor();
    await page.locator('.turn-end').waitFor();

    await page.getByLabel('Message').fill('again');
    await page.keyboard.press('Enter');
    const [concluded] = await Promise.all([
      page.waitForResponse((response) => response.url().endsWith('/conclude')),
      page.getByRole('button', { name: 'Conclude' }).click(),
    ]);
    expect(concluded.status()).toBe(202);
    await page.getByRole('button', { name: 'Cancel turn' }).click();
    await page.locator('.turn-end').getByText('cancelled').waitFor();
    const { turns } = await client.listTurns(session.id);
    expect(turns.map(({ status }) => status)).toEqual(['cancelled', 'completed']);
    expect(turns[0]!.chosen_model).toBe('scripted:balanced');
    expect(errors).toEqual([]);
  });

  // Promise 17.8: a confirmation is approved with edited arguments, by keyboard alone.
  test('a call of a worker is approved with edited arguments, by keyboard alone', async () => {
    const { url, client, workspace } = await startBrowserServer({
      config: ASKING,
      scenario: scenario(
        planner({ tool_calls: [delegate('write it')] }, { text: 'written' }),
        worker('write it', { tool_calls: [call('write_file', { path: 'a.txt', content: 'draft' })] }, { text: 'ok' }),
      ),
    });
    const session = await client.createSession({ workspace_path: workspace });
    const { page, errors } = await openTab(open(url, session.id));
    await page.getByLabel('Message').fill('begin');
    await page.keyboard.press('Enter');
    const card = page.getByRole('article', { name: 'Run write_file?' });
    await card.getByRole('figure', { name: 'Content of' }).getByText('draft').waitFor();
    await page.getByText('waiting for an approval').waitFor();
    await expectAccessible(page);
    await card.focus();
    // A person types on at once: the editor has the focus before the next key.
    await page.evaluate(() => {
      document.activeElement?.dispatchEvent(new KeyboardEvent('keydown', { key: 'e', bubbles: true }));
      return new Promise<void>((resolve) => queueMicrotask(() => queueMicrotask(resolve)));
    });
    expect(await page.evaluate(() => document.activeElement?.getAttribute('aria-label'))).toBe('Arguments as JSON');
    await page.keyboard.press('Control+A');
    await page.keyboard.type('{"path": "a.txt", "content": "edited"}');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await card.waitFor({ state: 'detached' });
    await page.locator('.turn-end').waitFor();
    expect(fs.readFileSync(path.join(workspace, 'a.txt'), 'utf8')).toBe('edited');
    // What ran is what its card says, folded or not; what the model asked for stands behind it.
    await page.getByRole('link', { name: 'Open' }).click();
    const done = page.locator('.tool-card');
    await done.locator('summary .tool-input').getByText('a.txt edited', { exact: true }).waitFor();
    await done.getByText('edited', { exact: true }).first().waitFor();
    await done.locator('summary').first().click();
    await done.getByText('Original input of the model').click();
    await done.getByText('"content": "draft"').waitFor();
    expect(errors).toEqual([]);
  });

  test('its cap is set, raised and lifted in the page, and what the server refuses is told in place', async () => {
    const { url, client, workspace } = await startBrowserServer({ scenario: scenario(planner({ text: 'hello' })) });
    const session = await client.createSession({ workspace_path: workspace });
    const { page, errors } = await openTab(open(url, session.id));
    const cap = async () => (await client.getSession(session.id)).max_cost_usd;
    const dialog = page.getByRole('dialog');
    const set = async (button: string, amount: string) => {
      await page.getByRole('button', { name: button }).click();
      await dialog.getByLabel('Cap in US dollars').fill(amount);
      await page.keyboard.press('Enter');
    };
    await set('Set a cap', '0.25');
    await dialog.waitFor({ state: 'detached' });
    await page.locator('.budget').getByText('$0.25').waitFor();
    expect(await cap()).toBe('0.25');
    await set('Cap', '0');
    await dialog.getByRole('alert').waitFor();
    await expectAccessible(page);
    await dialog.getByLabel('Cap in US dollars').fill('$2.5');
    await dialog.getByRole('button', { name: 'Set' }).click();
    await page.locator('.budget').getByText('$2.50').waitFor();
    expect(await cap()).toBe('2.5');
    await page.getByRole('button', { name: 'Cap' }).click();
    await dialog.getByRole('button', { name: 'No cap' }).click();
    await page.getByRole('button', { name: 'Set a cap' }).waitFor();
    expect(await cap()).toBe(null);
    expect(errors).toEqual([]);
  });

  // Promise 13.21: the card shows every line of the definition as new, and none else.
  test('a worker that a planner makes is reviewed as a change, and made as a person edits it', async () => {
    const spec = { name: 'counter', instructions: 'You count.\u202eesnes on', description: 'Counts.' };
    const { url, client, workspace } = await startBrowserServer({
      config: { ...ASKING, workers: { dynamic: true, planner_allow_workers: ['*'] } },
      scenario: scenario(planner({ tool_calls: [call('worker_create', spec)] }, { text: 'made' })),
    });
    const session = await client.createSession({ workspace_path: workspace });
    const { page, errors } = await openTab(open(url, session.id));
    await client.submitTurn(session.id, { content: 'begin' });
    const card = page.getByRole('article', { name: 'Create worker counter?' });
    const [asked] = (await client.listConfirmations()).confirmations;
    const lines = (await client.getConfirmation(asked!.confirmation_request_id)).payload?.yaml as string;
    const shown = (signs: string) => card.locator(signs).allTextContents();
    await until(async () => (await shown('.diff-in')).length > 0);
    // Every line of it is new, and none is left out.
    expect(await shown('.diff-in')).toEqual(
      lines
        .trimEnd()
        .split('\n')
        // What nobody would see, or would see elsewhere, by its code.
        .map((line) => `+ ${line.replace('\u202e', '\\u{202e}')}`),
    );
    expect(await shown('.diff-out, .diff-same')).toEqual([]);
    await card.getByRole('button', { name: 'Edit' }).click();
    const editor = page.getByLabel('Definition as YAML');
    await editor.fill((await editor.inputValue()).replace('You count.', 'You count twice.'));
    expect([await shown('.diff-out'), await shown('.diff-in')]).toEqual([
      ['- instructions: You count.\\u{202e}esnes on'],
      ['+ instructions: You count twice.\\u{202e}esnes on'],
    ]);
    await expectAccessible(page);
    await card.getByRole('button', { name: 'Approve this definition' }).click();
    await page.locator('.turn-end').waitFor();
    const made = await client.getWorkerDefinition('counter', { workspace_path: workspace, session_id: session.id });
    expect(made.yaml).toContain('You count twice.');
    expect(errors).toEqual([]);
  });

  test('a worker that came while another of its name waited is what the change is shown against', async () => {
    const spec = { name: 'counter', instructions: 'You count.', description: 'Counts.' };
    const { url, client, workspace } = await startBrowserServer({
      config: { ...ASKING, workers: { dynamic: true } },
      scenario: scenario(planner({ tool_calls: [call('worker_create', spec)] }, { text: 'so be it' })),
    });
    const session = await client.createSession({ workspace_path: workspace });
    await client.submitTurn(session.id, { content: 'begin' });
    await until(async () => (await client.listConfirmations()).confirmations.length === 1);
    const yaml = 'name: counter\ndescription: Counts.\ninstructions: You weigh.\n';
    await client.createWorkerDefinition({ workspace_path: workspace, yaml });
    const { page, errors } = await openTab(`${url}/#/approvals`);
    const card = page.getByRole('article', { name: 'Create worker counter?' });
    await card.getByText('a worker of this name exists already').waitFor();
    expect(await card.locator('.diff-out').allTextContents()).toContain('- instructions: You weigh.');
    expect(await card.locator('.diff-in').allTextContents()).toContain('+ instructions: You count.');
    await card.focus();
    await page.keyboard.press('r');
    await card.waitFor({ state: 'detached' });
    await until(async () => (await client.getSession(session.id)).status === 'idle');
    const { workers } = await client.listWorkerDefinitions({ workspace_path: workspace, session_id: session.id });
    expect(workers.map(({ origin }) => origin)).toEqual(['project']);
    expect(errors).toEqual([]);
  });

  test('that met its cap says so, and goes on when the cap is raised; a message joins the turn that runs', async () => {
    const { url, client, workspace } = await startBrowserServer({
      config: ASKING,
      scenario: scenario(planner({ tool_calls: [delegate('wait')] }, { text: 'heard' }, { text: 'and done' }), [
        ...worker('wait', { tool_calls: [call('write_file', { path: 'a.txt', content: 'a' })] }, { text: 'ready' }),
      ]),
    });
    const session = await client.createSession({ workspace_path: workspace, max_cost_usd: '0.0001' });
    const { page, errors } = await openTab(open(url, session.id));
    await page.getByLabel('Message').fill('begin');
    await page.keyboard.press('Enter');
    await page.getByText('waiting for a higher budget').waitFor();
    const told = await page.getByText('A call did not fit into the cap of $0.0001: $0.00 spent').textContent();
    const [, costs, cap] = /up to \$([\d.]+)\. A cap of \$([\d.]+) lets it pass/.exec(told!)!;
    expect(toPusd(cap!) - toPusd(costs!)).toBeLessThan(toPusd('0.000001'));
    // The cap that the refused turn names is filled in, below and in the dialog.
    const turn = (await client.listTurns(session.id)).turns[0]!;
    const refused = await client.getTurn(session.id, turn.id);
    expect(refused.budget_refusal?.sufficient_limit_usd).toBe(cap);
    expect(await page.getByLabel('New cap').inputValue()).toBe(cap);
    await page.getByRole('button', { name: /^Cap/ }).click();
    const dialog = page.getByRole('dialog', { name: 'Session cap' });
    expect(await dialog.getByLabel('Cap in US dollars').inputValue()).toBe(cap);
    await expectAccessible(page);
    await page.keyboard.press('Escape');
    await expectAccessible(page);
    await page.getByLabel('New cap').fill('5');
    await page.keyboard.press('Enter');
    await page.getByRole('article', { name: /^Delegation/ }).waitFor();
    // The worker asks, and waits for as long as this takes.
    const asked = page.getByRole('article', { name: 'Run write_file?' });
    await asked.waitFor();
    await page.getByPlaceholder('Add a message to the running turn…').fill('one more thing');
    await page.keyboard.press('Enter');
    await until(async () => (await client.listTurns(session.id)).turns[0]!.unread_inputs === 1);
    await asked.getByRole('button', { name: 'Approve' }).click();
    await page.locator('.turn-end').waitFor();
    await page.locator('.bubble').getByText('one more thing').waitFor();
    expect((await client.listTurns(session.id)).turns).toHaveLength(1);
    expect(errors).toEqual([]);
  });

  test('takes a message that names its model while no turn runs', async () => {
    const { url, client, workspace } = await startBrowserServer({ scenario: scenario(planner({ text: 'done' })) });
    const session = await client.createSession({ workspace_path: workspace });
    const { page, errors } = await openTab(open(url, session.id));
    await page.getByLabel('Message').fill('@scripted:deep hello');
    await page.keyboard.press('Enter');
    await page.locator('.turn-end').waitFor();
    const [turn] = (await client.listTurns(session.id)).turns;
    expect(turn).toMatchObject({ chosen_model: 'scripted:deep', routing_mode: 'override' });
    expect(errors).toEqual([]);
  });

  test('goes on by itself when its server comes back, each message once', async () => {
    const first = await startBrowserServer({
      scenario: scenario(planner({ text: 'before' }), [
        { match: { role: 'planner', turn: 2 }, respond: { text: 'after the restart' } },
      ]),
    });
    const session = await first.client.createSession({ workspace_path: first.workspace });
    const { page, errors } = await openTab(open(first.url, session.id));
    await page.getByLabel('Message').fill('one');
    await page.keyboard.press('Enter');
    await page.locator('.turn-end').waitFor();
    const second = await first.restart();
    await second.client.submitTurn(session.id, { content: 'two' });
    await page.getByText('after the restart').waitFor();
    expect(await page.locator('.message').count()).toBe(4);
    expect(errors).toEqual([]);
  });

  test('of 5,000 messages opens in under a second, and what is older comes above what one reads', async () => {
    const { url, engine } = await startBrowserServer({ scenario: scenario() });
    const source = { ids: engine.ids, time: { now: engine.clock.now() } };
    const sessionOf = async (turns: number) => {
      const session = sessionRecord(source);
      await engine.journal.commit({ writes: [{ kind: 'session.insert', session }], emit: [] });
      for (let n = 0; n < turns; n++) {
        const turn = turnRecord(source, session);
        const answer = assistantMessage(source, turn, [{ type: 'text', text: `answer ${n}` }]);
        await engine.journal.commit({
          writes: [
            { kind: 'turn.insert', turn },
            { kind: 'message.insert', message: userMessage(source, turn, `question ${n}`) },
            { kind: 'message.insert', message: answer },
            { kind: 'turn.end', turn_id: turn.id, session_id: session.id, outcome: outcome(source), unread_inputs: 0 },
          ],
          emit: [],
        });
      }
      return session;
    };
    const short = await sessionOf(25);
    const long = await sessionOf(2500);
    const { page, errors } = await openTab(`${url}/#/sessions`);
    await page.getByRole('table').waitFor();
    const opened = (place: string, last: string) =>
      page.evaluate(
        ([place, last]) =>
          new Promise<number>((resolve) => {
            const before = performance.now();
            const look = () => {
              if ([...document.querySelectorAll('.message')].at(-1)?.textContent?.includes(last!))
                resolve(performance.now() - before);
              else requestAnimationFrame(look);
            };
            location.hash = place!;
            look();
          }),
        [place, last],
      );
    // A machine that has other things to do is slow for a short one as well.
    const allowed = Math.max(1000, 3 * (await opened(`#/sessions/${short.id}`, 'answer 24')));
    expect(await opened(`#/sessions/${long.id}`, 'answer 2499')).toBeLessThan(allowed);
    expect(await page.locator('.message').count()).toBeLessThanOrEqual(60);
    // From the very top, and from a little below it: what is read stays where it is.
    const messages = page.locator('.message');
    for (const top of [0, 150]) {
      const count = await messages.count();
      const [first, y] = await page.locator('.conversation').evaluate((box, top): [string, number] => {
        box.scrollTo(0, top);
        const edge = box.getBoundingClientRect().top;
        const seen = [...box.querySelectorAll('.message.user')].find((one) => one.getBoundingClientRect().top > edge);
        return [seen?.querySelector('.prose')?.textContent ?? '', seen?.getBoundingClientRect().top ?? 0];
      }, top);
      await until(async () => (await messages.count()) > count);
      expect(first).toMatch(/^question \d+$/);
      const shown = page.locator('.message.user', { has: page.getByText(first, { exact: true }) });
      expect(Math.abs((await shown.evaluate((one) => one.getBoundingClientRect().top)) - y)).toBeLessThan(4);
    }
    await until(async () => {
      await page.locator('.conversation').evaluate((box) => box.scrollTo(0, 0));
      return (await messages.count()) > 400;
    });
    const ids = await page.locator('.message.user .prose').allTextContents();
    const numbers = ids.map((text) => Number(/question (\d+)/.exec(text)![1]));
    expect(numbers).toEqual(numbers.map((_, i) => numbers[0]! + i));
    expect(errors).toEqual([]);
  });

  test('what strangers wrote stays text: prompts, answers, tool output, file names', async () => {
    const evil = '<img src=x onerror="document.title=1"><script>document.title=2</script>';
    const file = `${'<b onmouseover=alert(1)>'.replaceAll('/', '')}.txt`;
    const { url, client, workspace } = await startBrowserServer({
      files: { [file]: evil },
      scenario: scenario(
        planner(
          { text: evil, tool_calls: [call('read_file', { path: file }), delegate(`${evil} sub`)] },
          {
            text: `[click](javascript:document.title=3) ![x](http://example.invalid/p.png) <iframe src=//example.invalid></iframe>\n\n| ${evil} |\n|---|\n| ${evil} |\n\n\`\`\`html\n${evil}\n\`\`\`\n\n<a href="javascript:1">x</a>`,
          },
        ),
        worker('sub', { text: evil }),
      ),
    });
    const session = await client.createSession({ workspace_path: workspace });
    const { page, errors, origins } = await openTab(open(url, session.id));
    await page.getByLabel('Message').fill(evil);
    await page.keyboard.press('Enter');
    await page.locator('.turn-end').waitFor();
    for (const summary of await page.locator('.conversation summary').all()) await summary.click();
    await page.locator('.tool-body').getByText('onerror').first().waitFor();
    expect(await page.getByText('onerror').count()).toBeGreaterThan(4);
    for (const place of ['tree', 'timeline', '']) {
      await page.goto(open(url, session.id, place));
      await page.locator('.live-tree, .timeline, .conversation').waitFor();
      const bad = await page
        .locator('#app')
        .locator('img, script, iframe, b, [onerror], a[href^="javascript"]')
        .count();
      expect(bad).toBe(0);
    }
    expect(await page.title()).toBe('Sessions · Metis');
    expect(errors).toEqual([]);
    expect([...origins]).toEqual([new URL(url).origin]);
  });

  // Promise 17.8: at 400 px nothing of a session is cut off, and nothing jumps while it streams.
  test('nothing jumps while it streams, and nothing is cut off from 400 to 2560 px', async () => {
    const { url, client, workspace } = await startBrowserServer({
      scenario: scenario(
        planner(
          { tool_calls: [delegate(`a long task ${'without end '.repeat(20)}`), call('list_files', {})] },
          {
            text: `A wide line:\n\n\`\`\`\n${'x'.repeat(300)}\n\`\`\`\n${'word '.repeat(120)}`,
            chunk_chars: 12,
            chunk_delay_ms: 3,
          },
        ),
        worker('a long task', { text: 'so it is', chunk_chars: 2, chunk_delay_ms: 60 }),
      ),
    });
    const session = await client.createSession({ workspace_path: workspace, max_cost_usd: '12.5' });
    const { page, errors } = await openTab(open(url, session.id));
    await page.getByLabel('Message').waitFor();
    // What a worker says stays until its output takes its place.
    const seen = await page.evaluateHandle(() => {
      const kinds = new Set<string>();
      new MutationObserver(() => {
        const card = document.querySelector('.delegation');
        const part = card?.querySelector('.delegation-live, .delegation-output');
        if (card) kinds.add(part?.className ?? 'neither');
      }).observe(document.body, { childList: true, subtree: true });
      return kinds;
    });
    await client.submitTurn(session.id, { content: 'begin' });
    await page.locator('.turn-end').waitFor();
    expect(await seen.evaluate((kinds) => [...kinds])).not.toContain('neither');
    expect(await jumps(page)).toBeLessThan(0.1);
    for (const tab of ['', 'tree', 'timeline']) {
      await page.goto(open(url, session.id, tab));
      await page.locator('.turn-end, .pane, .bar-row').first().waitFor();
      await expectWhole(page, tab);
    }
    expect(errors).toEqual([]);
  });
});
