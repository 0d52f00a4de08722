// `metis worktrees`: what is kept of workers that worked in a worktree, and `prune`, which frees it (20 §2.7).
import { createMetisClient, type KeptWorktrees } from '#client/client.ts';
import type { ServerAddress } from '#client/request.ts';
import { systemClock } from '#protocol/clock.ts';
import { toJsonLine } from './printable-text.ts';
import {
  askServer,
  type Column,
  formatAge,
  getTableWidth,
  groupDigits,
  layOutTable,
  printMessage,
  type ServerFlags,
  type Terminal,
} from './terminal.ts';

const COLUMNS: readonly Column[] = [
  { title: 'worker', whole: true },
  { title: 'workspace', least: 10 },
  { title: 'changes', whole: true },
  { title: 'folder', align: 'right' },
  { title: 'refs', align: 'right' },
  { title: 'age', align: 'right', drop: 1 },
];

export interface PruneFlags extends Pick<ServerFlags, 'json'> {
  /** Changes that were not applied too. */
  readonly all?: boolean;
}

/** Prints a line per worktree. Exit code: 1 when the server could not answer. */
export async function listWorktrees(
  terminal: Terminal,
  server: ServerAddress,
  { json }: Pick<ServerFlags, 'json'>,
): Promise<number> {
  const { stdout, stderr } = terminal;
  return askServer(terminal, server, async () => {
    const { worktrees } = await createMetisClient(server).listWorktrees();
    if (json) for (const worktree of worktrees) stdout.write(toJsonLine(worktree));
    else if (worktrees.length === 0) printMessage(stderr, 'nothing is kept of any worktree');
    else {
      const now = systemClock.now();
      const rows = worktrees.map((one) => [
        one.worker_session_id,
        one.workspace_path,
        describeKept(one),
        formatKib(one.folder_bytes),
        formatKib(one.ref_bytes),
        formatAge(now - Date.parse(one.created_at)),
      ]);
      for (const line of layOutTable(COLUMNS, rows, getTableWidth(terminal))) stdout.write(`${line}\n`);
    }
    return 0;
  });
}

/** Frees what is kept of workers that have ended. Exit code: 1 when the server could not answer. */
export async function pruneWorktrees(
  terminal: Terminal,
  server: ServerAddress,
  { all = false, json }: PruneFlags,
): Promise<number> {
  const { stdout } = terminal;
  return askServer(terminal, server, async () => {
    const pruned = await createMetisClient(server).pruneWorktrees({ all });
    const { worker_session_ids: ids, freed_bytes } = pruned;
    if (json) stdout.write(toJsonLine(pruned));
    else
      stdout.write(`${ids.length} ${ids.length === 1 ? 'worktree' : 'worktrees'} freed, ${formatKib(freed_bytes)}\n`);
    return 0;
  });
}

function describeKept({ open, applied, changed }: KeptWorktrees['worktrees'][number]): string {
  if (open) return 'at work';
  if (!changed) return 'none';
  return applied === true ? 'applied' : 'kept';
}

function formatKib(bytes: number): string {
  return `${groupDigits(Math.ceil(bytes / 1024))} KiB`;
}
