// The default model of a workspace, written into its routing file over HTTP (03 §6.5, 12 §12.4).
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { tempFolder } from '../support/engine.ts';
import { type Parsed, startServer, type TestServer } from '../support/http.ts';
import { scenario } from '../support/scenario.ts';

const OPUS = 'anthropic:claude-opus-4-7';
const SONNET = 'anthropic:claude-sonnet-4-6';
const HAIKU = 'anthropic:claude-haiku-4-5';
const MINE = '# mine\ndefault: opus # for now\nrules:\n  - { name: pictures, when: { has_images: true }, use: opus }\n';

const plain = scenario([{ match: {}, times: 'inf', respond: { text: 'ok' } }]);
const fileOf = (t: TestServer) => path.join(t.workspace, '.metis/routing.yaml');
const read = (t: TestServer) => fs.readFileSync(fileOf(t), 'utf8');
const write = (t: TestServer, text: string | Uint8Array) => {
  fs.mkdirSync(path.dirname(fileOf(t)), { recursive: true });
  fs.writeFileSync(fileOf(t), text);
};
const put = (t: TestServer, body: object) =>
  t.call('PUT', '/routing/default', { workspace_path: t.workspace, model: HAIKU, ...body });
const plan = (t: TestServer, body: object = {}) => put(t, { ...body, dry_run: true });
const issue = (answer: { body: Parsed }): Parsed => answer.body.error.details.issues[0];
const digest = (text: string) => createHash('sha256').update(text).digest('hex');

// Promise 03.27: the default is shown, then written as shown, and the next turn has it.
test('is shown first, then written as it was shown, and the next turn has it', async () => {
  const t = await startServer({ scenario: plain });
  const shown = await plan(t, { model: 'haiku' });
  expect(shown).toMatchObject({ status: 200 });
  const text = `default: ${HAIKU}\n`;
  expect(shown.body).toEqual({
    path: '.metis/routing.yaml',
    model: HAIKU,
    previous_model: null,
    previous_sha256: null,
    previous_text: null,
    sha256: digest(text),
    text,
    written: false,
    warnings: [],
  });
  expect(fs.existsSync(path.join(t.workspace, '.metis'))).toBe(false);
  const done = await put(t, { previous_sha256: null });
  expect(done.body).toEqual({ ...shown.body, written: true });
  expect(read(t)).toBe(text);
  const session = await t.session({ initial_active_model: null });
  await t.run(session, 'go');
  const { body } = await t.call('GET', `/sessions/${session.id}/turns`);
  expect(body.turns[0].chosen_model).toBe(HAIKU);
  // The same once more changes nothing.
  const again = await put(t, { previous_sha256: digest(text) });
  expect(again.body).toMatchObject({ written: false, previous_model: HAIKU, text });
});

// Promise 03.27: comments and every other byte of the file stay, its mode too.
test('takes the place of the one before; comments, other keys and the mode of the file stay', async () => {
  const t = await startServer({ scenario: plain });
  write(t, MINE);
  fs.chmodSync(fileOf(t), 0o640);
  const { body } = await plan(t);
  expect(body).toMatchObject({ previous_model: OPUS, previous_text: MINE, previous_sha256: digest(MINE) });
  await put(t, { previous_sha256: body.previous_sha256 });
  expect(read(t)).toBe(MINE.replace('default: opus', `default: ${HAIKU}`));
  expect(fs.statSync(fileOf(t)).mode & 0o777).toBe(0o640);
  expect(fs.readdirSync(path.dirname(fileOf(t)))).toEqual(['routing.yaml']);
});

// Promise 03.27: a file that is another than the one that was shown is left alone.
describe('a file that is another than the one that was shown', () => {
  test('is left as it is, with the sum that it has now', async () => {
    const t = await startServer({ scenario: plain });
    write(t, MINE);
    const missing = await put(t, {});
    expect([missing.status, issue(missing)]).toEqual([
      400,
      { path: 'previous_sha256', message: expect.stringContaining('is required') },
    ]);
    for (const previous_sha256 of [null, 'a'.repeat(64)]) {
      const refused = await put(t, { previous_sha256 });
      expect(refused.status).toBe(400);
      expect(issue(refused)).toEqual({ path: 'previous_sha256', message: expect.stringContaining(digest(MINE)) });
    }
    fs.rmSync(fileOf(t));
    const gone = await put(t, { previous_sha256: digest(MINE) });
    expect(issue(gone).message).toContain('.metis/routing.yaml does not exist');
    expect(fs.existsSync(fileOf(t))).toBe(false);
  });

  test('of twenty clients at once that were shown the same one writes', async () => {
    const t = await startServer({ scenario: plain });
    write(t, MINE);
    const { previous_sha256 } = (await plan(t)).body;
    const models = [HAIKU, SONNET];
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, i) => put(t, { model: models[i % 2], previous_sha256 })),
    );
    const written = answers.filter(({ status }) => status === 200);
    expect(written).toHaveLength(1);
    expect(answers.filter(({ status }) => status === 400)).toHaveLength(19);
    expect(read(t)).toBe(written[0]!.body.text);
    expect(fs.readdirSync(path.dirname(fileOf(t)))).toEqual(['routing.yaml']);
  });
});

