// What a worker changed, as lines that go and come, and notifications of what needs attention (17 §3).
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { until } from '../support/until.ts';
import { browserEndpoint, expectWhole, openTab } from './page.ts';
import { startBrowserServer } from './server.ts';

describe.skipIf(browserEndpoint === null)("a worker's changes", () => {
  // Promise 17.6: a card with its diff passes axe and logs no error.
  test('are shown as a diff on its card and in its own conversation', async () => {
    const { url, client, workspace } = await startBrowserServer({
      files: { 'a.txt': 'one\ntwo\n' },
      scenario: scenario(
        planner({ tool_calls: [delegate('count on')] }, { text: 'done' }),
        worker(
          'count on',
          { tool_calls: [call('read_file', { path: 'a.txt' })] },
          { tool_calls: [call('edit_file', { path: 'a.txt', old: 'two', new: 'three' })] },
          { text: 'changed' },
        ),
      ),
    });
    const session = await client.createSession({ workspace_path: workspace });
    await client.submitTurn(session.id, { content: 'begin' });
    await until(async () => (await client.getSession(session.id)).status === 'idle');
    const { page, errors } = await openTab(`${url}/#/sessions/${session.id}`);
    const card = page.getByRole('article', { name: /^Delegation/ });
    await card.getByText('in the shared workspace').waitFor();
    await card.getByText('1 changed file').click();
    const diff = page.getByRole('figure', { name: 'Change of a.txt' });
    await diff.locator('.diff-out').getByText('- two').waitFor();
    await diff.locator('.diff-in').getByText('+ three').waitFor();
    await expectWhole(page, 'a card with its changes');
    await card.getByRole('link', { name: 'Open' }).click();
    await page.getByRole('link', { name: 'Back to the planner' }).waitFor();
    await page.locator('.tool-card summary').filter({ hasText: 'edit_file' }).click();
    await diff.locator('.diff-in').getByText('+ three').waitFor();
    expect(errors).toEqual([]);
  });
});

describe.skipIf(browserEndpoint === null)('a worker that has ended', () => {
  // Promise 17.6: a card with its worktree and its form passes axe and logs no error.
  test('is continued by a form, and what it kept in a worktree is shown and applied', async () => {
    const { url, client, workspace } = await startBrowserServer({
      files: { 'a.txt': 'one\n' },
      scenario: scenario(
        [{ match: { user_contains: 'and once more' }, respond: { text: 'again' } }],
        planner({ tool_calls: [delegate('count on', { isolation: 'worktree', apply: 'never' })] }, { text: 'done' }),
        worker(
          'count on',
          { tool_calls: [call('edit_file', { path: 'a.txt', old: 'one', new: 'two' })] },
          { text: 'changed' },
        ),
      ),
    });
    commitFiles(workspace);
    const session = await client.createSession({ workspace_path: workspace });
    await client.submitTurn(session.id, { content: 'begin' });
    await until(async () => (await client.getSession(session.id)).status === 'idle');
    const { page, errors } = await openTab(`${url}/#/sessions/${session.id}`);
    const card = page.getByRole('article', { name: /^Delegation/ });
    await card.getByText('in a worktree', { exact: true }).waitFor();
    await card.getByText('its changes are not applied').waitFor();
    await card.getByText('Diff of its worktree').click();
    await card.getByText('+two').waitFor();
    await card.getByRole('button', { name: 'Apply' }).click();
    await card.getByText('its changes are applied').waitFor();
    expect(fs.readFileSync(path.join(workspace, 'a.txt'), 'utf8')).toBe('two\n');
    await card.locator('summary').filter({ hasText: 'Continue' }).click();
    await card.getByLabel('Task for the worker that continues this one').fill('and once more');
    await card.getByRole('button', { name: 'Continue' }).click();
    await card.getByRole('link', { name: /^sess_/ }).waitFor();
    await expectWhole(page, 'a card with its worktree');
    const { workers } = await client.listWorkers(session.id);
    const next = await client.getSession(workers[1]!.worker_session_id!);
    expect(next.continues_session_id).toBe(workers[0]!.worker_session_id);
    expect(errors).toEqual([]);
  });
});

