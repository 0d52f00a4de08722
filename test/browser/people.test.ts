// A server of a team in a real browser: signing in and out, who one is, and what a role does not show (23).
import { createHash } from 'node:crypto';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createMetisClient, type MetisClient, type Session } from '#client/client.ts';
import { until } from '../support/until.ts';
import { browserEndpoint, expectWhole, openTab, type Tab } from './page.ts';
import { type BrowserServer, startBrowserServer } from './server.ts';

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
});
