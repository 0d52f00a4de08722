// What the engine reads from a workspace folder (10 §2, §4, §8, 03 §6.4).
import { mkdir, mkdtemp, realpath, rm, symlink, writeFile } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Logger, silentLogger } from '#core/ports/logger.ts';
import type { Workspaces } from '#core/ports/workspace.ts';
import { createWorkerLibrary } from '#tools/workspace/worker-files.ts';
import { createWorkspaces } from '#tools/workspace/workspaces.ts';

const PNG = Buffer.concat([Buffer.from('89504e470d0a1a0a', 'hex'), Buffer.alloc(16)]);

let base: string;
let root: string;
let workspaces: Workspaces;
let warnings: string[];
let paths: unknown[];

beforeEach(async () => {
  base = await realpath(await mkdtemp(join(tmpdir(), 'metis-ws-')));
  root = join(base, 'w');
  await mkdir(join(root, '.metis'), { recursive: true });
  warnings = [];
  paths = [];
  const log: Logger = {
    ...silentLogger,
    warn(fields, message) {
      warnings.push(message);
      paths.push(fields.path);
    },
  };
  workspaces = createWorkspaces({
    globalRoutingPath: join(base, 'routing.yaml'),
    globalSkillsPath: join(base, 'skills'),
    library: createWorkerLibrary(silentLogger),
    log,
  });
});
afterEach(() => rm(base, { recursive: true, force: true }));

describe('the directory of a session', () => {
  it('is real, absolute and expanded', async () => {
    await symlink(root, join(base, 'link'));
    expect(await workspaces.realDirectory(join(base, 'link'))).toBe(root);
    expect(await workspaces.realDirectory('~')).toBe(await realpath(homedir()));
  });

  it('must exist, be a directory and be given from the root', async () => {
    await writeFile(join(root, 'file'), '');
    for (const path of [join(root, 'none'), join(root, 'file'), 'relative', '', `${root}\0`]) {
      expect(await workspaces.realDirectory(path)).toBeNull();
    }
  });
});

it("the server's data folder is out of reach of file tools, in whatever workspace it lies", async () => {
  const data = join(root, 'data');
  await mkdir(join(data, 'worktrees', 'w'), { recursive: true });
  await writeFile(join(data, '.env'), 'KEY=1');
  await writeFile(join(data, 'worktrees', 'w', 'a'), 'work');
  await symlink('data/.env', join(root, 'link'));
  const { files } = createWorkspaces({
    globalRoutingPath: '',
    globalSkillsPath: '',
    library: createWorkerLibrary(silentLogger),
    dataFolder: data,
    log: silentLogger,
  });
  for (const [workspace, path] of [
    [root, 'data/.env'],
    [root, 'data'],
    [root, 'link'],
    [root, 'data/new'],
    [base, 'w/data/.env'],
    [data, '.env'],
    [data, '.'],
  ] as const)
    for (const use of ['read', 'list', 'write'] as const)
      await expect(files(workspace).resolve(path, use)).rejects.toThrow(`Path '${path}' is protected`);
  const listed = await files(root).resolve('.', 'list');
  const entry = { name: 'data', kind: 'directory' } as const;
  expect([await files(root).below(listed, entry), files(root).readable('data/.env')]).toEqual([null, false]);
  // What it made for a worker in there is a workspace like any other.
  const made = files(join(data, 'worktrees', 'w'));
  expect(await made.readFile(await made.resolve('a', 'read'))).toEqual(Buffer.from('work'));
});

describe('memory text', () => {
  it('has USER.md before MEMORY.md, trimmed, under its headings', async () => {
    await writeFile(join(root, '.metis/MEMORY.md'), '\n- fact\n\n');
    await writeFile(join(root, '.metis/USER.md'), 'likes tea\n');
    expect(await workspaces.memoryText(root)).toBe(
      '## User context (USER.md)\nlikes tea\n\n## Workspace memory (MEMORY.md)\n- fact',
    );
  });

  it('leaves blank and missing files out', async () => {
    expect(await workspaces.memoryText(root)).toBeNull();
    await writeFile(join(root, '.metis/USER.md'), ' \n');
    expect(await workspaces.memoryText(root)).toBeNull();
    await writeFile(join(root, '.metis/MEMORY.md'), 'x');
    expect(await workspaces.memoryText(root)).toBe('## Workspace memory (MEMORY.md)\nx');
  });

  // Promise 10.8: An oversized memory file is shown up to its cap with a marker.
  it('shows an oversized file up to its cap, between characters, with a marker and one warning', async () => {
    await writeFile(join(root, '.metis/USER.md'), `x${'é'.repeat(5000)}`);
    const expected = `## User context (USER.md)\nx${'é'.repeat(1535)}\n[truncated: file exceeds its 3072-byte cap]`;
    expect(await workspaces.memoryText(root)).toBe(expected);
    expect(await workspaces.memoryText(root)).toBe(expected);
    expect(warnings).toEqual(['a memory file exceeds its cap and is shown in part: shorten it']);
  });

  it('shows a file of exactly its cap whole', async () => {
    await writeFile(join(root, '.metis/MEMORY.md'), 'm'.repeat(4096));
    expect(await workspaces.memoryText(root)).toBe(`## Workspace memory (MEMORY.md)\n${'m'.repeat(4096)}`);
  });

  it('treats a link that leaves the workspace as empty, with a warning', async () => {
    await writeFile(join(base, 'secret'), 'secret');
    await symlink(join(base, 'secret'), join(root, '.metis/MEMORY.md'));
    expect(await workspaces.memoryText(root)).toBeNull();
    expect(warnings).toEqual(['a memory file is ignored']);
  });

  it('treats a .metis that leaves the workspace as empty, with a warning', async () => {
    await rm(join(root, '.metis'), { recursive: true });
    await mkdir(join(base, 'other'));
    await writeFile(join(base, 'other', 'USER.md'), 'secret');
    await symlink(join(base, 'other'), join(root, '.metis'));
    expect(await workspaces.memoryText(root)).toBeNull();
    expect(warnings).not.toEqual([]);
  });
});

