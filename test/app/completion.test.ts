// `metis completion`: what the real shells offer behind its commands and flags.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runHere } from './here.ts';
import { HAS_TERMINAL, programOnTerminal, temporaryHome, visible } from './metis.ts';

const home = temporaryHome();
const scriptOf = (shell: string) => path.join(home.path, `completion.${shell}`);
const installed = (shell: string) => spawnSync(shell, ['--version']).status === 0;

beforeAll(async () => {
  fs.mkdirSync(path.join(home.path, 'my folder'));
  fs.writeFileSync(path.join(home.path, 'routing.yaml'), '');
  for (const shell of ['bash', 'zsh', 'fish']) {
    const { code, stdout } = await runHere(['completion', shell], { home: home.path });
    expect(code).toBe(0);
    fs.writeFileSync(scriptOf(shell), stdout);
  }
});
afterAll(() => home.remove());

/** What is typed, and what is offered for its last word; null = files of the folder. */
const OFFERS: readonly [string[], string[]][] = [
  [['ro'], ['rollups', 'routing']],
  [
    ['routing', ''],
    ['check', 'explain', 'use', 'what-if'],
  ],
  [['run', '--mo'], ['--model']],
  [
    ['sessions', '--status', 'i'],
    ['idle', 'interrupted'],
  ],
  [['help', 'routing', 'e'], ['explain']],
  [['completion', 'f'], ['fish']],
  [['run', '--workspace', 'my'], ['my folder']],
  [['run', '--model', ''], []],
];

function shellOutput(shell: string, args: readonly string[]): string {
  const done = spawnSync(shell, args, { cwd: home.path, encoding: 'utf8', env: { PATH: process.env.PATH } });
  expect(done.stderr).toBe('');
  return done.stdout;
}

describe.runIf(installed('bash'))('bash', () => {
  it.each(OFFERS)('offers for %j: %j', (words, offers) => {
    const program = `source '${scriptOf('bash')}'
      COMP_WORDS=(metis "$@"); COMP_CWORD=$#; _metis
      printf '%s\\n' "\${COMPREPLY[@]}"`;
    const lines = shellOutput('bash', ['--norc', '-c', program, 'bash', ...words]).split('\n');
    expect(lines.filter((line) => line !== '' && line !== '--help').sort()).toEqual(offers);
  });

  it('offers files where a file is wanted', () => {
    const program = `source '${scriptOf('bash')}'; complete -p metis`;
    expect(shellOutput('bash', ['--norc', '-c', program])).toBe('complete -o default -F _metis metis\n');
  });
});

describe.runIf(installed('fish'))('fish', () => {
  it.each([...OFFERS, [['routing', 'check', 'r'], ['routing.yaml']]] as typeof OFFERS)(
    'offers for %j: %j',
    (words, offers) => {
      const typed = ['metis', ...words].join(' ');
      const program = `source '${scriptOf('fish')}'; complete -C '${typed}'`;
      const lines = shellOutput('fish', ['--no-config', '-c', program]).split('\n');
      const names = lines.map((line) => line.split('\t')[0]!.replace(/\/$/, '').replaceAll('\\ ', ' '));
      expect(names.filter((name) => name !== '').sort()).toEqual(offers);
    },
  );
});

/** What is written over by a completed word counts once. */
const shown = (text: string) =>
  visible(text)
    .replaceAll(/[^\P{Cc}\n]/gu, '')
    .replaceAll(/ +/g, ' ');

describe.runIf(installed('zsh') && HAS_TERMINAL)('zsh', () => {
  it.each([
    ['metis comp\t', /metis completion/],
    ['metis routing ex\t', /metis routing explain/],
    ['metis run --works\t', /metis run --workspace/],
    ['metis sessions --status ru\t', /metis sessions --status running/],
    ['metis routing check rou\t', /metis routing check routing\.yaml/],
    ['metis serve --data my\t', /metis serve --data my\\ folder\//],
    ['metis roll\tre\t', /metis rollups rebuild/],
    ['metis ro\t', /routing -- Check routing rules/],
  ])('completes %j', async (keys, pattern) => {
    const zsh = programOnTerminal(['zsh', '-f', '-i'], { home: home.path, env: { TERM: 'dumb' } });
    zsh.type(`autoload -U compinit; compinit -u -D; source '${scriptOf('zsh')}'; echo re''ady $$\n`);
    await zsh.seen(/ready \d+/);
    const shell = Number(/ready (\d+)/.exec(zsh.output())![1]);
    zsh.type(keys);
    try {
      await expect.poll(() => shown(zsh.output()), { timeout: 4000 }).toMatch(pattern);
    } finally {
      process.kill(shell, 'SIGKILL');
      await zsh.ended;
    }
  });
});

it('knows every command, and refuses a shell it does not know', async () => {
  const { stdout } = await runHere(['--help'], { home: home.path });
  const commands = [...stdout.matchAll(/^ {2}([a-z]+) /gm)].map(([, name]) => name!);
  expect(commands.length).toBeGreaterThan(12);
  for (const shell of ['bash', 'zsh', 'fish']) {
    const text = fs.readFileSync(scriptOf(shell), 'utf8');
    for (const name of commands) expect(text).toContain(`'metis ${name}'`);
  }
  const refused = await runHere(['completion', 'powershell'], { home: home.path });
  const words = 'metis: the shell must be one of bash, zsh, fish\nmetis help completion shows what it takes\n';
  expect([refused.code, refused.stderr]).toEqual([2, words]);
});
