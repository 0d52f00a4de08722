// The dashboard's shell and its list of sessions, in a real browser against a real server (17 §3).
import { describe, expect, test } from 'vitest';
import { sessionRecord } from '../support/records.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { until } from '../support/until.ts';
import { browserEndpoint, expectAccessible, expectWhole, openTab } from './page.ts';
import { startBrowserServer } from './server.ts';

const JOB = scenario(
  planner({ tool_calls: [delegate('look into it')] }, { text: 'done' }),
  worker('look into it', { tool_calls: [call('list_files', {})] }, { text: 'found nothing' }),
);

describe.skipIf(browserEndpoint === null)('the page at /', () => {
  test('comes under a strict policy, is cached by name, and is known again by its tag', async () => {
    const { url } = await startBrowserServer({ scenario: JOB });
    const page = await fetch(url);
    expect(page.headers.get('content-security-policy')).toBe(
      "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    );
    expect(page.headers.get('cache-control')).toBe('no-cache');
    const etag = page.headers.get('etag')!;
    expect((await fetch(url, { headers: { 'if-none-match': etag } })).status).toBe(304);
    expect((await fetch(url, { headers: { 'if-none-match': '"another"' } })).status).toBe(200);
    const names = [...(await page.text()).matchAll(/"(assets\/[^"]+)"/g)].map((m) => m[1]!);
    // Icon, style sheet, program, and the worker that parses Markdown.
    expect(names).toHaveLength(4);
    for (const name of names) {
      const asset = await fetch(new URL(name, url));
      expect([asset.status, asset.headers.get('cache-control')]).toEqual([200, 'public, max-age=31536000, immutable']);
    }
    expect((await fetch(new URL('/assets/nothing.js', url))).status).toBe(404);
  });

  // Promise 17.8: a wrong token is asked for again, the right one is kept for the tab only, and no request goes to another host.
  test('asks for the token, asks again for a wrong one, and forgets it with the tab', async () => {
    const token = 'a-token-that-is-long-enough-for-the-server';
    const { url, client, workspace } = await startBrowserServer({ scenario: JOB, token });
    await client.createSession({ workspace_path: workspace });
    const { page, errors, origins } = await openTab(`${url}/#/sessions`);
    const field = page.getByLabel('Token');
    await field.fill('not the token');
    await page.keyboard.press('Enter');
    await page.getByRole('alert').getByText('does not accept this token').waitFor();
    await expectAccessible(page);
    await field.fill(token);
    await page.keyboard.press('Enter');
    await page.getByRole('link', { name: 'Untitled session' }).waitFor();
    expect(await page.evaluate(() => JSON.stringify([localStorage, document.cookie]))).not.toContain(token);
    await page.reload();
    await page.getByRole('link', { name: 'Untitled session' }).waitFor();
    const other = await page.context().newPage();
    await other.goto(url);
    await other.getByLabel('Token').waitFor();
    expect(errors).toEqual([]);
    expect([...origins]).toEqual([new URL(url).origin]);
  });
});

describe.skipIf(browserEndpoint === null)('the sessions', () => {
  // Promise 17.6: the list of sessions passes axe and logs no error.
  test('show state, workers and exact costs, follow what happens, and outlast a restart', async () => {
    let server = await startBrowserServer({ scenario: JOB });
    const { url, client, workspace } = server;
    const { page, errors } = await openTab(`${url}/#/sessions`, { viewport: { width: 1440, height: 820 } });
    await page.getByRole('heading', { name: 'No sessions yet' }).waitFor();
    await expectAccessible(page);
    const session = await client.createSession({ workspace_path: workspace, max_cost_usd: '2' });
    await client.submitTurn(session.id, { content: '<img src=x onerror=alert(1)> refactor' });
    const row = page.getByRole('row').filter({ hasText: '<img src=x onerror=alert(1)> refactor' });
    await row.waitFor();
    const ended = await until(async () => {
      const now = await client.getSession(session.id);
      return now.status === 'idle' && now;
    });
    await row.getByText('idle').waitFor();
    const titles = await row.locator('.number').evaluateAll((cells) => cells.map((cell) => cell.getAttribute('title')));
    expect(titles).toContain(`$${ended.cost_so_far_usd}`);
    expect(titles).toContain(`$${ended.workers_cost_usd}`);
    await expectAccessible(page);
    await page.getByRole('checkbox', { name: 'Workers' }).check();
    await page.getByRole('link', { name: 'look into it' }).waitFor();

    await server.close();
    await page.getByText('Reconnecting…').waitFor();
    server = await server.restart();
    await page.getByText('Connected').waitFor();
    await client.createSession({ workspace_path: workspace });
    await page.getByRole('link', { name: 'Untitled session' }).waitFor();
    expect(errors).toEqual([]);
  });

  test('are scrolled by the thousand, and filtered by text and state', async () => {
    const { url, engine } = await startBrowserServer({ scenario: JOB });
    const source = { ids: engine.ids, time: { now: engine.clock.now() } };
    const many = Array.from({ length: 5000 }, () => sessionRecord(source));
    await engine.journal.commit({ writes: many.map((session) => ({ kind: 'session.insert', session })), emit: [] });
    const { page, errors } = await openTab(`${url}/#/sessions`);
    await page.getByRole('link').nth(20).waitFor();
    const drawn = () => page.locator('tbody tr').count();
    expect(await drawn()).toBeLessThan(80);
    const last = page.locator(`a[href$="${many[0]!.id}"]`);
    await until(async () => {
      await page.locator('.long-table').evaluate((box) => box.scrollTo(0, box.scrollHeight));
      return last.isVisible();
    }, 45);
    expect(await drawn()).toBeLessThan(80);
    expect(await page.getByRole('table').getAttribute('aria-rowcount')).toBe('5001');
    await page.getByRole('searchbox').fill(many[77]!.id);
    await until(async () => (await drawn()) === 1);
    await page.getByRole('searchbox').fill('');
    await page.getByRole('button', { name: /State/ }).press('Enter');
    await page.keyboard.press('End');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'No session matches' }).waitFor();
    expect(errors).toEqual([]);
  });

  test('keep their filters in the address: after a session, by the back button, and for another person', async () => {
    const { url, client, workspace } = await startBrowserServer({ scenario: JOB });
    for (const content of ['port the parser', 'port the printer']) {
      const { id } = await client.createSession({ workspace_path: workspace });
      await client.submitTurn(id, { content });
    }
    const { page, errors } = await openTab(`${url}/#/sessions`, { viewport: { width: 1440, height: 900 } });
    const link = (name: string) => page.getByRole('link', { name });
    await link('port the parser').waitFor();
    await page.getByRole('checkbox', { name: 'Workers' }).check();
    await link('look into it').first().waitFor();
    await page.getByRole('button', { name: /^State/ }).click();
    await page.getByRole('menuitemradio', { name: 'Idle' }).click();
    await link('look into it').first().waitFor({ state: 'detached' });
    await page.getByRole('searchbox').fill('parser');
    await link('port the printer').waitFor({ state: 'detached' });
    await page.waitForURL(/sessions\?state=idle&q=parser&workers=1$/);
    const address = page.url();
    await link('port the parser').click();
    await page.getByLabel('Message').waitFor();
    await page.goBack();
    await page.waitForURL(address);
    await link('port the parser').waitFor();
    expect(await page.getByRole('searchbox').inputValue()).toBe('parser');
    const { page: other } = await openTab(address);
    await other.getByRole('link', { name: 'port the parser' }).waitFor();
    expect(await other.getByRole('link', { name: 'port the printer' }).count()).toBe(0);
    // A letter is no step of the history: the next one back is the list before the search.
    await page.goBack();
    await page.waitForURL(/sessions\?workers=1$/);
    expect(await page.getByRole('checkbox', { name: 'Workers' }).isChecked()).toBe(true);
    await link('port the printer').waitFor();
    expect(await page.getByRole('searchbox').inputValue()).toBe('');
    expect(errors).toEqual([]);
  });

  test('keep a filter that is chosen in the moment in which the search settles', async () => {
    const { url, client, workspace } = await startBrowserServer({ scenario: JOB });
    await client.createSession({ workspace_path: workspace });
    const { page, errors } = await openTab(`${url}/#/sessions`);
    await page.getByRole('link', { name: 'Untitled session' }).waitFor();
    // The search is drawn as settled, and has not written its address yet: then a state is chosen.
    await page.clock.install();
    await page.clock.pauseAt(await page.evaluate(() => Date.now() + 1000));
    await page.getByRole('searchbox').fill('parser');
    await page.clock.runFor(100);
    await page.clock.fastForward(200);
    await page.evaluate(() => {
      location.hash = '#/sessions?state=idle';
    });
    await page.clock.resume();
    await page.waitForURL(/sessions\?state=idle&q=parser$/);
    // The address has changed, and the page was not yet informed of it.
    await page.getByRole('button', { name: /^State/ }).click();
    await page.evaluate(() => {
      location.hash = '#/sessions?q=parser&workers=1';
      document.querySelector<HTMLElement>('[role=menuitemradio]:last-child')!.click();
    });
    await page.waitForURL(/sessions\?state=ended&q=parser&workers=1$/);
    await page.getByRole('heading', { name: 'No session matches' }).waitFor();
    expect(await page.getByRole('searchbox').inputValue()).toBe('parser');
    expect(errors).toEqual([]);
  });

  test('ignore what is blank or invalid in the address, and cut a search at its limit', async () => {
    const { url, client, workspace } = await startBrowserServer({ scenario: JOB });
    const { id } = await client.createSession({ workspace_path: workspace });
    await client.submitTurn(id, { content: 'port the parser' });
    const { page, errors } = await openTab(`${url}/#/sessions`);
    await page.getByRole('link', { name: 'port the parser' }).waitFor();
    const asked: string[] = [];
    page.on('request', (request) => {
      const { pathname, searchParams: query } = new URL(request.url());
      if (pathname !== '/sessions' || !query.has('include_workers')) return;
      const filters = JSON.stringify(['worker_name', 'owner', 'q'].map((name) => query.get(name)));
      if (asked.at(-1) !== filters) asked.push(filters);
    });
    const long = (length: number) => 'x'.repeat(length);
    const cases: readonly (readonly [string, readonly (string | null)[]])[] = [
      [`q=%20${long(300)}&owner=`, [null, null, long(200)]],
      ['owner=&worker=&q=', [null, null, null]],
      [`q=${long(199)}%F0%9F%8E%89&owner=%20`, [null, null, long(199)]],
      ['owner=%20&worker=%20&q=%20', [null, null, null]],
      [`owner=${long(100)}&worker=${long(64)}`, [long(64), long(100), null]],
      [`owner=${long(101)}&worker=${long(65)}&q=a%00b`, [null, null, null]],
      ['q=%20parser%20&worker=__proto__', [null, null, 'parser']],
    ];
    for (const [query, filters] of cases) {
      await page.evaluate((hash) => {
        location.hash = hash;
      }, `#/sessions?${query}`);
      await until(() => asked.at(-1) === JSON.stringify(filters));
    }
    expect(asked.slice(-cases.length)).toEqual(cases.map(([, filters]) => JSON.stringify(filters)));
    await page.getByRole('link', { name: 'port the parser' }).waitFor();
    expect(await page.getByRole('searchbox').inputValue()).toBe('parser');
    expect(await page.getByRole('button', { name: /^(Owner|Worker)/ }).count()).toBe(0);
    expect(await page.getByText('could not be loaded').count()).toBe(0);
    expect(errors).toEqual([]);
  });

  // Promise 17.8: nothing of the list of sessions is cut off at any width.
  test('are whole from 400 to 2560 px, light and dark', async () => {
    const { url, client, workspace } = await startBrowserServer({ scenario: JOB });
    await client.createSession({ workspace_path: workspace, max_cost_usd: '1234.5' });
    const { page } = await openTab(`${url}/#/sessions`);
    await page.getByRole('link', { name: 'Untitled session' }).waitFor();
    await expectWhole(page);
  });

  test('keep their tool bar in sight where a filter has a long value', async () => {
    const { url } = await startBrowserServer({ scenario: JOB });
    const owner = 'W'.repeat(100);
    const { page } = await openTab(`${url}/#/sessions?owner=${owner}&worker=${'W'.repeat(64)}`);
    for (const width of [400, 1280]) {
      await page.setViewportSize({ width, height: 900 });
      for (const name of [/^Owner/, /^Worker/, /^New session/]) {
        const box = await page.getByRole('button', { name }).boundingBox();
        expect(box!.width, `${name} ${width}`).toBeLessThan(360);
        expect(box!.x + box!.width, `${name} ${width}`).toBeLessThanOrEqual(width);
      }
    }
    expect(await page.getByTitle(owner).count()).toBe(1);
    await page.getByRole('button', { name: /^Owner/ }).click();
    const choice = page.getByRole('menuitemradio', { name: owner });
    expect(await choice.evaluate((item) => item.scrollWidth <= item.clientWidth)).toBe(true);
  });
});
