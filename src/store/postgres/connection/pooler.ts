// A pooler between this server and PostgreSQL keeps one server connection for each client, or is refused (16 §11).
import pg from 'pg';
import { StartupError } from '#protocol/errors.ts';
import { connectionConfig } from './connect.ts';

/** The server's time tells connections of two servers apart that have one process id. */
const BACKEND = "SELECT pg_backend_pid() || ' ' || pg_postmaster_start_time() AS backend";
/** Other clients of the pooler may take a connection in between: one round could miss it. */
const ROUNDS = 3;
const PATIENCE_MS = 5000;

/**
 * Asks two open connections in turn which server process answers. A pooler in transaction mode gives both the same one,
 * or one connection another each time. Makes no setting, which such a pooler would hand to other clients.
 * Throws `StartupError('database_pooler_mode')`.
 */
export async function requireSessionMode(url: string): Promise<void> {
  const { onConnect: _settings, ...config } = connectionConfig(url, {});
  const clients = [0, 1].map(() => new pg.Client({ ...config, query_timeout: PATIENCE_MS }));
  for (const client of clients) client.on('error', () => {});
  const [first, second] = clients.map((client) => ({ client, backends: new Set<string>() }));
  try {
    for (const client of clients) await client.connect();
    for (let round = 0; round < ROUNDS; round++) {
      // Twice: a pooler that hands out its connections in rotation gives the second question another one.
      for (const { client, backends } of [first!, first!, second!]) {
        backends.add((await client.query<{ backend: string }>(BACKEND)).rows[0]!.backend);
      }
    }
  } finally {
    await Promise.all(clients.map((client) => client.end().catch(() => {})));
  }
  const [own, ...others] = first!.backends;
  if (others.length === 0 && second!.backends.size === 1 && !second!.backends.has(own!)) return;
  throw new StartupError('database_pooler_mode', [
    'database_pooler_mode: the pooler at database.url gives a connection to several clients (transaction or statement mode), which breaks locks and prepared statements; set its pool_mode to session, or name PostgreSQL itself',
  ]);
}
