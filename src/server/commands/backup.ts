// `metis backup FILE`: the database as it is at one moment, in a new file, also while a server writes (02 §6).
import fs from 'node:fs';
import path from 'node:path';
import { copyDatabase } from '#store/sqlite/connection/copy.ts';
import type { ConfigFlags } from '../config.ts';
import { type CommandContext, refuse } from '../context.ts';
import { loadSettings } from '../start.ts';

/** Exit code: 0 when the file is complete, 1 with one line when there is none. */
export async function backup(context: CommandContext, flags: ConfigFlags, file: string): Promise<number> {
  const settings = loadSettings(context, flags);
  if (!settings.ok) return refuse(context, settings.error);
  if (settings.value.config.database.url !== null) {
    return refuse(context, [
      'the database of a cluster is copied by its own means: pg_dump, or snapshots; pg_restore brings it back',
    ]);
  }
  const source = settings.value.config.storage.db_path;
  const target = path.resolve(context.cwd, file);
  if (!fs.existsSync(source)) return refuse(context, [`there is no database at ${source}; see --data`]);
  try {
    // Taking the name and refusing one that exists is one step; only its owner may read what agents wrote.
    fs.closeSync(fs.openSync(target, 'wx', 0o600));
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    return refuse(context, [
      code === 'EEXIST' ? `${target} exists already; choose another name` : `${target} cannot be written: ${code}`,
    ]);
  }
  try {
    copyDatabase(source, target);
  } catch (cause) {
    fs.rmSync(target, { force: true });
    return refuse(context, [
      `${source} could not be copied: ${cause instanceof Error ? cause.message : String(cause)}`,
    ]);
  }
  context.stdout.write(`${target}: ${fs.statSync(target).size} bytes, a copy of ${source}\n`);
  return 0;
}
