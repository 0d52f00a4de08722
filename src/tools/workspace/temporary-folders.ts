// The temporary folder of each worker: what commands of two workers leave there never meets (20 §2).
import { mkdir, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '#core/ports/logger.ts';
import type { TemporaryFolders } from '#core/ports/workspace.ts';
import type { SessionId } from '#protocol/ids.ts';
import { removeTree } from './remove-tree.ts';

const SESSION = /^sess_[0-9A-Z]+$/;

/** @param root absolute; made with the first folder in it */
export function createTemporaryFolders(root: string, log: Logger): TemporaryFolders {
  const known = new Set<string>();
  return {
    async open(session) {
      const path = join(root, session);
      await mkdir(path, { recursive: true, mode: 0o700 });
      known.add(session);
      return path;
    },
    async remove(session) {
      if (!known.delete(session)) return;
      await removeTree(join(root, session)).catch((err: unknown) =>
        log.warn({ err, session_id: session }, 'the temporary folder of a worker could not be removed'),
      );
    },
    async list() {
      const names = (await readdir(root).catch(() => [])).filter((name) => SESSION.test(name));
      for (const name of names) known.add(name);
      return names as SessionId[];
    },
  };
}
