// The patterns of the workspaces used last. Reading them and changing them take turns, so that neither misses the other.

import type { Clock } from '#protocol/clock.ts';
import type { StoredPattern } from '#protocol/learning/pattern.ts';
import type { PatternReader } from '../ports/patterns.ts';
import { WorkspacePatterns } from './workspace-patterns.ts';

/** A full workspace takes some megabytes. */
const MAX_WORKSPACES = 20;
/** Read at once: a full workspace is read in parts, so that nobody waits long for the thread. */
const SLICE = 500;

export interface PatternMemory {
  /** What is held of the workspace, null when it has to be read. */
  held(workspacePath: string): WorkspacePatterns | null;
  /** Read where it is not held, when nobody changes it. Rejects when the store fails; the next one tries again. */
  of(workspacePath: string): Promise<WorkspacePatterns>;
  /** Runs `change` when nobody reads or changes anything. It gets the patterns by the function it is handed. */
  exclusively<T>(change: (of: PatternMemory['of']) => Promise<T>): Promise<T>;
  forget(workspacePath: string): void;
}

/** @param age after which patterns are read again; null = nobody else changes them */
export function createPatternMemory(
  store: { readonly patterns: PatternReader },
  age: { readonly clock: Clock; readonly ms: number } | null = null,
): PatternMemory {
  const kept = new Map<string, WorkspacePatterns>();
  const readAt = new Map<string, number>();
  let last: Promise<unknown> = Promise.resolve();

  function held(workspacePath: string): WorkspacePatterns | null {
    const patterns = kept.get(workspacePath);
    kept.delete(workspacePath);
    if (patterns === undefined || isOld(workspacePath)) return null;
    kept.set(workspacePath, patterns);
    return patterns;
  }

  function isOld(workspacePath: string): boolean {
    return age !== null && age.clock.monotonic() - (readAt.get(workspacePath) ?? 0) > age.ms;
  }

  async function read(workspacePath: string): Promise<WorkspacePatterns> {
    const known = held(workspacePath);
    if (known !== null) return known;
    if (age !== null) readAt.set(workspacePath, age.clock.monotonic());
    const rows: StoredPattern[] = [];
    for (let after = ''; ; ) {
      const slice = await store.patterns.bySignature(workspacePath, after, SLICE);
      rows.push(...slice);
      if (slice.length < SLICE) break;
      after = slice.at(-1)!.structural_sig;
      await new Promise((resolve) => setImmediate(resolve));
    }
    const patterns = new WorkspacePatterns(rows);
    kept.set(workspacePath, patterns);
    for (const [path] of kept) {
      if (kept.size <= MAX_WORKSPACES) break;
      kept.delete(path);
      readAt.delete(path);
    }
    return patterns;
  }

  function exclusively<T>(change: (of: PatternMemory['of']) => Promise<T>): Promise<T> {
    const mine = last.then(() => change(read));
    last = mine.catch(() => {});
    return mine;
  }

  return {
    held,
    of: (workspacePath) => exclusively((of) => of(workspacePath)),
    exclusively,
    forget: (workspacePath) => {
      kept.delete(workspacePath);
    },
  };
}
