// Finds the server of a data folder: by its file `server.json`, else at the configured address (19 §5).
import fs from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import { createMetisClient } from '#client/client.ts';
import type { ServerAddress } from '#client/request.ts';
import type { LoadedConfig } from './config.ts';

const ServerFileSchema = z.object({
  url: z.url(),
  pid: z.int().positive(),
  /** It lives in a process that serves one client, and goes with it. */
  embedded: z.boolean(),
});
type ServerFile = z.infer<typeof ServerFileSchema>;

const MAX_BYTES = 4096;

const getServerFilePath = (dataDir: string) => path.join(dataDir, 'server.json');

/** Null where there is none, or what is there is not one. */
function readServerFile(dataDir: string): ServerFile | null {
  try {
    const file = getServerFilePath(dataDir);
    if (fs.statSync(file).size > MAX_BYTES) return null;
    return ServerFileSchema.parse(JSON.parse(fs.readFileSync(file, 'utf8')));
  } catch {
    return null;
  }
}

/** Writes the address of this process; the returned function removes it, unless another server has written its own. */
export function writeServerFile(dataDir: string, content: Omit<ServerFile, 'pid'>): () => void {
  const file = getServerFilePath(dataDir);
  const mine: ServerFile = { ...content, pid: process.pid };
  const draft = `${file}.${process.pid}`;
  fs.writeFileSync(draft, `${JSON.stringify(mine)}\n`, { mode: 0o600 });
  fs.renameSync(draft, file);
  return () => {
    if (readServerFile(dataDir)?.pid === process.pid) fs.rmSync(file, { force: true });
  };
}

const ANSWER_MS = 5000;

export interface FoundServer {
  readonly baseUrl: string;
  /** It goes with a process that serves another client. */
  readonly embedded: boolean;
}

/**
 * The server that this data folder names, else the configured one; null where none answers.
 * @param named the data folder was asked for: the configured address counts only where a server holds it
 */
export async function findServer(
  settings: LoadedConfig,
  configured: ServerAddress,
  named: boolean,
): Promise<FoundServer | null> {
  const written = readServerFile(settings.dataDir);
  if (written !== null && (await isAnswering({ ...configured, baseUrl: written.url })))
    return { baseUrl: written.url, embedded: written.embedded };
  const { db_path } = settings.config.storage;
  const held = fs.existsSync(db_path) && (await isHeld(db_path));
  // A data folder that was named and that no server holds is not the one of a server that answers.
  if ((named && !held) || !(await isAnswering(configured))) return null;
  return { baseUrl: configured.baseUrl, embedded: false };
}

/** Loads the driver of the database, so it runs only where `server.json` names no running server. */
async function isHeld(file: string): Promise<boolean> {
  const { isOwned } = await import('#store/sqlite/connection/database-file.ts');
  return isOwned(file);
}

/** A server that is up, or on its way: one that goes down is not found. */
async function isAnswering(server: ServerAddress): Promise<boolean> {
  try {
    const health = await createMetisClient({ baseUrl: server.baseUrl }).getHealth({
      signal: AbortSignal.timeout(ANSWER_MS),
    });
    return health.status === 'ok';
  } catch {
    return false;
  }
}
