// What an attacker can put before the page: names, links, floods, wrong addresses, refused tokens and dead servers (17 §3).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { assistantMessage, outcome, sessionRecord, turnRecord, userMessage } from '../support/records.ts';
import { call, planner, scenario } from '../support/scenario.ts';
import { until } from '../support/until.ts';
import { browserEndpoint, openTab } from './page.ts';
import { startBrowserServer } from './server.ts';

const EVIL = '"><img src=x onerror=document.title=1><svg onload=document.title=2>';
const ASKS = {
  tool_confirmation: {
    default: { none: 'auto', read: 'auto', write: 'prompt', execute: 'prompt', network: 'prompt' },
  },
} as const;
const writes = (n: number) =>
  Array.from({ length: n }, (_, i) => call('write_file', { path: `f${i}.txt`, content: String(i) }));

describe.skipIf(browserEndpoint === null)('a hostile', () => {
  test('name of a worker, its description, a file, a model, an error or a link stays text, wherever it is shown', async () => {
    const file = `${EVIL.replaceAll('/', '')}.ts`;
    const yaml = (text: string) => JSON.stringify(text);
    const { url, client, workspace } = await startBrowserServer({
      config: { ...ASKS, workers: { planner_allow_workers: ['*'] } },
      files: {
        [file]: 'x',
        '.metis/workers/evil.yaml': [
          `description: ${yaml(`${EVIL} [x](javascript:1)`)}`,
          `instructions: ${yaml(EVIL)}`,
          `sandboxes: { all: { path: ${yaml(`./${EVIL.replaceAll('/', '')}`)}, mode: ro } }`,
          `tool_rules: { shell: { approval_required: true, description: ${yaml(EVIL)} } }`,
          '',
        ].join('\n'),
        [`.metis/workers/${EVIL.replaceAll('/', '')}.yaml`]: `${yaml(EVIL)}: ${yaml(EVIL)}\n`,
      },
      scenario: scenario(
        planner(
          {
            tool_calls: [
              call('write_file', { path: `new ${file}`, content: EVIL }),
              call(`no_such_tool`, { path: EVIL }),
            ],
          },
          {
            text: [
              '[a](javascript:document.title=3) [b](data:text/html,<script>document.title=4</script>) [c](vbscript:1)',
              '[d](JaVaScRiPt&#58;document.title=5) [e]( java\tscript:1) <javascript:document.title=6> [f](//evil.invalid)',
              '[g](https://ok.invalid "onmouseover=alert(1)") ![h](https://evil.invalid/i.png) [i][j]',
              '',
              `[j]: javascript:document.title=7 "${EVIL}"`,
            ].join('\n'),
          },
        ),
      ),
    });
    const session = await client.createSession({ workspace_path: workspace });
    const { page, errors, origins } = await openTab(`${url}/#/sessions/${session.id}`);
    await page.getByLabel('Message').fill(EVIL);
    await page.keyboard.press('Enter');
    const clean = async (place: string) => {
      const bad = page.locator('#app').locator('img, script, iframe, svg[onload], [onerror], [onmouseover]');
      expect(await bad.count(), place).toBe(0);
      const links = await page
        .locator('#app a')
        .evaluateAll((all) => all.map((a) => (a as HTMLAnchorElement).protocol));
      expect(
        links.filter((protocol) => !/^https?:$/.test(protocol)),
        place,
      ).toEqual([]);
      expect(await page.title(), place).toContain('Metis');
    };
    await page.getByRole('article', { name: 'Run write_file?' }).getByText('onerror').first().waitFor();
    await clean('asked');
    await page.goto(`${url}/#/approvals`);
    await page.locator('.approval').getByText('onerror').first().waitFor();
    await clean('approvals');
    await page.getByLabel('Reason for a rejection').fill(EVIL);
    await page.getByRole('button', { name: 'Reject' }).click();
    await page.locator('.decided').getByText('onerror').waitFor();
    await clean('decided');
    await page.goto(`${url}/#/sessions/${session.id}`);
    await page.locator('.turn-end').waitFor();
    for (const summary of await page.locator('.conversation summary').all()) await summary.click();
    expect(await page.locator('.markdown a').evaluateAll((all) => all.map((a) => a.getAttribute('href')))).toEqual([
      'https://ok.invalid',
    ]);
    await clean('conversation');
    for (const place of ['workers', 'workers/evil', 'cost?range=all', 'models', 'overview', 'sessions']) {
      await page.goto(`${url}/#/${place}`);
      await page.locator('.view-body, .long-table').first().waitFor();
      await until(async () => (await page.locator('.skeleton').count()) === 0);
      await clean(place);
    }
    // And what stands in the address itself, with errors that repeat it.
    const told = encodeURIComponent(EVIL);
    for (const place of [
      told,
      `sessions/${told}`,
      `sessions/${session.id}?tab=${told}`,
      `sessions?worker=${told}`,
      `cost?model=${told}&pricing=${told}&baseline=${told}&group=${told}&range=${told}`,
      `workers/${told}?workspace=${told}&session=${told}`,
      '%',
      'sessions/%',
      '__proto__',
      'overview?range=constructor',
      'cost?range=custom&from=9999-99-99&to=0000-00-00',
    ]) {
      await page.goto(`${url}/#/${place}`);
      await page.locator('main > *').first().waitFor();
      await clean(place);
    }
    expect(errors).toEqual([]);
    expect([...origins]).toEqual([new URL(url).origin]);
  });

  test('character that turns the direction of a text turns nothing beside it, and has its code where a person is asked', async () => {
    const file = 'fdp.\u202etxt.md';
    const { url, client, workspace } = await startBrowserServer({
      config: {
        tool_confirmation: { per_tool: { 'sandbox.read': 'prompt', 'worker.call': 'auto' } },
        workers: { planner_allow_workers: ['*'] },
      },
      files: { [file]: 'x', '.metis/workers/reader.yaml': 'instructions: Read.\n' },
      scenario: scenario(planner({ tool_calls: [call('reader', { input: 'go', attachments: [file] })] })),
    });
    const session = await client.createSession({ workspace_path: workspace });
    await client.submitTurn(session.id, { content: 'tidy up \u202e' });
    const { page, errors } = await openTab(`${url}/#/approvals`);
    await page.getByRole('heading', { name: 'Share with reader workspace/fdp.\\u{202e}txt.md?' }).waitFor();
    const beside = page.locator('.approval-origin', { hasText: 'tidy up' }).getByText('in workspace');
    const places = await beside.evaluate((element) => {
      const name = element.lastChild as Text;
      return [...name.data].map((_, i) => {
        const range = document.createRange();
        range.setStart(name, i);
        range.setEnd(name, i + 1);
        return range.getBoundingClientRect().left;
      });
    });
    expect(places).toEqual(places.toSorted((a, b) => a - b));
    expect(errors).toEqual([]);
  });

  test('Markdown that takes a parser minutes is shown as it is, and what comes after it as ever', async () => {
    const slow = '**a_'.repeat(12_500);
    const long = '**bold** and plain. '.repeat(300);
    const { url, client, workspace } = await startBrowserServer({
      scenario: scenario(planner({ text: slow }), [{ match: { role: 'planner', turn: 2 }, respond: { text: long } }]),
    });
    const session = await client.createSession({ workspace_path: workspace });
    const { page, errors } = await openTab(`${url}/#/sessions/${session.id}`);
    await client.submitTurn(session.id, { content: 'slow' });
    await page.locator('.markdown.plain').getByText('**a_**a_').first().waitFor();
    await until(async () => (await client.getSession(session.id)).status === 'idle');
    await client.submitTurn(session.id, { content: 'long' });
    await page.locator('.markdown strong').nth(299).waitFor();
    await page.reload();
    await page.locator('.markdown strong').nth(299).waitFor();
    await page.locator('.markdown.plain').getByText('**a_**a_').first().waitFor();
    expect(errors).toEqual([]);
  });

  test('moment without a free processor leaves no Markdown as it is', async () => {
    const text = '**bold** and plain. '.repeat(310);
    const { url, client, workspace } = await startBrowserServer({ scenario: scenario(planner({ text })) });
    const session = await client.createSession({ workspace_path: workspace });
    await client.submitTurn(session.id, { content: 'go' });
    await until(async () => (await client.getSession(session.id)).status === 'idle');
    const { page, errors } = await openTab('about:blank');
    let loads = 0;
    await page.route(/markdown-worker/, (route) => {
      loads += 1;
      // The first one is loaded, and comes to nothing within its time.
      if (loads === 1) return route.fulfill({ contentType: 'text/javascript', body: "postMessage('loaded')" });
      return route.continue();
    });
    await page.goto(`${url}/#/sessions/${session.id}`);
    await page.locator('.markdown strong').nth(309).waitFor();
    expect(loads).toBe(2);
    expect(errors).toEqual([]);
  });

  test('address leads to no other operation than its own', async () => {
    const { url } = await startBrowserServer({ scenario: scenario() });
    const { page, errors } = await openTab('about:blank');
    const asked: string[] = [];
    page.on('request', (request) => asked.push(new URL(request.url()).pathname));
    for (const id of ['..', '.', '%2e%2e', '..%2fhealthz']) {
      await page.goto(`${url}/#/sessions/${id}`);
      await page.getByText('The session could not be loaded').waitFor();
    }
    expect(asked.filter((path) => /^\/(?:stream|messages|turns|workers)?$/.test(path) && path !== '/')).toEqual([]);
    expect(asked.filter((path) => path === '/')).toHaveLength(1);
    expect(errors).toEqual([]);
  });

  test('flood of questions is drawn and asked about in parts, and all of it can be answered', async () => {
    const { url, client, workspace } = await startBrowserServer({
      config: { ...ASKS, tools: { max_concurrent_per_session: 240 } },
      scenario: scenario(planner({ tool_calls: writes(230) }, { text: 'ok' })),
    });
    const session = await client.createSession({ workspace_path: workspace });
    await client.submitTurn(session.id, { content: 'go' });
    await until(async () => (await client.listConfirmations({ limit: 200 })).next_cursor !== null);
    const { page, errors } = await openTab('about:blank');
    const details = new Set<string>();
    page.on('request', (request) => {
      const id = /^\/confirmations\/(.+)$/.exec(new URL(request.url()).pathname)?.[1];
      if (id !== undefined) details.add(id);
    });
    await page.goto(`${url}/#/approvals`);
    const cards = page.locator('.approval');
    await cards.nth(39).waitFor();
    await page.getByText('200+ open').waitFor();
    expect(await cards.count()).toBe(40);
    await page.goto(`${url}/#/sessions/${session.id}`);
    await page.getByText('225 more are waiting').waitFor();
    expect(await cards.count()).toBe(5);
    expect(details.size).toBeLessThan(60);
    // One that is answered makes room for the next.
    await cards.first().focus();
    await page.keyboard.press('a');
    await page.getByText('224 more are waiting').waitFor();
    // Which of them is first is open: they were asked at once.
    await until(() => fs.readdirSync(workspace).some((name) => /^f\d+\.txt$/.test(name)));
    expect(await cards.count()).toBe(5);
    expect(errors).toEqual([]);
  });

  test('text of megabytes and hundreds of calls at once are drawn in parts, down to the last', async () => {
    const { url, engine, client, workspace } = await startBrowserServer({
      scenario: scenario(
        planner({ tool_calls: Array.from({ length: 150 }, () => call('list_files', {})) }, { text: 'listed' }),
      ),
    });
    const source = { ids: engine.ids, time: { now: engine.clock.now() } };
    const session = sessionRecord(source);
    const turn = turnRecord(source, session);
    const big = `${'word and `code` '.repeat(330_000)}the end`;
    await engine.journal.commit({
      writes: [
        { kind: 'session.insert', session },
        { kind: 'turn.insert', turn },
        { kind: 'message.insert', message: userMessage(source, turn, big) },
        { kind: 'message.insert', message: assistantMessage(source, turn, [{ type: 'text', text: big }]) },
        { kind: 'turn.end', turn_id: turn.id, session_id: session.id, outcome: outcome(source), unread_inputs: 0 },
      ],
      emit: [],
    });
    const { page, errors } = await openTab(`${url}/#/sessions/${session.id}`);
    await page.locator('.message.assistant').getByText('more characters are not shown').waitFor();
    const drawn = () => page.evaluate(() => document.body.textContent?.length ?? 0);
    expect(await drawn()).toBeLessThan(120_000);
    await page.locator('.message.assistant').getByRole('button', { name: '50k more' }).click();
    await until(async () => (await drawn()) > 150_000);

    // The newest messages are results of tools alone, which show nothing by themselves.
    const many = await client.createSession({ workspace_path: workspace });
    await client.submitTurn(many.id, { content: 'list' });
    await until(async () => (await client.getSession(many.id)).turn_count === 1);
    await engine.journal.commit({ writes: [], emit: [] });
    await page.goto(`${url}/#/sessions/${many.id}`);
    await page.locator('.tool-card').first().waitFor();
    expect(await page.locator('.tool-card').count()).toBe(60);
    await page.getByRole('button', { name: '90 more' }).click();
    await page.getByRole('button', { name: '30 more' }).click();
    await until(async () => (await page.locator('.tool-card.done').count()) === 150);
    expect(errors).toEqual([]);
  });

  test('server that dies in an approval or takes no token any more is told, nothing is lost, and no refused token is left behind', async () => {
    const token = 'a-token-that-is-long-enough-for-the-server';
    const first = await startBrowserServer({
      token,
      config: { ...ASKS, shutdown: { drain_seconds: 0 } },
      scenario: scenario(planner({ tool_calls: writes(1) }, { text: 'written' })),
    });
    const session = await first.client.createSession({ workspace_path: first.workspace });
    await first.client.submitTurn(session.id, { content: 'go' });
    // A token in the address is nobody's: it is not taken, and not sent anywhere.
    const { page, errors } = await openTab(`${first.url}/#/approvals?token=${token}`);
    const sent: string[] = [];
    page.on('request', (request) => sent.push(request.url()));
    await page.getByLabel('Token').fill(token);
    await page.keyboard.press('Enter');
    const card = page.locator('.approval');
    await card.waitFor();
    await card.getByRole('button', { name: 'Approve' }).waitFor();
    await until(async () => card.getByRole('button', { name: 'Approve' }).isEnabled());
    await first.close();
    await card.getByRole('button', { name: 'Approve' }).click();
    await card.getByRole('alert').getByText('does not answer').waitFor();
    await page.getByText('Reconnecting…').waitFor();
    const second = await first.restart();
    await page
      .getByText('Connected')
      .or(page.getByText(/running$/))
      .waitFor();
    await until(async () => (await second.client.listConfirmations()).confirmations.length === 1);
    await page.locator('.approval').getByRole('button', { name: 'Approve' }).click();
    await until(() => fs.existsSync(path.join(first.workspace, 'f0.txt')));
    // The same page, a server that knows the token no more: every question of it says so, the page asks once.
    await second.close();
    const stranger = await first.restart('another-token-that-is-long-enough-as-well');
    await page.getByRole('alert').getByText('does not accept this token').waitFor();
    expect(await page.locator('.approval, .view').count()).toBe(0);
    await page.getByLabel('Token').fill('another-token-that-is-long-enough-as-well');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Approvals', exact: true }).waitFor();
    // The tab keeps the one that is accepted; the browser keeps none.
    const kept = await page.evaluate(() => [
      JSON.stringify([{ ...localStorage }, document.cookie]),
      JSON.stringify(Object.values({ ...sessionStorage })),
    ]);
    expect(kept).toEqual([expect.not.stringContaining('token'), '["another-token-that-is-long-enough-as-well"]']);
    expect(sent.filter((address) => address.includes('long-enough'))).toEqual([]);
    expect(stranger.url).toBe(first.url);
    expect(errors).toEqual([]);
  });
});
