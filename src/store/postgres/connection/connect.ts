// Opens a connection. A statement makes its settings, because poolers refuse startup parameters (16 §3.5).
import pg from 'pg';
import { StartupError } from '#protocol/errors.ts';

type Settings = Readonly<Record<string, string | number>>;
type OnConnect = (client: pg.ClientBase) => Promise<void>;

const CONNECT_MS = 5000;

/**
 * For a client or a pool. `onConnect` makes the settings of the address and then `settings`, on each connection.
 * @param patienceMs how long a connection and its settings may each take
 */
export function connectionConfig(
  url: string,
  settings: Settings,
  patienceMs = CONNECT_MS,
): pg.ClientConfig & { readonly onConnect: OnConnect } {
  const address = new URL(url);
  const options = parseOptions(address.searchParams.get('options') ?? '');
  address.searchParams.delete('options');
  const all = [...options.settings, ...Object.entries(settings)];
  const text = `SELECT ${all.map(([name, value]) => `set_config(${pg.escapeLiteral(name)}, ${pg.escapeLiteral(String(value))}, false)`)}`;
  return {
    connectionString: address.href,
    ...(options.rest !== '' && { options: options.rest }),
    keepAlive: true,
    connectionTimeoutMillis: patienceMs,
    application_name: 'metis',
    async onConnect(client) {
      // `query_timeout` bounds this statement alone; the types of the driver know it for connections only.
      if (all.length > 0) await client.query({ text, query_timeout: patienceMs } as pg.QueryConfig);
    },
  };
}

/** Opens one connection outside of any pool; the caller closes it. */
export async function connectClient(url: string, settings: Settings): Promise<pg.Client> {
  const { onConnect, ...config } = connectionConfig(url, settings);
  const client = new pg.Client(config);
  client.on('error', () => {});
  try {
    await client.connect();
    await onConnect(client);
    return client;
  } catch (error) {
    await client.end().catch(() => {});
    throw error;
  }
}

interface Options {
  readonly settings: readonly (readonly [name: string, value: string])[];
  /** Parts that are no settings; they are passed to the server unchanged. */
  readonly rest: string;
}

/** The settings in `options` of an address, split as PostgreSQL does: `-c name=value`, `-cname=value`, `--name=value`, `\` before a space. */
function parseOptions(options: string): Options {
  const words = options.match(/(?:\\.|\S)+/gs) ?? [];
  const settings: (readonly [string, string])[] = [];
  const rest: string[] = [];
  for (let i = 0; i < words.length; i++) {
    const word = words[i] === '-c' && i + 1 < words.length ? `-c${words[++i]}` : words[i]!;
    const [, name, value] = /^(?:-c|--)([\w.-]+)=(.*)$/s.exec(word) ?? [];
    if (name === undefined || value === undefined) rest.push(word);
    else settings.push([name.replaceAll('-', '_'), value.replaceAll(/\\(.)/gs, '$1')]);
  }
  return { settings, rest: rest.join(' ') };
}

// A pooler must keep one server connection for each client (16 §11).

/** The start time distinguishes two servers with the same process id. */
const BACKEND = "SELECT pg_backend_pid() || ' ' || pg_postmaster_start_time() AS backend";
/** Other clients of the pooler may take a connection in between: one round could miss it. */
const ROUNDS = 3;
const PATIENCE_MS = 5000;

/**
 * Queries the server process of two open connections in turn. A pooler in transaction mode gives both the same process,
 * or one connection a different process each time. Changes no setting, which such a pooler would pass to other clients.
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
      // Twice: a pooler that hands out its connections in rotation answers the second query from another process.
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
