// A server of a team in a real browser: signing in and out, who one is, and what a role does not show (23).
import { createHash } from 'node:crypto';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createMetisClient, type MetisClient, type Session } from '#client/client.ts';
import { exactUsd } from '../../src/dashboard/format/format.ts';
import { call, planner, scenario } from '../support/scenario.ts';
import { until } from '../support/until.ts';
import { browserEndpoint, expectWhole, openTab, type Tab } from './page.ts';
import { type BrowserServer, REAL_MODELS, startBrowserServer } from './server.ts';

const NAMES = { ann: 'member', bob: 'member', eve: 'viewer', root: 'admin' } as const;
type Name = keyof typeof NAMES;
const secretOf = (name: string) => `${name}-0123456789abcdef0123456789abcdef`;
const fileToken = (name: Name) => ({
  token_sha256: createHash('sha256').update(secretOf(name)).digest('hex'),
  role: NAMES[name],
  daily_usd: name === 'ann' ? '5' : null,
  monthly_usd: null,
  workspaces: null,
  expires_at: null,
});

let server: BrowserServer;
let asAnn: MetisClient;
let asRoot: MetisClient;

const clientOf = (name: Name) => createMetisClient({ baseUrl: server.url, token: secretOf(name) });

async function signIn(page: Page, secret: string): Promise<void> {
  await page.getByLabel('Token').fill(secret);
  await page.getByRole('button', { name: 'Sign in' }).click();
}

async function openAs(name: Name, place: string): Promise<Tab> {
  const tab = await openTab(`${server.url}/#/${place}`);
  await signIn(tab.page, secretOf(name));
  await tab.page.locator('.identity').getByText(NAMES[name], { exact: true }).waitFor();
  return tab;
}

async function openSession(client: MetisClient, body: object = {}): Promise<Session> {
  const session = await client.createSession({ workspace_path: server.workspace, ...body });
  await client.submitTurn(session.id, { content: `a task of ${session.owner?.name}` });
  await until(async () => (await client.getSession(session.id)).status === 'idle');
  return client.getSession(session.id);
}

