// Engines whose workspace is a git repository, and what workers in worktrees leave there.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import type { WorkerChanges } from '#protocol/file-change.ts';
import { type ConfigOver, type EngineOptions, startEngine, type TestEngine, tempFolder } from './engine.ts';
import { call, delegate } from './scenario.ts';
import { resultsOf, textOf } from './stored.ts';

/** No tool that the tests use asks for approval. */
export const FREE_TOOLS = {
  tool_confirmation: { per_tool: { delegate: 'auto', write_file: 'auto', edit_file: 'auto', shell: 'auto' } },
} satisfies ConfigOver;

export const write = (file: string, content: string) => call('write_file', { path: file, content });
export const edit = (file: string, old: string, next: string) => call('edit_file', { path: file, old, new: next });
export const shell = (command: string) => call('shell', { command });
export const step = (...tool_calls: unknown[]) => ({ tool_calls });
export const isolated = (task: string, over: object = {}) => delegate(task, { isolation: 'worktree', ...over });

export function git(cwd: string, ...args: string[]): string {
  const env = { PATH: process.env.PATH, HOME: cwd, GIT_CONFIG_NOSYSTEM: '1' };
  return execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@example.com', ...args], {
    cwd,
    env,
    encoding: 'utf8',
    stdio: ['pipe', 'pipe', 'pipe'],
  });
}

/** Makes `root` a repository with these files in its first commit. */
export function initRepository(root: string, files: Readonly<Record<string, string>>): void {
  fs.mkdirSync(root, { recursive: true });
  for (const [name, text] of Object.entries(files)) {
    fs.mkdirSync(path.dirname(path.join(root, name)), { recursive: true });
    fs.writeFileSync(path.join(root, name), text);
  }
  git(root, 'init', '-q', '-b', 'main');
  git(root, 'add', '-A');
  git(root, 'commit', '-q', '--allow-empty', '-m', 'first');
}

/** An engine whose workspace is a repository with these files in its first commit. */
export async function startInRepository(
  files: Readonly<Record<string, string>>,
  options: Omit<EngineOptions, 'files'>,
): Promise<TestEngine> {
  const folder = tempFolder();
  initRepository(path.join(folder, 'workspace'), files);
  return startEngine({ config: FREE_TOOLS, folder, ...options });
}

/** The ends of delegations, in their order. */
export const closings = (t: TestEngine) =>
  t.events.flatMap((e) =>
    e.type === 'delegate.completed' || e.type === 'delegate.failed'
      ? [e.payload as WorkerChanges & { readonly worker_session_id: string; readonly failure_mode?: string }]
      : [],
  );
export const readFile = (t: TestEngine, file: string) => fs.readFileSync(path.join(t.workspace, file), 'utf8');
export const resultTexts = async (t: TestEngine, session: { readonly id: string }) =>
  (await resultsOf(t, session.id)).map(textOf);

/** Folders of worktrees and the entries that git has of them. */
export function leftovers(t: TestEngine): readonly string[] {
  const list = (folder: string) => (fs.existsSync(folder) ? fs.readdirSync(folder) : []);
  return [...list(path.join(t.folder, 'worktrees')), ...list(path.join(t.workspace, '.git/worktrees'))];
}

/** Locks that a git command left in a repository. */
export function listLocks(root: string): readonly string[] {
  const names = fs.readdirSync(path.join(root, '.git'), { recursive: true, encoding: 'utf8' });
  return names.filter((name) => name.endsWith('.lock'));
}

/** A git whose commands are killed as the system kills them. */
export interface KillableGit {
  readonly env: { readonly PATH: string; readonly HOME: string };
  /** Kills this command from its `first` run on, `times` times; default: the first run alone. */
  kill(command: string, first?: number, times?: number): void;
}

/** @param folder an empty one */
export function makeKillableGit(folder: string): KillableGit {
  const order = path.join(folder, 'order');
  const script = `#!/bin/sh
read -r command first times < ${order}
for arg; do [ "$arg" = "$command" ] && echo >> ${folder}/runs; [ "$arg" = "$command" ] && break; done
if [ "$arg" = "$command" ]; then
  runs=$(wc -l < ${folder}/runs)
  [ "$runs" -ge "$first" ] && [ "$runs" -lt $((first + times)) ] && kill -9 $$
fi
PATH=\${PATH#*:} exec git "$@"
`;
  fs.writeFileSync(path.join(folder, 'git'), script, { mode: 0o755 });
  const kill = (command: string, first = 1, times = 1) => {
    fs.rmSync(path.join(folder, 'runs'), { force: true });
    fs.writeFileSync(order, `${command} ${first} ${times}\n`);
  };
  kill('none');
  return { env: { PATH: `${folder}:${process.env.PATH}`, HOME: folder }, kill };
}