describe.skipIf(browserEndpoint === null)('a worker whose changes conflict', () => {
  test('names the paths, and is applied once the workspace allows it', async () => {
    const { url, client, workspace } = await startBrowserServer({
      files: { 'a.txt': 'one\n' },
      scenario: scenario(
        planner({ tool_calls: [delegate('count on', { isolation: 'worktree', apply: 'never' })] }, { text: 'done' }),
        worker(
          'count on',
          { tool_calls: [call('edit_file', { path: 'a.txt', old: 'one', new: 'two' })] },
          { text: 'changed' },
        ),
      ),
    });
    commitFiles(workspace);
    const session = await client.createSession({ workspace_path: workspace });
    await client.submitTurn(session.id, { content: 'begin' });
    await until(async () => (await client.getSession(session.id)).status === 'idle');
    fs.writeFileSync(path.join(workspace, 'a.txt'), 'uno\n');
    const { page, errors } = await openTab(`${url}/#/sessions/${session.id}`);
    const card = page.getByRole('article', { name: /^Delegation/ });
    const apply = card.getByRole('button', { name: 'Apply' });
    await apply.click();
    await card.getByText('its changes are not applied, conflicts in a.txt').waitFor();
    expect(fs.readFileSync(path.join(workspace, 'a.txt'), 'utf8')).toBe('uno\n');
    await expectWhole(page, 'a card with conflicts');
    fs.writeFileSync(path.join(workspace, 'a.txt'), 'one\n');
    await apply.click();
    await card.getByText('its changes are applied').waitFor();
    expect(fs.readFileSync(path.join(workspace, 'a.txt'), 'utf8')).toBe('two\n');
    expect(errors).toEqual([]);
  });
});

describe.skipIf(browserEndpoint === null)('a worker whose conflict another one resolved', () => {
  // Promise 20.4: once a worker that continues it has resolved the conflict, its card offers Apply no more.
  test('is not offered to be applied any more', async () => {
    const MARKED = '<<<<<<< workspace\nuno\n=======\ntwo\n>>>>>>> worker\n';
    const edit = (old: string, next: string) => call('edit_file', { path: 'a.txt', old, new: next });
    const { url, client, workspace } = await startBrowserServer({
      files: { 'a.txt': 'one\n' },
      scenario: scenario(
        worker('resolve it', { tool_calls: [edit(MARKED, 'both\n')] }, { text: 'resolved' }),
        planner({ tool_calls: [delegate('count on', { isolation: 'worktree', apply: 'never' })] }, { text: 'done' }),
        worker('count on', { tool_calls: [edit('one', 'two')] }, { text: 'changed' }),
      ),
    });
    commitFiles(workspace);
    const session = await client.createSession({ workspace_path: workspace });
    await client.submitTurn(session.id, { content: 'begin' });
    await until(async () => (await client.getSession(session.id)).status === 'idle');
    fs.writeFileSync(path.join(workspace, 'a.txt'), 'uno\n');
    const { page, errors } = await openTab(`${url}/#/sessions/${session.id}`);
    const card = page.getByRole('article', { name: /^Delegation/ });
    await card.getByRole('button', { name: 'Apply' }).click();
    await card.getByText('its changes are not applied, conflicts in a.txt').waitFor();
    await card.locator('summary').filter({ hasText: 'Continue' }).click();
    await card.getByLabel('Task for the worker that continues this one').fill('resolve it');
    await card.getByRole('button', { name: 'Continue' }).click();
    await card.getByText('a worker that continued this one went on with its changes, and they are applied').waitFor();
    expect(await card.getByRole('button', { name: 'Apply' }).count()).toBe(0);
    expect(fs.readFileSync(path.join(workspace, 'a.txt'), 'utf8')).toBe('both\n');
    expect(errors).toEqual([]);
  });
});

/** Makes the folder a repository with its files in the first commit. */
function commitFiles(workspace: string): void {
  const git = (...args: string[]) =>
    execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@example.com', ...args], { cwd: workspace });
  git('init', '-q');
  git('add', '-A');
  git('commit', '-q', '-m', 'first');
}

describe.skipIf(browserEndpoint === null)('a notification', () => {
  test('is asked for by a click alone, and comes when more needs attention', async () => {
    const { url, client, workspace } = await startBrowserServer({
      scenario: scenario([
        { match: { role: 'planner' }, respond: { error: { error_class: 'invalid_request', status: 400 } } },
      ]),
    });
    const { page, errors } = await openTab('about:blank');
    await page.addInitScript(() => {
      const log: string[] = [];
      class Fake {
        static permission = 'default';
        static async requestPermission() {
          log.push('asked');
          Fake.permission = 'granted';
          return Fake.permission;
        }
        constructor(title: string) {
          log.push(title);
        }
      }
      Object.assign(globalThis, { Notification: Fake, notices: log });
      document.hasFocus = () => false;
    });
    await page.goto(`${url}/#/overview`);
    const notices = () => page.evaluate(() => (globalThis as unknown as { notices: string[] }).notices);
    const button = page.getByRole('button', { name: 'Notify me' });
    await button.waitFor();
    expect(await notices()).toEqual([]);
    await button.click();
    await button.waitFor({ state: 'detached' });
    const session = await client.createSession({ workspace_path: workspace });
    await client.submitTurn(session.id, { content: 'fail' });
    await until(async () => (await notices()).length > 1);
    expect(await notices()).toEqual(['asked', 'Metis needs you']);
    expect(errors).toEqual([]);
  });
});
