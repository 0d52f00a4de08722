// Real repositories for tests of worktrees.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { onTestFinished } from 'vitest';
import { silentLogger } from '#core/ports/logger.ts';
import type { Worktrees } from '#core/ports/worktrees.ts';
import type { WorktreeRecord } from '#protocol/file-change.ts';
import { createIdGenerator, type SessionId } from '#protocol/ids.ts';
import type { CloneFile } from '#tools/worktree/provide-files.ts';
import { createWorktrees } from '#tools/worktree/worktrees.ts';

export interface TestRepository {
  readonly folder: string;
  /** The work tree. */
  readonly root: string;
  /** Holds the worktrees. */
  readonly home: string;
  readonly worktrees: Worktrees;
  git(...args: string[]): string;
  write(name: string | Buffer, text: string): void;
  read(name: string): string;
  /** A worktree with a record as the engine stores it. */
  create(root?: string, settings?: Parameters<Worktrees['create']>[3]): Promise<WorktreeRecord>;
  /** Records the result, merges and writes it as the engine does. */
  apply(
    worktree: WorktreeRecord,
  ): Promise<{ readonly conflicts: readonly string[]; readonly changed: readonly string[] }>;
}

export function run(cwd: string, ...args: string[]): string {
  const env = { PATH: process.env.PATH, HOME: cwd, GIT_CONFIG_NOSYSTEM: '1', LC_ALL: 'C' };
  return execFileSync('git', args, { cwd, env, encoding: 'utf8', stdio: ['pipe', 'pipe', 'pipe'] });
}

export const ANY_PATH = async () => true;

export function createRepository(
  files: Readonly<Record<string, string>>,
  options: {
    readonly links?: readonly string[];
    readonly env?: Readonly<Record<string, string>>;
    readonly clone?: CloneFile;
  } = {},
): TestRepository {
  const folder = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), 'metis-tree-')));
  onTestFinished(() => fs.rmSync(folder, { recursive: true, force: true }));
  const root = path.join(folder, 'workspace');
  const home = path.join(folder, 'data/worktrees');
  fs.mkdirSync(root);
  const write = (name: string | Buffer, text: string) => {
    const full = typeof name === 'string' ? path.join(root, name) : Buffer.concat([Buffer.from(`${root}/`), name]);
    if (typeof full === 'string') fs.mkdirSync(path.dirname(full), { recursive: true });
    fs.writeFileSync(full, text);
  };
  for (const [name, text] of Object.entries(files)) write(name, text);
  const git = (...args: string[]) => run(root, ...args);
  git('init', '-q', '-b', 'main');
  git('config', 'user.email', 'a@example.com');
  git('config', 'user.name', 'a');
  git('add', '-A');
  git('commit', '-q', '--allow-empty', '-m', 'first');
  const env = { PATH: process.env.PATH, HOME: folder, ...options.env };
  const worktrees = createWorktrees({
    folder: home,
    links: options.links ?? [],
    env,
    log: silentLogger,
    ...(options.clone && { clone: options.clone }),
  });
  const ids = createIdGenerator(() => Date.now(), Math.random);
  return {
    folder,
    root,
    home,
    worktrees,
    git,
    write,
    read: (name) => fs.readFileSync(path.join(root, name), 'utf8'),
    async create(from = root, settings) {
      const session_id = ids.session() as SessionId;
      const made = await worktrees.create(session_id, from, null, settings);
      return {
        session_id,
        caller_path: from,
        ...made,
        result_tree: null,
        merged_from: null,
        merged_tree: null,
        applied: null,
        created_at: 0,
      };
    },
    async apply(worktree) {
      const { result_tree } = await worktrees.recordResult(worktree, ANY_PATH);
      const recorded = { ...worktree, result_tree };
      const merge = await worktrees.merge(recorded);
      if (merge.kind === 'conflict') return { conflicts: merge.paths, changed: [] };
      const { changed_meanwhile } = await worktrees.write(recorded, merge);
      return { conflicts: [], changed: changed_meanwhile };
    },
  };
}

/** Everything of a repository that a person would miss: its index, HEAD, branches, stash, hooks and configuration. */
export function readUserState(root: string): Readonly<Record<string, string>> {
  const state: Record<string, string> = {};
  const visit = (folder: string) => {
    for (const entry of fs.readdirSync(path.join(root, '.git', folder), { withFileTypes: true })) {
      const name = path.join(folder, entry.name);
      if (/^(objects|worktrees|refs\/metis)$/.test(name)) continue;
      if (entry.isDirectory()) visit(name);
      else state[name] = fs.readFileSync(path.join(root, '.git', name)).toString('hex');
    }
  };
  visit('.');
  return state;
}
