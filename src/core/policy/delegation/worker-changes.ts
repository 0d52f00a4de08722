// Combines the file changes of single calls into the report of a delegation and its lines for the planner (20 §1, §2).
import {
  type CallChanges,
  type CheckReport,
  type FileChange,
  MAX_CHANGED_FILES,
  type WorkerChanges,
} from '#protocol/file-change.ts';
import { cutText } from '../cut.ts';

const MAX_NAMED = 20;
const MAX_NAME_CHARS = 200;
const MAX_ERROR_CHARS = 1000;

/** The net change of a path over several changes; null = none. */
function combineChanges(
  before: FileChange['change'] | undefined,
  next: FileChange['change'],
): FileChange['change'] | null {
  if (before === 'created') {
    if (next === 'deleted') return null;
    return 'created';
  }
  if (before === 'deleted' && next === 'created') return 'edited';
  return next;
}

/** Of a worker whose word counts. */
const UNCHECKED: CheckReport = { check: null, attempts: 0, verified: null, protected_changes: [] };

/**
 * The report of one delegation.
 * @param calls of the worker and the workers below it, in the order in which they settled
 * @param overlapping which of these paths others changed after this worker had read them
 */
export function summariseChanges(
  calls: readonly CallChanges[],
  overlapping: (paths: readonly string[]) => readonly string[],
): WorkerChanges {
  const changes = new Map<string, FileChange['change']>();
  for (const { path, change } of calls.flatMap((call) => call.files)) {
    const now = combineChanges(changes.get(path), change);
    if (now === null) changes.delete(path);
    else changes.set(path, now);
  }
  const paths = [...changes.keys()].sort();
  return {
    changed_files: paths.slice(0, MAX_CHANGED_FILES).map((path) => ({ path, change: changes.get(path)! })),
    changed_files_truncated: paths.length > MAX_CHANGED_FILES,
    shell_used: calls.some((call) => call.shell),
    isolation: 'shared',
    applied: null,
    conflicts: [],
    apply_error: null,
    ...UNCHECKED,
    overlaps: [...overlapping(paths)].sort().slice(0, MAX_CHANGED_FILES),
  };
}

/**
 * The report of a delegation in a worktree: the difference of its trees.
 * @param applied null = still to be tried
 */
export function reportTreeChanges(
  calls: readonly CallChanges[],
  {
    files,
    applied,
    conflicts,
    apply_error = null,
    report,
  }: Pick<WorkerChanges, 'applied'> &
    Partial<Pick<WorkerChanges, 'apply_error'>> & {
      readonly conflicts: readonly string[];
      readonly files: readonly FileChange[];
      readonly report: CheckReport;
    },
  overlapping: (paths: readonly string[]) => readonly string[],
): WorkerChanges {
  const paths = files.map(({ path }) => path);
  return {
    changed_files: files.slice(0, MAX_CHANGED_FILES),
    changed_files_truncated: files.length > MAX_CHANGED_FILES,
    shell_used: calls.some((call) => call.shell),
    isolation: 'worktree',
    applied,
    conflicts: conflicts.slice(0, MAX_CHANGED_FILES),
    apply_error: apply_error && cutText(apply_error, MAX_ERROR_CHARS),
    ...report,
    overlaps: [...overlapping(paths)].sort().slice(0, MAX_CHANGED_FILES),
  };
}

/**
 * What became of the changes of a worktree; null where they are in the workspace, or where there are none.
 * @param isJoined the worker succeeded, and its changes were to be applied together with those of others
 */
export function formatUnapplied(
  { applied, conflicts, apply_error, changed_files }: WorkerChanges,
  worker: string | null,
  isJoined: boolean,
): string | null {
  if (applied !== false) return null;
  if (conflicts.length > 0)
    return `[changes not applied, conflicts in: ${formatNames(conflicts)}; continue this worker to resolve them]`;
  // Of what could not be recorded no file is known, and no ref was made.
  if (changed_files.length === 0)
    return apply_error === null
      ? null
      : `[changes not applied: ${showLine(apply_error)}; kept in the folder of its worktree]`;
  if (apply_error !== null)
    return `[changes not applied: ${showLine(apply_error)}; kept as refs/metis/${worker}/result]`;
  if (isJoined)
    return `[changes not applied: another worker of this message conflicts; kept as refs/metis/${worker}/result]`;
  return `[changes not applied; kept as refs/metis/${worker}/result]`;
}

/**
 * For a worker that continues one in conflict: what its worktree cannot show. Null where every conflict has markers.
 * @param paths of the conflicts without lines to mark
 */
export function formatUnmarked(paths: readonly string[]): string | null {
  if (paths.length === 0) return null;
  return `[without markers the workspace and the earlier changes conflict in: ${formatNames(paths)}; one side deleted or moved the file, or it is no text. The worktree holds one of both sides there: change it where the other one is right]`;
}

/** `[checked by test: passed]`; null without a check. */
export function formatCheck({ check, verified, attempts }: CheckReport): string | null {
  if (check === null) return null;
  if (verified === null) return `[checked by ${check}: not run]`;
  if (verified) return `[checked by ${check}: passed]`;
  return `[checked by ${check}: failed${attempts > 1 ? ` ${attempts} times` : ''}]`;
}

/** Null where the worker changed no file of its check. */
export function formatProtected({ protected_changes: paths }: CheckReport): string | null {
  if (paths.length === 0) return null;
  return `[changes to protected files dropped: ${formatNames(paths)}]`;
}

/** `[changed 2 files: a.ts, b.ts; also changed by another worker: b.ts]`; null when there is nothing to say. */
export function formatChanges(changes: WorkerChanges): string | null {
  const { changed_files, changed_files_truncated, overlaps } = changes;
  if (changed_files.length === 0) return null;
  const count = formatFileCount(changed_files.length, changed_files_truncated);
  const changed = `changed ${count}: ${formatNames(changed_files.map((file) => file.path))}`;
  if (overlaps.length === 0) return `[${changed}]`;
  return `[${changed}; also changed by another worker: ${formatNames(overlaps)}]`;
}

function showLine(text: string): string {
  return text.replace(/\p{C}/gu, '?');
}

function formatFileCount(count: number, isTruncated: boolean): string {
  if (isTruncated) return `more than ${count} files`;
  if (count === 1) return '1 file';
  return `${count} files`;
}

function formatNames(paths: readonly string[]): string {
  const shown = paths.slice(0, MAX_NAMED).map((path) => cutText(showLine(path), MAX_NAME_CHARS));
  if (paths.length <= MAX_NAMED) return shown.join(', ');
  return `${shown.join(', ')} and ${paths.length - MAX_NAMED} more`;
}
