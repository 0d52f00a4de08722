// The first hits of a search in path order, each from a file that a model may read (09 §13).

import type { WorkspaceFiles } from '#core/ports/workspace.ts';
import { ToolError } from '#protocol/tool.ts';
import { byteOrder } from './byte-order.ts';

const MAX_SNIPPET = 300;
const MAX_FILE_BYTES = 5 * 1024 * 1024;
/** Files, each in eight steps of a pool of four threads; what is read beyond the last hit is dropped. */
const READ_AT_ONCE = 4;
/** Hits kept before those that cannot be among the first are dropped. */
const MAX_PENDING = 10_000;

export interface HitList {
  /** Lines of one file arrive in ascending order. */
  add(path: string, line: number): Promise<void>;
  /** `path:line: snippet`, by path and line, at most the wanted number. */
  hits(): Promise<readonly string[]>;
}

/** @param wanted how many hits are needed; every later one is dropped */
export function createHitList(files: WorkspaceFiles, wanted: number): HitList {
  let pending = new Map<string, number[]>();
  let count = 0;
  let checked = new Map<string, readonly string[]>();
  /** The list is complete up to here: a file behind it comes too late. */
  let bound: string | null = null;

  /** Reads files in order until there are enough hits, and forgets the others. */
  async function settle(): Promise<readonly string[]> {
    const first: string[] = [];
    const kept = new Map<string, readonly string[]>();
    const paths = [...new Set([...checked.keys(), ...pending.keys()])].sort(byteOrder);
    const read = async (path: string) => checked.get(path) ?? (await snippets(files, path, pending.get(path) ?? []));
    for (let at = 0; at < paths.length && first.length < wanted; at += READ_AT_ONCE) {
      const next = paths.slice(at, at + READ_AT_ONCE);
      for (const [i, found] of (await Promise.all(next.map(read))).entries()) {
        if (first.length >= wanted) break;
        if (found.length > 0) kept.set(next[i]!, found);
        first.push(...found);
        if (first.length >= wanted) bound = next[i]!;
      }
    }
    checked = kept;
    pending = new Map();
    count = 0;
    return first.slice(0, wanted);
  }
  return {
    async add(path, line) {
      if (!files.readable(path)) return;
      if (bound !== null && byteOrder(path, bound) > 0) return;
      const lines = pending.get(path);
      // Between files only: a file's hits must be complete when it is read.
      if (lines === undefined && count >= MAX_PENDING) await settle();
      if (lines === undefined) pending.set(path, [line]);
      else lines.push(line);
      count += 1;
    },
    hits: settle,
  };
}

/** The lines as they are shown; none when the file is not readable text after all. */
async function snippets(files: WorkspaceFiles, path: string, lines: readonly number[]): Promise<readonly string[]> {
  let text: string;
  try {
    const data = await files.read(await files.resolve(path, 'read'), MAX_FILE_BYTES);
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(data);
  } catch (error) {
    if (error instanceof ToolError || error instanceof TypeError) return [];
    throw error;
  }
  const all = text.split('\n');
  return lines.flatMap((line) => {
    const found = all[line - 1];
    return found === undefined ? [] : `${path}:${line}: ${snippet(found.replace(/\r$/, ''))}`;
  });
}

function snippet(line: string): string {
  if (line.length <= MAX_SNIPPET) return line;
  return `${line.slice(0, MAX_SNIPPET).replace(/[\uD800-\uDBFF]$/, '')}...`;
}