describe('project instructions', () => {
  const names = ['AGENTS.md', 'CLAUDE.md'];

  it('are the first file that exists', async () => {
    expect(await workspaces.instructions(root, names)).toBeNull();
    await writeFile(join(root, 'CLAUDE.md'), 'second');
    expect(await workspaces.instructions(root, names)).toEqual({ path: 'CLAUDE.md', text: 'second' });
    await writeFile(join(root, 'AGENTS.md'), 'first');
    expect(await workspaces.instructions(root, names)).toEqual({ path: 'AGENTS.md', text: 'first' });
  });

  it('are cut at 32 KiB between characters, with a note', async () => {
    await writeFile(join(root, 'AGENTS.md'), `x${'é'.repeat(20_000)}`);
    const found = await workspaces.instructions(root, names);
    expect(found?.text).toBe(`x${'é'.repeat(16_383)}\n[truncated: AGENTS.md exceeds 32768 bytes]`);
  });

  it('never come from outside the workspace, and the log says which file is ignored', async () => {
    await writeFile(join(base, 'secret'), 'secret');
    await symlink(join(base, 'secret'), join(root, 'AGENTS.md'));
    expect(await workspaces.instructions(root, [...names, '../secret'])).toBeNull();
    expect(warnings).toHaveLength(2);
    expect(paths).toEqual([join(root, 'AGENTS.md'), join(base, 'secret')]);
  });
});

describe('an image of the workspace', () => {
  it('is read as a block of its bytes, typed by them', async () => {
    await writeFile(join(root, 'a.jpg'), PNG);
    expect(await workspaces.readImage(root, 'a.jpg')).toEqual({
      type: 'image',
      source: { kind: 'base64', data: PNG.toString('base64') },
      media_type: 'image/png',
    });
  });

  it('is null when it is missing, outside, protected, too large or no image', async () => {
    await writeFile(join(base, 'x.png'), PNG);
    await writeFile(join(root, '.metis/x.png'), PNG);
    await writeFile(join(root, 'text.png'), 'text');
    await writeFile(join(root, 'large.png'), Buffer.concat([PNG, Buffer.alloc(5 * 1024 * 1024)]));
    for (const path of ['none.png', '../x.png', '.metis/x.png', 'text.png', 'large.png', '.', '']) {
      expect(await workspaces.readImage(root, path), path).toBeNull();
    }
  });
});

describe('routing files', () => {
  it('come as bytes with a stamp that changes exactly when the content does', async () => {
    const absent = await workspaces.routingFiles(root);
    expect([absent.workspace.bytes, absent.global.bytes]).toEqual([null, null]);
    await writeFile(join(root, '.metis/routing.yaml'), 'default: a');
    await writeFile(join(base, 'routing.yaml'), 'global_default: b');
    const first = await workspaces.routingFiles(root);
    expect(first.workspace.bytes?.toString()).toBe('default: a');
    expect(first.global.bytes?.toString()).toBe('global_default: b');
    expect(first.workspace.path).toBe(join(root, '.metis/routing.yaml'));
    expect(first.workspace.stamp).not.toBe(absent.workspace.stamp);
    expect((await workspaces.routingFiles(root)).workspace.stamp).toBe(first.workspace.stamp);
    await writeFile(join(root, '.metis/routing.yaml'), 'default: b');
    const second = await workspaces.routingFiles(root);
    expect(second.workspace.stamp).not.toBe(first.workspace.stamp);
    expect(second.global.stamp).toBe(first.global.stamp);
  });

  it('of a workspace are never read through a link', async () => {
    await writeFile(join(base, 'secret'), 'secret');
    await symlink(join(base, 'secret'), join(root, '.metis/routing.yaml'));
    expect((await workspaces.routingFiles(root)).workspace.bytes).toBeNull();
  });
});
