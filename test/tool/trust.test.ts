// trust.yaml on real files (09 §5.1).
import { writeFileSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, realpath, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Logger, silentLogger } from '#core/ports/logger.ts';
import type { Workspaces } from '#core/ports/workspace.ts';
import { createWorkerLibrary } from '#tools/workspace/worker-files.ts';
import { createWorkspaces } from '#tools/workspace/workspaces.ts';

let root: string;
let workspaces: Workspaces;
let warnings: string[];
let fields: unknown[];

beforeEach(async () => {
  root = await realpath(await mkdtemp(join(tmpdir(), 'metis-trust-')));
  warnings = [];
  fields = [];
  const log: Logger = { ...silentLogger, warn: (given, message) => fields.push(given) && warnings.push(message) };
  workspaces = createWorkspaces({
    globalRoutingPath: join(root, 'routing.yaml'),
    globalSkillsPath: join(root, 'skills'),
    library: createWorkerLibrary(log),
    log,
  });
});
afterEach(() => rm(root, { recursive: true, force: true }));

const stored = async () => {};
const file = () => join(root, '.metis', 'trust.yaml');
async function given(text: string) {
  await mkdir(join(root, '.metis'), { recursive: true });
  await writeFile(file(), text);
}

describe('reading trust.yaml', () => {
  it.each([null, '', '# nothing yet\n'])('a missing or empty file (%j) has no entries', async (text) => {
    if (text !== null) await given(text);
    expect(await workspaces.readTrust(root)).toEqual({ always_allow: [], always_deny: [], malformed: false });
    expect(warnings).toEqual([]);
  });

  it('is read anew for every decision', async () => {
    await given('schema_version: 1\nalways_allow: [write_file, mcp__github__*]\nalways_deny: [shell]\n');
    expect(await workspaces.readTrust(root)).toEqual({
      always_allow: ['write_file', 'mcp__github__*'],
      always_deny: ['shell'],
      malformed: false,
    });
    await given('always_deny: [grep]\n');
    expect((await workspaces.readTrust(root)).always_deny).toEqual(['grep']);
  });

  // Promise 09.9: A malformed trust file allows nothing and stays byte-identical.
  it.each([
    ['bad YAML', 'always_allow: [shell\n'],
    ['a list at the top', '- shell\n'],
    ['a number in a list', 'always_allow: [shell, 3]\n'],
    ['no list', 'always_allow: shell\n'],
    ['another version', 'schema_version: 2\nalways_allow: [shell]\n'],
    ['a bare star', 'always_allow: [shell, "*"]\n'],
    ['a star in the middle', 'always_deny: ["s*l"]\n'],
    ['a doubled key', 'always_allow: [shell]\nalways_allow: [grep]\n'],
    ['more than 64 KiB', `always_allow: [shell]\n#${'x'.repeat(64 * 1024)}\n`],
  ])('a file with %s allows nothing and is left alone', async (_what, text) => {
    await given(text);
    expect(await workspaces.readTrust(root)).toEqual({ always_allow: [], always_deny: [], malformed: true });
    expect(warnings).toEqual(['trust.yaml is malformed: its entries do not apply']);
    expect(await workspaces.persistTrust(root, { list: 'always_allow', tool: 'shell' }, stored)).toBe(false);
    expect(await readFile(file(), 'utf8')).toBe(text);
  });

  it('says which file it is, which entry, and what to write instead', async () => {
    await given('always_allow: [shell, "*", 3]\n');
    expect((await workspaces.readTrust(root)).malformed).toBe(true);
    expect(fields).toEqual([
      {
        path: file(),
        problem:
          'always_allow.1: must be a tool name, or a prefix followed by a single final "*"; always_allow.2: must be a string',
      },
    ]);
  });

  it('a link in its place counts as malformed and is not written through', async () => {
    await mkdir(join(root, '.metis'));
    await writeFile(join(root, 'elsewhere.yaml'), 'always_allow: [shell]\n');
    await symlink('../elsewhere.yaml', file());
    expect((await workspaces.readTrust(root)).malformed).toBe(true);
    expect(await workspaces.persistTrust(root, { list: 'always_allow', tool: 'grep' }, stored)).toBe(false);
    expect(await readFile(join(root, 'elsewhere.yaml'), 'utf8')).toBe('always_allow: [shell]\n');
  });

  it('a link in place of .metis counts as malformed and is not written through', async () => {
    await mkdir(join(root, 'elsewhere'));
    await writeFile(join(root, 'elsewhere', 'trust.yaml'), 'always_allow: [shell]\n');
    await symlink('elsewhere', join(root, '.metis'));
    expect((await workspaces.readTrust(root)).malformed).toBe(true);
    expect(await workspaces.persistTrust(root, { list: 'always_allow', tool: 'grep' }, stored)).toBe(false);
    expect(await readdir(join(root, 'elsewhere'))).toEqual(['trust.yaml']);
  });
});

