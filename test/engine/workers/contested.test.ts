// Workers that are changed from two sides at once, and under another name than their own (13 §3.4, §3.5).
import fs from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { silentLogger } from '#core/ports/logger.ts';
import { createWorkspaceFiles } from '#tools/workspace/confined-files.ts';
import { createWorkerLibrary, protectDefinitions } from '#tools/workspace/worker-files.ts';
import { tempFolder } from '../../support/engine.ts';
import { startServer } from '../../support/http.ts';

const written = (folder: string) => fs.readdirSync(path.join(folder, '.metis/workers'));

test('of many that create a worker of one name at once, in whatever case, one does', async () => {
  const t = await startServer();
  const make = (name: string) =>
    t.call('POST', '/workers', { workspace_path: t.workspace, definition: { name, instructions: `I am ${name}.` } });
  const answers = await Promise.all(['twin', 'Twin', 'twin', 'TWIN', 'twin'].map(make));
  expect(answers.map(({ status }) => status).sort()).toEqual([201, 409, 409, 409, 409]);
  expect(written(t.workspace)).toHaveLength(1);
});

test('a worker that is locked while others replace it stays as it was locked', async () => {
  const t = await startServer({ files: { '.metis/workers/w.yaml': 'instructions: first' } });
  const put = (definition: object) =>
    t.call('PUT', '/workers/w', { workspace_path: t.workspace, definition: { name: 'w', ...definition } });
  const yours = () => put({ instructions: 'yours' });
  const mine = () => put({ instructions: 'mine', locked: true });
  const answers = await Promise.all([mine(), yours(), yours(), yours(), yours(), yours()]);
  expect(answers[0].status).toBe(200);
  for (const { status } of answers) expect([200, 409]).toContain(status);
  expect(fs.readFileSync(path.join(t.workspace, '.metis/workers/w.yaml'), 'utf8')).toMatch(/mine[\s\S]*locked: true/);
});

test('no file tool may write what a definition is made of by the name that a link leads to', async () => {
  const root = fs.realpathSync(tempFolder());
  const put = (at: string, make: (file: string) => void) => {
    const file = path.join(root, at);
    fs.mkdirSync(path.dirname(file), { recursive: true });
    make(file);
  };
  for (const at of ['defs/a.yaml', 'texts/a.md', 'texts/free.md', 'one/c.yaml'])
    put(at, (file) => fs.writeFileSync(file, at.endsWith('.md') ? 'text' : 'locked: true'));
  put('workers', (file) => fs.symlinkSync('defs', file));
  put('prompts', (file) => fs.symlinkSync('texts', file));
  put('.metis/workers/c.yaml', (file) => fs.symlinkSync('../../one/c.yaml', file));
  const library = createWorkerLibrary(silentLogger);
  const guarded = protectDefinitions(root, createWorkspaceFiles(root), library);
  for (const at of ['defs/a.yaml', 'defs/new.yaml', 'defs/A.YAML', 'texts/a.md', 'texts/a.j2', 'one/c.yaml'])
    await expect(guarded.resolve(at, 'write'), at).rejects.toThrow("part of a worker's definition");
  for (const at of ['texts/free.md', 'one/other.yaml', 'defs/notes.txt'])
    expect((await guarded.resolve(at, 'write')).relative).toBe(at);
});
