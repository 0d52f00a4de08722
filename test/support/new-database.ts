// An empty SQLite database that needs no migration any more: made once by a process, then copied.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { silentLogger } from '#core/ports/logger.ts';
import { openDatabase } from '#store/sqlite/connection/open.ts';

const MIGRATIONS = path.resolve(import.meta.dirname, '../../migrations');
let empty: Buffer | null = null;

/** Puts one there, with its folder; a file that is there stays. */
export function newDatabase(file: string): void {
  if (fs.existsSync(file)) return;
  empty ??= migrated();
  fs.mkdirSync(path.dirname(file), { recursive: true, mode: 0o700 });
  fs.writeFileSync(file, empty, { mode: 0o600 });
}

function migrated(): Buffer {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'metis-empty-'));
  const file = path.join(folder, 'metis.db');
  openDatabase({ path: file, synchronous: 'NORMAL', migrationsDir: MIGRATIONS, log: silentLogger }).close();
  const bytes = fs.readFileSync(file);
  fs.rmSync(folder, { recursive: true });
  return bytes;
}