describe('persisting an answer', () => {
  it('creates the file and its folder', async () => {
    expect(await workspaces.persistTrust(root, { list: 'always_allow', tool: 'shell' }, stored)).toBe(true);
    expect(await readFile(file(), 'utf8')).toBe('schema_version: 1\nalways_allow:\n  - shell\nalways_deny: []\n');
    expect(await readdir(join(root, '.metis'))).toEqual(['trust.yaml']);
  });

  it('moves the name between the lists, sorts both and keeps comments', async () => {
    await given(
      '# mine\nschema_version: 1\nalways_allow: [write_file, shell, edit_file, shell]\nalways_deny: [grep]\n',
    );
    expect(await workspaces.persistTrust(root, { list: 'always_deny', tool: 'shell' }, stored)).toBe(true);
    const text = await readFile(file(), 'utf8');
    expect(text).toContain('# mine\nschema_version: 1\n');
    expect(await workspaces.readTrust(root)).toEqual({
      always_allow: ['edit_file', 'write_file'],
      always_deny: ['grep', 'shell'],
      malformed: false,
    });
  });

  it('keeps the comments of every entry that stays', async () => {
    await given(
      'always_allow:\n  # tests only\n  - write_file # in a branch\n  - shell\nalways_deny:\n  - fetch # offline\n  - grep # slow\n',
    );
    expect(await workspaces.persistTrust(root, { list: 'always_allow', tool: 'grep' }, stored)).toBe(true);
    expect(await readFile(file(), 'utf8')).toBe(
      'always_allow:\n  # tests only\n  - grep\n  - shell\n  - write_file # in a branch\nalways_deny:\n  - fetch # offline\nschema_version: 1\n',
    );
  });

  it('leaves the file to whoever saved it in the same moment', async () => {
    await given('always_allow: [grep]\n');
    const theirs = 'always_deny: [shell]\n';
    const answer = workspaces.persistTrust(root, { list: 'always_allow', tool: 'shell' }, stored);
    // The new text lies beside the old one before it takes its place.
    while ((await readdir(join(root, '.metis'))).length === 1) await new Promise(setImmediate);
    writeFileSync(file(), theirs);
    expect(await answer).toBe(false);
    expect(await readFile(file(), 'utf8')).toBe(theirs);
    expect(await readdir(join(root, '.metis'))).toEqual(['trust.yaml']);
  });

  it('loses no entry when many answers arrive at once', async () => {
    const names = Array.from({ length: 20 }, (_, i) => `tool_${String(i).padStart(2, '0')}`);
    await Promise.all(names.map((name) => workspaces.persistTrust(root, { list: 'always_allow', tool: name }, stored)));
    expect((await workspaces.readTrust(root)).always_allow).toEqual(names);
  });

  it('says no when the file cannot be written', async () => {
    await writeFile(join(root, '.metis'), 'a file where the folder should be');
    expect(await workspaces.persistTrust(root, { list: 'always_allow', tool: 'shell' }, stored)).toBe(false);
    expect(warnings).toEqual(['trust.yaml could not be changed']);
  });

  it('changes the file behind what is stored, and not at all when that is refused', async () => {
    await given('always_allow: [grep]\n');
    const before = await readFile(file(), 'utf8');
    const change = { list: 'always_allow', tool: 'shell' } as const;
    const told: boolean[] = [];
    const refused = workspaces.persistTrust(root, change, async (can) => {
      told.push(can);
      throw new Error('disk full');
    });
    await expect(refused).rejects.toThrow('disk full');
    expect(await readFile(file(), 'utf8')).toBe(before);
    expect(await readdir(join(root, '.metis'))).toEqual(['trust.yaml']);
    const kept = await workspaces.persistTrust(root, change, async (can) => {
      told.push(can);
      expect(await readFile(file(), 'utf8')).toBe(before);
    });
    expect(kept).toBe(true);
    expect((await workspaces.readTrust(root)).always_allow).toEqual(['grep', 'shell']);
    await given(': broken: [');
    const asked = async (can: boolean) => void told.push(can);
    expect(await workspaces.persistTrust(root, change, asked)).toBe(false);
    expect(told).toEqual([true, true, false]);
  });
});
