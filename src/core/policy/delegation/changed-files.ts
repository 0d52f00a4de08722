// From what single calls changed to what a delegation reports, and the line that the planner reads of it (20 §1).
import { type CallChanges, type FileChange, MAX_CHANGED_FILES, type WorkerChanges } from '#protocol/file-change.ts';
import { cutText } from '../cut.ts';

const MAX_NAMED = 20;
const MAX_NAME_CHARS = 200;

/** What a path came to over several changes; null = nothing. */
function after(before: FileChange['change'] | undefined, next: FileChange['change']): FileChange['change'] | null {
  if (before === 'created') return next === 'deleted' ? null : 'created';
  return before === 'deleted' && next === 'created' ? 'edited' : next;
}

/**
 * The report of one delegation.
 * @param calls of the worker and the workers below it, in the order in which they settled
 * @param overlapping which of these paths others changed after this worker had read them
 */
export function workerChanges(
  calls: readonly CallChanges[],
  overlapping: (paths: readonly string[]) => readonly string[],
): WorkerChanges {
  const changes = new Map<string, FileChange['change']>();
  for (const { path, change } of calls.flatMap((call) => call.files)) {
    const now = after(changes.get(path), change);
    if (now === null) changes.delete(path);
    else changes.set(path, now);
  }
  const paths = [...changes.keys()].sort();
  return {
    changed_files: paths.slice(0, MAX_CHANGED_FILES).map((path) => ({ path, change: changes.get(path)! })),
    changed_files_truncated: paths.length > MAX_CHANGED_FILES,
    shell_used: calls.some((call) => call.shell),
    overlaps: [...overlapping(paths)].sort().slice(0, MAX_CHANGED_FILES),
  };
}

/** `[changed 2 files: a.ts, b.ts; also changed by another worker: b.ts]`; null when there is nothing to say. */
export function changesLine(changes: WorkerChanges): string | null {
  const { changed_files, changed_files_truncated, overlaps } = changes;
  if (changed_files.length === 0) return null;
  const count = `${changed_files_truncated ? 'more than ' : ''}${changed_files.length}`;
  const changed = `changed ${count} file${count === '1' ? '' : 's'}: ${names(changed_files.map((file) => file.path))}`;
  return `[${changed}${overlaps.length === 0 ? '' : `; also changed by another worker: ${names(overlaps)}`}]`;
}

function names(paths: readonly string[]): string {
  const shown = paths.slice(0, MAX_NAMED).map((path) => cutText(path.replace(/\p{C}/gu, '?'), MAX_NAME_CHARS));
  return paths.length > MAX_NAMED ? `${shown.join(', ')} and ${paths.length - MAX_NAMED} more` : shown.join(', ');
}