// Promise 03.27: what is not valid, too large, a link or no file is refused with its reason, and unchanged.
describe('a file that cannot be changed is refused with its reason and stays as it is', () => {
  test.each<readonly [string, string | Uint8Array, string]>([
    ['broken YAML', 'default: [', 'is not valid, correct it first'],
    ['an unknown key', 'defualt: opus\n', 'is not valid, correct it first: unknown key(s) [defualt]'],
    ['an unknown model', 'default: nobody\n', 'is not valid, correct it first: default: '],
    ['the key twice', 'default: opus\ndefault: haiku\n', 'is not valid, correct it first'],
    ['no UTF-8', Buffer.from([0x64, 0xff, 0xfe]), 'is not valid UTF-8 text'],
    [
      '64 KiB and more',
      `# ${'x'.repeat(70_000)}\n`,
      `has more than 65536 characters; write "default: ${HAIKU}" into it`,
    ],
    ['a megabyte and more', Buffer.alloc(1_100_000, '#'), 'has more than 1048576 bytes'],
    ['deep YAML', `rules: ${'['.repeat(5000)}`, 'is not valid, correct it first'],
    ['an alias', `tiers: { fast: &m opus, balanced: *m, deep: *m }\ndefault: *m\n`, ''],
  ])('%s', async (_, content, reason) => {
    const t = await startServer();
    write(t, content);
    for (const answer of [await plan(t), await put(t, { previous_sha256: 'a'.repeat(64) })]) {
      expect(answer.status).toBe(400);
      expect(issue(answer)).toEqual({
        path: 'workspace_path',
        message: expect.stringContaining(`.metis/routing.yaml ${reason}`),
      });
    }
    expect(fs.readFileSync(fileOf(t)).equals(Buffer.from(content))).toBe(true);
  });

  test('a link in its place or above it, a folder and a pipe', async () => {
    const t = await startServer();
    const outside = tempFolder();
    fs.writeFileSync(path.join(outside, 'routing.yaml'), MINE);
    const refused = async (sha256: string | null) => {
      const answer = await put(t, { previous_sha256: sha256 });
      expect([answer.status, issue(answer).path]).toEqual([400, 'workspace_path']);
      expect(issue(answer).message).toMatch(/^\.metis\/routing\.yaml cannot be (changed|written): /);
    };
    const metis = path.join(t.workspace, '.metis');
    fs.symlinkSync(outside, metis);
    await refused(digest(MINE));
    fs.rmSync(path.join(outside, 'routing.yaml'));
    await refused(null);
    expect(fs.readdirSync(outside)).toEqual([]);
    fs.rmSync(metis);
    fs.mkdirSync(metis);
    fs.writeFileSync(path.join(outside, 'routing.yaml'), MINE);
    fs.symlinkSync(path.join(outside, 'routing.yaml'), fileOf(t));
    await refused(digest(MINE));
    expect(fs.readFileSync(path.join(outside, 'routing.yaml'), 'utf8')).toBe(MINE);
    fs.rmSync(fileOf(t));
    fs.mkdirSync(fileOf(t));
    await refused(null);
    fs.rmdirSync(fileOf(t));
    execFileSync('mkfifo', [fileOf(t)]);
    await refused(null);
    fs.rmSync(metis, { recursive: true });
    fs.writeFileSync(metis, 'a file');
    await refused(null);
  });

  test.skipIf(process.getuid?.() === 0)('one that may only be read', async () => {
    const t = await startServer();
    write(t, MINE);
    fs.chmodSync(fileOf(t), 0o444);
    expect(issue(await put(t, { previous_sha256: digest(MINE) })).message).toContain('EACCES');
    expect(read(t)).toBe(MINE);
  });
});

test('an unknown model, a workspace outside of the roots and one that is not there are refused', async () => {
  const allowed = tempFolder();
  const t = await startServer({ config: { server: { workspace_roots: [allowed] } } });
  expect((await plan(t)).body.error.code).toBe('workspace_not_allowed');
  expect((await plan(t, { workspace_path: path.join(allowed, 'gone') })).body.error.code).toBe('not_found');
  for (const model of ['nobody', '', 'x'.repeat(300), '../../etc', 7])
    expect((await plan(t, { workspace_path: allowed, model })).status, String(model)).toBe(400);
  expect(fs.readdirSync(allowed)).toEqual([]);
});
