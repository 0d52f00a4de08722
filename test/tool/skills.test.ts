// Skills on the disk: which are found, which are passed over and with what line in the log (10 §5).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { type Logger, silentLogger } from '#core/ports/logger.ts';
import { failure, workspace, workspacesOf } from './call.ts';

const skill = (name: string, rest: { description?: string; body?: string } = {}) =>
  `---\nname: ${name}\ndescription: ${rest.description ?? `about ${name}`}\n---\n${rest.body ?? `Do ${name}.`}`;

interface Line {
  readonly message: string;
  readonly path?: string;
  readonly problem?: string;
}
function world(files: Readonly<Record<string, string>>) {
  const root = workspace(files);
  const warnings: Line[] = [];
  const infos: Line[] = [];
  const log: Logger = {
    ...silentLogger,
    warn: (fields, message) => warnings.push({ ...fields, message }),
    info: (fields, message) => infos.push({ ...fields, message }),
  };
  const workspaces = workspacesOf(root, log);
  const put = (file: string, text: string) => {
    fs.mkdirSync(path.dirname(path.join(root, file)), { recursive: true });
    fs.writeFileSync(path.join(root, file), text);
  };
  const names = async () => (await workspaces.skills(root)).map(({ name }) => name);
  return { root, workspaces, warnings, infos, put, names };
}

describe('the skills of a workspace', () => {
  // Promise 10.10: broken skills are passed over with one warning each, what is no skill in silence.
  it('leave out what is broken, each with one warning, and what is no skill in silence', async () => {
    const t = world({
      '.metis/skills/good/SKILL.md': skill('good'),
      '.metis/skills/other/SKILL.md': skill('different'),
      '.metis/skills/a--b/SKILL.md': skill('a--b'),
      [`.metis/skills/${'a'.repeat(65)}/SKILL.md`]: skill('a'.repeat(65)),
      '.metis/skills/blank/SKILL.md': skill('blank', { description: '" "' }),
      '.metis/skills/open/SKILL.md': '---\nname: open\ndescription: d\n',
      '.metis/skills/binary/SKILL.md': '',
      '.metis/skills/lower/skill.md': skill('lower'),
      '.metis/skills/.hidden/SKILL.md': skill('.hidden'),
      '.metis/skills/empty/': '',
      '.metis/skills/file.md': 'x',
    });
    fs.writeFileSync(path.join(t.root, '.metis/skills/binary/SKILL.md'), Buffer.from([0xff, 0xfe]));
    const outside = path.join(path.dirname(t.root), 'elsewhere');
    fs.mkdirSync(outside);
    fs.writeFileSync(path.join(outside, 'SKILL.md'), skill('linked'));
    fs.symlinkSync(outside, path.join(t.root, '.metis/skills/linked'));
    fs.mkdirSync(path.join(t.root, '.metis/skills/inner'));
    fs.symlinkSync(path.join(outside, 'SKILL.md'), path.join(t.root, '.metis/skills/inner/SKILL.md'));
    for (let i = 0; i < 3; i += 1) expect(await t.names()).toEqual(['good']);
    expect(t.warnings.map((line) => path.basename(path.dirname(line.path!))).sort()).toEqual(
      ['a--b', 'a'.repeat(65), 'binary', 'blank', 'open', 'other'].sort(),
    );
  });

  // Promise 10.20: one of 257 KiB is passed over with one warning.
  it('pass over a file above 256 KiB with one warning that says what to do', async () => {
    const t = world({ '.metis/skills/fine/SKILL.md': skill('fine', { body: 'x'.repeat(200_000) }) });
    for (const [name, bytes] of [
      ['kib257', 257 * 1024],
      ['mb1', 1_000_000],
    ] as const) {
      t.put(`.metis/skills/${name}/SKILL.md`, skill(name, { body: 'x'.repeat(bytes) }));
      expect(await t.names()).toEqual(['fine']);
      expect(await t.names()).toEqual(['fine']);
      const refused = await failure(t.workspaces.skill(t.root, name));
      expect(refused.message).toBe(
        `skill '${name}' cannot be loaded: SKILL.md: has more than 262144 bytes; move parts of it to files beside it`,
      );
    }
    expect(t.warnings).toHaveLength(2);
  });

  // Promise 10.11: of two skills of one name the workspace's is listed and used.
  it('replace those of the same name that all workspaces have, and .metis those of .claude', async () => {
    const t = world({
      '../skills/shared/SKILL.md': skill('shared', { description: 'global' }),
      '../skills/only-global/SKILL.md': skill('only-global'),
      '.claude/skills/shared/SKILL.md': skill('shared', { description: 'claude' }),
      '.claude/skills/from-claude/SKILL.md': skill('from-claude'),
      '.metis/skills/shared/SKILL.md': skill('shared', { description: 'workspace' }),
    });
    expect(await t.workspaces.skills(t.root)).toEqual([
      { name: 'from-claude', description: 'about from-claude' },
      { name: 'only-global', description: 'about only-global' },
      { name: 'shared', description: 'workspace' },
    ]);
    await t.names();
    expect(t.infos.map(({ message }) => message)).toEqual(Array(2).fill('two skills have the same name'));
    expect(await t.workspaces.skill(t.root, 'shared')).toMatchObject({ description: 'workspace', source: 'workspace' });
    expect(await t.workspaces.skill(t.root, 'only-global')).toMatchObject({ source: 'global' });
    t.put('.metis/skills/shared/SKILL.md', 'broken');
    expect(await t.workspaces.skill(t.root, 'shared')).toMatchObject({ description: 'claude' });
  });

  it('follow the disk: changed, added and removed ones', async () => {
    const t = world({ '.metis/skills/a/SKILL.md': skill('a') });
    expect(await t.names()).toEqual(['a']);
    t.put('.metis/skills/b/SKILL.md', skill('b'));
    t.put('.metis/skills/a/SKILL.md', skill('a', { description: 'a longer text than before' }));
    expect(await t.workspaces.skills(t.root)).toEqual([
      { name: 'a', description: 'a longer text than before' },
      { name: 'b', description: 'about b' },
    ]);
    fs.rmSync(path.join(t.root, '.metis/skills/a'), { recursive: true });
    expect(await t.names()).toEqual(['b']);
    expect(await t.workspaces.skill(t.root, 'a')).toBeNull();
  });

  it('are not looked for where a link takes the folder out of the workspace or to what is protected', async () => {
    const t = world({ '../outside/x/SKILL.md': skill('x'), '.metis/private/SKILL.md': skill('private') });
    fs.mkdirSync(path.join(t.root, '.claude'));
    fs.symlinkSync(path.join(path.dirname(t.root), 'outside'), path.join(t.root, '.metis/skills'));
    fs.symlinkSync('../.metis', path.join(t.root, '.claude/skills'));
    for (let i = 0; i < 2; i += 1) expect(await t.names()).toEqual([]);
    expect(await t.workspaces.skill(t.root, 'x')).toBeNull();
    expect(await t.workspaces.skill(t.root, 'private')).toBeNull();
    expect(t.warnings).toHaveLength(2);
  });

  it('a thousand of which are listed, with one warning about the rest', async () => {
    const t = world({});
    for (let i = 0; i < 1003; i += 1) t.put(`.metis/skills/s${i}/SKILL.md`, skill(`s${i}`));
    expect(await t.names()).toHaveLength(1000);
    expect(await t.names()).toHaveLength(1000);
    expect(t.warnings).toHaveLength(1);
    expect(await t.workspaces.skill(t.root, 's999')).toMatchObject({ name: 's999' });
  });
});

