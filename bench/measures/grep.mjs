// The grep tool over a workspace of 10,000 files, beside ripgrep by itself in the same run: at most 1.5 times its time.
import { execFile } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { rgPath } from '@vscode/ripgrep';
import { grep } from '#tools/builtin/grep.ts';
import { createWorkspaceFiles } from '#tools/workspace/confined-files.ts';
import { timed } from '../client.mjs';
import { ratioAtMost } from '../limits.mjs';
import { median } from '../stats.mjs';

export const name = 'grep';

const FOLDERS = 100;
const FILES = 100;
const LINES = 60;
/** One file in this many holds a line that matches. */
const EVERY = 300;
const MOST_TIMES_AS_LONG = 1.5;
const PATTERN = 'needle_[0-9]+';
const run = promisify(execFile);

export async function measure(bench) {
  const root = workspace(path.join(fs.realpathSync(bench.folder), 'searched'));
  const times = bench.quick ? 5 : 15;
  const several = async (once) => {
    const all = [];
    for (let i = 0; i < times; i++) all.push(await timed(once));
    return median(all);
  };
  const bare = ['--no-config', '--hidden', '--no-ignore', '--line-number', '--ignore-case', PATTERN, '.'];
  const rounds = await bench.rounds({
    relay: () => several(() => run(rgPath, bare, { cwd: root })),
    metis: () => several(() => search(root)),
  });
  const row = { row: `search of ${(FOLDERS * FILES).toLocaleString('en')} files`, unit: 'ms', better: 'lower' };
  return [{ ...row, ...rounds, limit: ratioAtMost(MOST_TIMES_AS_LONG) }];
}

async function search(root) {
  const tool = grep({ ripgrep: rgPath })();
  const context = { files: createWorkspaceFiles(root), signal: new AbortController().signal };
  const { content } = await tool.execute({ pattern: PATTERN }, context);
  const wanted = Math.ceil((FOLDERS * FILES) / EVERY);
  if (!content[0].text.startsWith(`${wanted} match(es)`)) throw new Error(`grep found ${content[0].text.slice(0, 80)}`);
}

function workspace(root) {
  const plain = 'const value = compute(left, right); // an ordinary line of an ordinary file\n'.repeat(LINES);
  for (let at = 0; at < FOLDERS * FILES; at++) {
    const folder = path.join(root, `folder-${at % FOLDERS}`);
    if (at < FOLDERS) fs.mkdirSync(folder, { recursive: true });
    const text = at % EVERY === 0 ? `${plain}const needle_${at} = true;\n` : plain;
    fs.writeFileSync(path.join(folder, `file-${at}.ts`), text);
  }
  return root;
}
