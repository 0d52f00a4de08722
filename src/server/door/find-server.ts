// The server of a data folder, by what that folder says of it, else by the configured address (19 §5).
import fs from 'node:fs';
import { createMetisClient } from '#client/client.ts';
import type { ServerAddress } from '#client/request.ts';
import type { LoadedConfig } from '../config.ts';
import { readServerFile } from './server-file.ts';

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
  const said = readServerFile(settings.dataDir);
  if (said !== null && (await isAnswering({ ...configured, baseUrl: said.url })))
    return { baseUrl: said.url, embedded: said.embedded };
  const { db_path } = settings.config.storage;
  const held = fs.existsSync(db_path) && (await isHeld(db_path));
  // A data folder that was named and that no server holds is not the one of a server that answers.
  if ((named && !held) || !(await isAnswering(configured))) return null;
  return { baseUrl: configured.baseUrl, embedded: false };
}

/** The driver of the database is loaded where the folder does not say itself which server is up. */
async function isHeld(file: string): Promise<boolean> {
  const { isOwned } = await import('#store/sqlite/connection/owner-lock.ts');
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
