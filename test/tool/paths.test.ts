// Workspace confinement on real folders and links (09 §8).
import { execFileSync } from 'node:child_process';
import {
  chmod,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  realpath,
  rm,
  stat,
  symlink,
  unlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { PathUse, WorkspaceFiles } from '#core/ports/workspace.ts';
import { ToolError } from '#protocol/tool.ts';
import { createWorkspaceFiles } from '#tools/workspace/confined-files.ts';

let base: string;
let root: string;
let files: WorkspaceFiles;

beforeEach(async () => {
  base = await realpath(await mkdtemp(join(tmpdir(), 'metis-paths-')));
  root = join(base, 'workspace');
  await mkdir(join(root, 'dir'), { recursive: true });
  await mkdir(join(base, 'outside'));
  await writeFile(join(base, 'outside', 'secret'), 'secret');
  await writeFile(join(root, 'a.txt'), 'a');
  files = createWorkspaceFiles(root);
});
afterEach(() => rm(base, { recursive: true, force: true }));

async function failure(act: Promise<unknown>): Promise<ToolError> {
  const error = await act.then(
    () => null,
    (e: unknown) => e,
  );
  if (!(error instanceof ToolError)) throw new Error(`expected a ToolError, got ${error}`);
  return error;
}

async function refused(path: string, use: PathUse = 'read'): Promise<string> {
  const error = await failure(files.resolve(path, use));
  expect(error.error_class).toBe('permission_denied');
  expect(error.message).not.toContain(base);
  return error.message;
}

describe('confinement', () => {
  it.each([
    '../outside/secret',
    '../../etc/passwd',
    '/etc/passwd',
    '/',
    '..',
    'dir/../../outside/secret',
    'gone/../../x',
  ])('refuses %s', async (path) => {
    expect(await refused(path)).toBe(`Path '${path}' escapes workspace boundary`);
  });

  // Promise 09.4: Paths that leave the workspace, by dots, absolute or through a link, are refused without naming the root.
  it.each(['link/../x', 'link/secret', 'link', 'link/new.txt'])(
    'refuses %s where link points outside',
    async (path) => {
      await symlink(join(base, 'outside'), join(root, 'link'));
      expect(await refused(path, 'write')).toBe(`Path '${path}' escapes workspace boundary`);
    },
  );

  // Promise 09.4: A dangling link is refused and nothing is created behind it.
  it('refuses a dangling link, also one in the middle of a path, and writes nothing through it', async () => {
    await symlink(join(base, 'outside', 'created'), join(root, 'dangling'));
    expect(await refused('dangling', 'write')).toContain('escapes');
    expect(await refused('dangling/x', 'write')).toContain('escapes');
    expect(await readdir(join(base, 'outside'))).toEqual(['secret']);
  });

  it('refuses a sibling folder whose name starts with the name of the root', async () => {
    await mkdir(`${root}-2`);
    await writeFile(`${root}-2/x`, '');
    expect(await refused('../workspace-2/x')).toContain('escapes');
  });

  it('refuses a link that points to itself', async () => {
    await symlink('loop', join(root, 'loop'));
    expect(await refused('loop')).toContain('escapes');
  });

  it.each([
    ['', "Path '' is empty"],
    ['a\0b', "Path 'a?b' contains a NUL character"],
    ['x'.repeat(4097), `Path '${'x'.repeat(200)}...' is longer than 4096 bytes`],
  ])('refuses the malformed path %#', async (path, message) => {
    expect(await refused(path)).toBe(message);
  });

  it.each([
    ['a.txt', 'a.txt'],
    ['./dir/../a.txt', 'a.txt'],
    ['.', '.'],
    ['dir/', 'dir'],
    ['new/deep/./file', 'new/deep/file'],
    ['~', '~'],
    ['$HOME/x', '$HOME/x'],
  ])('resolves %s to %s', async (given, relative) => {
    const path = await files.resolve(given, 'list');
    expect(path).toEqual({ given, relative, absolute: relative === '.' ? root : join(root, relative) });
  });

  it('accepts an absolute path and a link that end up inside', async () => {
    await symlink('../a.txt', join(root, 'dir', 'inner'));
    expect((await files.resolve(join(root, 'a.txt'), 'read')).relative).toBe('a.txt');
    expect((await files.resolve('dir/inner', 'write')).relative).toBe('a.txt');
  });
});

describe('protected paths', () => {
  beforeEach(async () => {
    await mkdir(join(root, '.metis', 'skills', 's'), { recursive: true });
    for (const name of ['trust.yaml', 'MEMORY.md', 'routing.yaml', 'skills/s/SKILL.md']) {
      await writeFile(join(root, '.metis', name), name);
    }
  });

  // Promise 09.5: File tools may write nothing under .metis.
  it.each([
    '.metis/trust.yaml',
    '.metis/MEMORY.md',
    '.metis/skills/s/SKILL.md',
    '.metis/new',
    '.metis',
    'dir/../.metis/x',
  ])('nothing under .metis may be written: %s', async (path) => {
    expect(await refused(path, 'write')).toBe(`Path '${path}' is protected`);
  });

  it.each(['.mcp.json', 'dir/../.mcp.json', '.MCP.json', 'servers-link'])(
    'the file of programs that a server starts may be read, not written: %s',
    async (path) => {
      await writeFile(join(root, '.mcp.json'), '{}');
      await symlink('.mcp.json', join(root, 'servers-link'));
      expect(await refused(path, 'write')).toBe(`Path '${path}' is protected`);
      expect((await files.resolve('.mcp.json', 'read')).relative).toBe('.mcp.json');
    },
  );

  it.each([
    '.metis/trust.yaml',
    '.metis/routing.yaml',
    '.metis/workers/a.yaml',
    '.metis/MEMORY.md/x',
    '.METIS/trust.yaml',
  ])('%s may not be read', async (path) => {
    expect(await refused(path)).toBe(`Path '${path}' is protected`);
    expect(files.readable(path)).toBe(false);
  });

  it.each(['.metis/MEMORY.md', '.metis/USER.md', '.metis/skills/s/SKILL.md'])('%s may be read', async (path) => {
    expect((await files.resolve(path, 'read')).relative).toBe(path);
    expect(files.readable(path)).toBe(true);
  });

  it('the folder itself may be listed, not read', async () => {
    expect((await files.resolve('.metis', 'list')).relative).toBe('.metis');
    expect(await refused('.metis', 'read')).toContain('protected');
  });

  it('a link into .metis is no way around', async () => {
    await symlink('.metis', join(root, 'alias'));
    expect(await refused('alias/trust.yaml', 'write')).toContain('protected');
  });

  it('the folder that .metis links to is no way around', async () => {
    await rm(join(root, '.metis'), { recursive: true });
    await symlink('dir', join(root, '.metis'));
    expect(await refused('dir/trust.yaml', 'write')).toContain('protected');
    expect(await refused('.metis/trust.yaml', 'write')).toContain('protected');
  });
});

describe('reading and writing', () => {
  it('reads a file whole and in pieces', async () => {
    const data = Buffer.alloc(200_000, 'abc');
    await writeFile(join(root, 'big'), data);
    const path = await files.resolve('big', 'read');
    expect((await files.readFile(path)).equals(data)).toBe(true);
    const parts: Buffer[] = [];
    for await (const part of files.chunks(path)) parts.push(part);
    expect(parts.length).toBeGreaterThan(1);
    expect(Buffer.concat(parts).equals(data)).toBe(true);
    expect((await failure(files.readFile(path, 199_999))).message).toBe(
      'file too large: big has more than 199999 bytes',
    );
  });

  it('names a missing file as the model did', async () => {
    const error = await failure(files.readFile(await files.resolve('dir/none', 'read')));
    expect([error.error_class, error.message]).toEqual(['execution_error', 'file not found: dir/none']);
  });

  it('refuses a file that became a link to outside between check and read', async () => {
    const path = await files.resolve('a.txt', 'read');
    await unlink(path.absolute);
    await symlink(join(base, 'outside', 'secret'), path.absolute);
    expect((await failure(files.readFile(path))).error_class).toBe('permission_denied');
  });

  it('refuses a file whose folder became a link to outside between check and read', async () => {
    await writeFile(join(root, 'dir', 'secret'), 'inside');
    const path = await files.resolve('dir/secret', 'read');
    await rm(join(root, 'dir'), { recursive: true });
    await symlink(join(base, 'outside'), join(root, 'dir'));
    expect((await failure(files.readFile(path))).error_class).toBe('permission_denied');
    expect((await failure(files.write(path, 'overwritten'))).error_class).toBe('permission_denied');
    expect(await readFile(join(base, 'outside', 'secret'), 'utf8')).toBe('secret');
  });

  it('refuses to list a folder that became a link', async () => {
    const path = await files.resolve('dir', 'list');
    await rm(join(root, 'dir'), { recursive: true });
    await symlink(join(base, 'outside'), join(root, 'dir'));
    await expect(files.entries(path)).rejects.toBeInstanceOf(ToolError);
  });

  it('answers a FIFO at once, and a folder, with an error', async () => {
    execFileSync('mkfifo', [join(root, 'pipe')]);
    for (const name of ['pipe', 'dir']) {
      const path = await files.resolve(name, 'read');
      expect((await failure(files.readFile(path))).message).toBe(`not a regular file: ${name}`);
      expect((await failure(files.write(path, 'x'))).message).toBe(`not a regular file: ${name}`);
    }
  });

  it('creates missing parents and leaves nothing else behind', async () => {
    await files.write(await files.resolve('x/y/z.txt', 'write'), 'é');
    expect(await readFile(join(root, 'x/y/z.txt'), 'utf8')).toBe('é');
    expect(await readdir(join(root, 'x/y'))).toEqual(['z.txt']);
  });

  it('keeps the mode of a file it replaces', async () => {
    await chmod(join(root, 'a.txt'), 0o751);
    await files.write(await files.resolve('a.txt', 'write'), 'new');
    expect((await stat(join(root, 'a.txt'))).mode & 0o777).toBe(0o751);
    expect(await readFile(join(root, 'a.txt'), 'utf8')).toBe('new');
  });

  it('says so when a parent is a file', async () => {
    const error = await failure(files.write(await files.resolve('a.txt/b', 'write'), 'x'));
    expect(error.message).toBe('a part of the path is no directory: a.txt/b');
  });

  it('lists what a directory holds, links as other', async () => {
    await symlink('a.txt', join(root, 'link'));
    const entries = await files.entries(await files.resolve('.', 'list'));
    expect([...entries].sort((a, b) => (a.name < b.name ? -1 : 1))).toEqual([
      { name: 'a.txt', kind: 'file' },
      { name: 'dir', kind: 'directory' },
      { name: 'link', kind: 'other' },
    ]);
    expect((await failure(files.entries(await files.resolve('none', 'list')))).message).toBe(
      'directory not found: none',
    );
    expect((await failure(files.entries(await files.resolve('a.txt', 'list')))).message).toBe('not a directory: a.txt');
  });

  it('runs holders of one path one after the other in the order they asked, other paths meanwhile', async () => {
    const path = await files.resolve('a.txt', 'write');
    const log: string[] = [];
    let open = () => {};
    const gate = new Promise<void>((resolve) => {
      open = resolve;
    });
    const first = files.exclusive(path, async () => {
      await gate;
      log.push('first');
      throw new Error('failed');
    });
    const others = [1, 2, 3].map((n) => files.exclusive(path, async () => void log.push(`${n}`)));
    await files.exclusive(await files.resolve('dir', 'write'), async () => void log.push('elsewhere'));
    open();
    await expect(first).rejects.toThrow('failed');
    await Promise.all(others);
    expect(log).toEqual(['elsewhere', 'first', '1', '2', '3']);
  });
});