describe('a file of a skill', () => {
  it('is text below its folder, at most 64 KiB', async () => {
    const t = world({
      '../skills/s/SKILL.md': skill('s'),
      '../skills/s/references/x.md': 'reference',
      '../skills/s/large.txt': 'x'.repeat(65_537),
      '../skills/other/SKILL.md': skill('other'),
      '../secret': 'secret',
    });
    fs.writeFileSync(path.join(t.root, '../skills/s/image.png'), Buffer.from([0x89, 0x50]));
    fs.symlinkSync('../../secret', path.join(t.root, '../skills/s/link.md'));
    expect(await t.workspaces.skillFile(t.root, 's', 'references/x.md')).toBe('reference');
    const error = async (file: string) => {
      const { error_class, message } = await failure(t.workspaces.skillFile(t.root, 's', file));
      return `${error_class}: ${message}`;
    };
    for (const file of ['../other/SKILL.md', '/etc/passwd', 'link.md', 'references/../../../secret'])
      expect(await error(file)).toMatch(/^permission_denied: Path '.*' escapes/);
    expect(await error('large.txt')).toBe('execution_error: file too large: large.txt has more than 65536 bytes');
    expect(await error('image.png')).toBe('execution_error: not valid UTF-8 text: image.png');
    expect(await error('none.md')).toBe('execution_error: file not found: none.md');
  });
});
