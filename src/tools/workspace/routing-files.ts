// The two routing files as bytes, which the routing policy parses (03 §6.4), and a change of the workspace's own (03 §6.5).
import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import type { Logger } from '#core/ports/logger.ts';
import type { RoutingFile } from '#core/ports/workspace.ts';
import type { Awaitable } from '#protocol/async/awaitable.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { sha256Hex } from '#protocol/text/canonical-json.ts';
import {
  describeProblem,
  errorCode,
  isMissing,
  NotRegular,
  readStart,
  replaceFile,
  runExclusive,
  SwappedPath,
} from './descriptors.ts';

const RELATIVE = '.metis/routing.yaml';
/** Far above any file a person writes; a larger one is cut and then fails to parse, with a message. */
const MAX_ROUTING_FILE_BYTES = 1024 * 1024;

class ChangedMeanwhile extends Error {}

/** One file as it is now; one that cannot be read counts as absent. */
export function readRoutingFile(path: string, realPath: string, log: Logger): Awaitable<RoutingFile> {
  if (isMissing(realPath)) return { path, bytes: null, stamp: '' };
  return readPresentFile(path, realPath, log);
}

async function readPresentFile(path: string, realPath: string, log: Logger): Promise<RoutingFile> {
  const bytes = await readStart(realPath, MAX_ROUTING_FILE_BYTES).catch((error: unknown) => {
    log.warn({ path, problem: describeProblem(error) }, 'a routing file cannot be read');
    return null;
  });
  return { path, bytes, stamp: bytes === null ? '' : sha256Hex(bytes) };
}

export function findRoutingFile(root: string): string {
  return `${root}/${RELATIVE}`;
}

/** Implements `Workspaces.changeRoutingFile`. */
export function changeRoutingFile(
  root: string,
  next: (before: Buffer | null) => Promise<string | null>,
): Promise<Result<null, string>> {
  const path = findRoutingFile(root);
  return runExclusive(path, async () => {
    let before: Buffer | null;
    try {
      before = await readStart(path, MAX_ROUTING_FILE_BYTES + 1);
      if (before !== null) await access(path, constants.W_OK);
    } catch (error) {
      return err(`cannot be changed: ${describeObstacle(error)}`);
    }
    if (before !== null && before.length > MAX_ROUTING_FILE_BYTES)
      return err(`has more than ${MAX_ROUTING_FILE_BYTES} bytes`);
    const text = await next(before);
    if (text === null) return ok(null);
    const requireUnchanged = async () => {
      // An editor or another server may have saved the file in the meantime: its text stays.
      const now = await readStart(path, MAX_ROUTING_FILE_BYTES + 1);
      if (now === null ? before !== null : before === null || !now.equals(before)) throw new ChangedMeanwhile();
    };
    try {
      await replaceFile(root, RELATIVE, text, { sync: true, ready: requireUnchanged });
      return ok(null);
    } catch (error) {
      if (error instanceof ChangedMeanwhile) return err('was changed by another program at the same time; try again');
      const isKnown = error instanceof SwappedPath || error instanceof NotRegular || errorCode(error) !== null;
      if (!isKnown) throw error;
      return err(`cannot be written: ${describeObstacle(error)}`);
    }
  });
}

function describeObstacle(error: unknown): string {
  return errorCode(error) ?? `it ${describeProblem(error)}`;
}