describe.skipIf(browserEndpoint === null)('a server of a team', () => {
  let closeServer = async () => {};
  beforeAll(async () => {
    const tokens = Object.fromEntries((Object.keys(NAMES) as Name[]).map((name) => [name, fileToken(name)]));
    const options = {
      registry: REAL_MODELS,
      config: { server: { tokens } },
      scenario: {
        version: 1,
        strict: false,
        rules: [],
        fallback: { text: 'It is done.', usage: { input_tokens: 1000, output_tokens: 100 } },
      },
    };
    server = await startBrowserServer(options, (close) => {
      closeServer = close;
    });
    [asAnn, asRoot] = [clientOf('ann'), clientOf('root')];
  });
  afterAll(() => closeServer());

  // Promise 23.1: over the dashboard's data too, and over its stream.
  test('asks who one is, shows name and role, and forgets all at sign-out', async () => {
    const session = await openSession(asAnn);
    const { page, errors } = await openTab(`${server.url}/#/sessions/${session.id}`);
    await signIn(page, 'not-a-token-of-this-server');
    await page.getByRole('alert').getByText('does not accept this token').waitFor();
    await expectWhole(page, 'sign in');
    await signIn(page, secretOf('ann'));
    await page.locator('.identity').getByText('ann').waitFor();
    await page.getByText('It is done.').first().waitFor();
    // Over the stream as well: another turn appears by itself.
    await page.getByLabel('Message').fill('one more');
    await page.keyboard.press('Enter');
    await until(async () => (await page.getByText('It is done.').count()) > 1);
    await page.getByLabel('Message').fill('not sent');
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByLabel('Token').waitFor();
    expect(await page.locator('.view').count()).toBe(0);
    expect(await page.evaluate(() => [sessionStorage.length, document.cookie])).toEqual([0, '']);
    await page.reload();
    await page.getByLabel('Token').waitFor();
    await signIn(page, secretOf('ann'));
    await page.getByText('It is done.').first().waitFor();
    expect(await page.getByLabel('Message').inputValue()).toBe('');
    await expectWhole(page, 'signed in');
    expect(errors).toEqual([]);
  });

  // Promise 23.1: what a role may not do has no button in the dashboard.
  test('a viewer and a member see no action that they may not do, the owner and an admin all', async () => {
    const session = await openSession(asAnn);
    const shown = async (name: Name) => {
      const { page, errors } = await openAs(name, `sessions/${session.id}`);
      await page.getByText('It is done.').first().waitFor();
      const has = async (role: 'button' | 'textbox', label: string) =>
        (await page.getByRole(role, { name: label, exact: true }).count()) > 0;
      const found = {
        send: await has('textbox', 'Message'),
        cap: await has('button', 'Set a cap'),
        branch: await has('button', 'Branch from here'),
        score: await has('button', 'Good answer'),
        open: false,
      };
      await page.goto(`${server.url}/#/sessions`);
      await page.getByRole('link', { name: 'a task of ann' }).first().waitFor();
      found.open = await has('button', 'New session');
      await page.goto(`${server.url}/#/settings`);
      await page.getByRole('heading', { name: 'Prices' }).waitFor();
      const keys = await page.getByRole('region', { name: 'Provider keys' }).count();
      expect(errors).toEqual([]);
      return { ...found, keys: keys > 0 };
    };
    const all = { send: true, cap: true, branch: true, score: true, open: true };
    const none = { send: false, cap: false, branch: false, score: false, open: false };
    expect(await shown('eve')).toEqual({ ...none, keys: false });
    expect(await shown('bob')).toEqual({ ...none, open: true, keys: false });
    expect(await shown('ann')).toEqual({ ...all, keys: false });
    expect(await shown('root')).toEqual({ ...all, keys: true });
    await asAnn.updateSession(session.id, { share: 'write' });
    expect(await shown('bob')).toEqual({ ...all, keys: false });
  });

  // Promise 23.3: the open page of a revoked token shows nothing of the server any more.
  test('a token that is revoked while the page is open leads to one sentence; what was typed stays', async () => {
    const made = await asRoot.createToken({ name: 'carl', role: 'member' });
    const session = await openSession(createMetisClient({ baseUrl: server.url, token: made.secret }));
    const { page, errors } = await openTab(`${server.url}/#/sessions/${session.id}`);
    await signIn(page, made.secret);
    await page.getByLabel('Message').fill('half a thought');
    await asRoot.revokeToken('carl');
    await page.getByRole('alert').getByText('it was revoked or has expired').waitFor();
    expect(await page.getByRole('alert').count()).toBe(1);
    expect(await page.locator('.view').count()).toBe(0);
    expect(await page.evaluate(() => sessionStorage.length)).toBe(0);
    await signIn(page, secretOf('root'));
    await page.locator('.identity').getByText('root').waitFor();
    await page.getByText('It is done.').first().waitFor();
    expect(await page.getByLabel('Message').inputValue()).toBe('half a thought');
    expect(errors).toEqual([]);
  });

  // Promise 23.1: the owner and admins share a session, an admin gives it to another; others have no button for it.
  test("shows whose a session is, shares it, gives it away, and lists one's own", async () => {
    const session = await openSession(asAnn);
    const ann = await openAs('ann', `sessions/${session.id}`);
    await ann.page.getByRole('button', { name: 'Share' }).click();
    const dialog = ann.page.getByRole('dialog', { name: 'Share the session' });
    expect(await dialog.getByRole('combobox', { name: 'Owner' }).count()).toBe(0);
    await dialog.getByLabel('Who else may use it').selectOption('private');
    await expectWhole(ann.page, 'share');
    await dialog.getByRole('button', { name: 'Save' }).click();
    await ann.page.locator('.session-title').getByText('private').waitFor();
    expect((await asAnn.getSession(session.id)).share).toBe('private');

    const root = await openAs('root', `sessions/${session.id}`);
    await root.page.locator('.session-title').getByText('Owner: ann').waitFor();
    await root.page.getByRole('button', { name: 'Share' }).click();
    await root.page.getByRole('combobox', { name: 'Owner' }).selectOption('bob');
    await root.page.getByLabel('Who else may use it').selectOption('read');
    await root.page.getByRole('button', { name: 'Save' }).click();
    await root.page.locator('.session-title').getByText('Owner: bob').waitFor();
    expect(await asAnn.getSession(session.id)).toMatchObject({ owner: { name: 'bob' }, share: 'read' });

    // It is another's now: the open page of its former owner loses what she may not do any more.
    await ann.page.getByRole('button', { name: 'Share' }).waitFor({ state: 'detached' });
    await ann.page.getByLabel('Message').waitFor({ state: 'detached' });
    await ann.page.goto(`${server.url}/#/sessions`);
    const row = ann.page.locator(`a[href="#/sessions/${session.id}"]`);
    await row.waitFor();
    await ann.page.getByRole('button', { name: 'Owner Any' }).click();
    await ann.page.getByRole('menuitemradio', { name: 'Mine' }).click();
    await row.waitFor({ state: 'detached' });
    expect(ann.page.url()).toContain('owner=me');
    expect([...ann.errors, ...root.errors]).toEqual([]);
  });

  // Promise 23.7: the page shows the secret of a new token once, and forgets it with the dialog.
  test('lists tokens, makes one, revokes it, and shows refusals in place', async () => {
    const { page, errors } = await openAs('root', 'people');
    const tokens = page.getByRole('region', { name: 'Tokens', exact: true });
    await tokens.getByRole('row').filter({ hasText: 'ann' }).getByText('in the configuration').waitFor();
    await page.getByRole('button', { name: 'New token' }).click();
    await page.getByLabel('Name').fill('ann');
    await page.getByRole('button', { name: 'Make the token' }).click();
    await page.getByRole('alert').getByText('choose another').waitFor();
    await page.getByLabel('Name').fill('dora');
    await page.getByLabel('Daily limit').fill('2.50');
    await expectWhole(page, 'new token');
    await page.getByRole('button', { name: 'Make the token' }).click();
    const dialog = page.getByRole('dialog', { name: 'Token of dora' });
    const secret = (await dialog.locator('.secret code').textContent()) ?? '';
    await dialog.getByRole('button', { name: 'Copy the token' }).waitFor();
    expect((await createMetisClient({ baseUrl: server.url, token: secret }).getOwnToken()).token).toMatchObject({
      name: 'dora',
      role: 'member',
      daily_usd: '2.5',
    });
    await expectWhole(page, 'secret');
    await dialog.getByRole('button', { name: 'Done' }).click();
    expect(await page.content()).not.toContain(secret);
    const row = tokens.getByRole('row').filter({ hasText: 'dora' });
    await row.getByText('$2.50').waitFor();
    await expectWhole(page, 'tokens');
    await row.getByRole('button', { name: 'Revoke' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
    await row.waitFor({ state: 'detached' });
    await tokens.getByRole('button', { name: /^Show \d+ revoked token/ }).click();
    await row.getByText('revoked').waitFor();
    await page.getByRole('link', { name: 'Audit' }).click();
    const entry = page.getByRole('row').filter({ hasText: 'token.revoked' }).filter({ hasText: 'dora' });
    await entry.getByText('root').waitFor();
    await expectWhole(page, 'audit');
    expect(errors).toEqual([]);
    const { page: other } = await openAs('ann', 'people');
    await other.getByRole('heading', { name: 'Not found' }).waitFor();
    expect(await other.getByRole('link', { name: 'People' }).count()).toBe(0);
  });

  // Promise 23.4: a person sees their own money first, with the limits of the token, an admin that of every owner.
  test("shows one's own money first on Cost", async () => {
    await openSession(asAnn);
    const { token } = await asAnn.getOwnToken();
    const ann = await openAs('ann', 'cost');
    const own = ann.page.getByRole('region', { name: 'Your money' });
    await own.getByTitle(`${exactUsd(token?.spent_today_usd ?? '')} of $5.00 spent`).waitFor();
    expect(await ann.page.getByRole('region', { name: 'By owner' }).count()).toBe(0);
    await ann.page.locator('.cost-table').waitFor();
    const first = await ann.page.locator('.view-body').evaluate((body) => body.firstElementChild?.ariaLabel);
    expect(first).toBe('Your money');
    await own.getByRole('link', { name: 'Your cost' }).click();
    await ann.page.getByRole('button', { name: 'Owner Mine' }).waitFor();
    await expectWhole(ann.page, 'own money');
    const root = await openAs('root', 'cost?group=owner');
    await root.page.locator('.cost-table').getByRole('link', { name: 'ann', exact: true }).waitFor();
    const owners = root.page.getByRole('region', { name: 'By owner' });
    await owners.getByRole('row').filter({ hasText: 'ann' }).getByTitle('of $5.00 spent').waitFor();
    await expectWhole(root.page, 'by owner');
    expect([...ann.errors, ...root.errors]).toEqual([]);
  });
});

// Promise 23.1: with `approvals.own` off the dashboard offers a member no answer to calls of its own sessions.
test.skipIf(browserEndpoint === null)(
  'a member who may not approve its own calls sees them without buttons',
  async () => {
    server = await startBrowserServer({
      config: {
        server: { tokens: { ann: fileToken('ann'), bob: fileToken('bob') } },
        approvals: { own: false },
        tool_confirmation: {
          default: { none: 'auto', read: 'auto', write: 'prompt', execute: 'prompt', network: 'prompt' },
        },
      },
      scenario: scenario(
        planner({ tool_calls: [call('write_file', { path: 'a.txt', content: 'x' })] }, { text: 'ok' }),
      ),
    });
    asAnn = clientOf('ann');
    const session = await asAnn.createSession({ workspace_path: server.workspace, share: 'write' });
    await asAnn.submitTurn(session.id, { content: 'go' });
    await until(async () => (await asAnn.listConfirmations()).confirmations.length === 1);
    const { page, errors } = await openAs('ann', 'approvals');
    await page.locator('.approval').getByText('a.txt').first().waitFor();
    await page.locator('.approval').getByText('Another member or an admin answers').waitFor();
    expect(await page.getByRole('button', { name: 'Approve' }).count()).toBe(0);
    await page.locator('.approval').press('a');
    expect(await page.locator('.nav-count').count()).toBe(0);
    await expectWhole(page, 'own approval');
    const other = await openAs('bob', 'approvals');
    await other.page.getByRole('button', { name: 'Approve' }).click();
    await other.page.getByRole('heading', { name: 'No open approvals' }).waitFor();
    expect([...errors, ...other.errors]).toEqual([]);
  },
);

// Promise 23.9: one person on loopback sees nothing of people in any view.
test.skipIf(browserEndpoint === null)('a server without tokens shows nothing of people', async () => {
  const { url, client, workspace } = await startBrowserServer({ scenario: { version: 1, rules: [] } });
  const { id } = await client.createSession({ workspace_path: workspace });
  const { page, errors } = await openTab(url);
  const shown: string[] = [];
  for (const view of ['', 'sessions', `sessions/${id}`, 'approvals', 'workers', 'cost', 'models', 'settings']) {
    await page.goto(`${url}/#/${view}`);
    await page.locator('h1').first().waitFor();
    await page.locator('.skeleton').first().waitFor({ state: 'detached' });
    shown.push(await page.locator('body').innerText());
  }
  expect(shown.filter((text) => /Sign out|People|Owner|Share|Yours|private/.test(text))).toEqual([]);
  expect(await page.locator('.identity').count()).toBe(0);
  await page.goto(`${url}/#/people`);
  await page.getByRole('heading', { name: 'Not found' }).waitFor();
  expect(errors).toEqual([]);
});
