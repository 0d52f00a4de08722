// `metis token create` beside a stopped server, and `metis token hash` (23 §2).
import { createHash } from 'node:crypto';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { orderToken, printSecret } from '#cli/tokens.ts';
import type { ServerAddress } from '#client/request.ts';
import { makeTokenWrites } from '#core/engine/manage-people.ts';
import { systemClock } from '#protocol/clock.ts';
import { StartupError } from '#protocol/errors.ts';
import { createIdGenerator } from '#protocol/ids.ts';
import { JournalConflict } from '#protocol/journal-batch.ts';
import { type NewToken, NewTokenBody } from '#protocol/people/person.ts';
import { createBus } from '#store/bus/memory/local-bus.ts';
import { databaseFault, openDatabase } from '#store/sqlite/connection/open.ts';
import { createJournal } from '#store/sqlite/write/journal.ts';
import { type CommandContext, getConfiguredServer, loadSettings, refuse, withServer } from '../context.ts';
import { findServer } from '../find-server.ts';
import { startLog } from '../log.ts';
import { makeSecret } from '../tokens.ts';

export interface NewTokenFlags {
  readonly role: string;
  readonly daily?: string;
  readonly monthly?: string;
  /** Days. */
  readonly expires?: number;
  readonly workspace?: readonly string[];
  readonly server?: string;
  readonly token?: string;
  readonly data?: string;
  readonly json?: boolean;
}

const DAY_MS = 86_400_000;

/** Asks the running server; with --data beside a stopped one it writes the database itself. Exit code: 1 when refused. */
export async function makeToken(context: CommandContext, name: string, flags: NewTokenFlags): Promise<number> {
  const parsed = NewTokenBody.safeParse({
    name,
    role: flags.role,
    daily_usd: flags.daily ?? null,
    monthly_usd: flags.monthly ?? null,
    workspaces: flags.workspace?.map((folder) => path.resolve(context.cwd, folder)) ?? null,
    expires_at: flags.expires === undefined ? null : new Date(systemClock.now() + flags.expires * DAY_MS).toISOString(),
  });
  if (!parsed.success)
    return refuse(
      context,
      parsed.error.issues.map(({ message }) => message),
    );
  const order = (server: ServerAddress) => orderToken(context, server, parsed.data, flags);
  if (flags.data === undefined || flags.server !== undefined) return withServer(context, flags, order);
  const settings = loadSettings(context, { data: flags.data });
  if (!settings.ok) return refuse(context, settings.error);
  const { value } = settings;
  const configured = getConfiguredServer(context, value, flags);
  const found = await findServer(value, configured, true);
  if (found !== null) return order({ ...configured, baseUrl: found.baseUrl });
  if (value.config.database.url !== null)
    return refuse(context, ['on PostgreSQL, start a node with a token of server.tokens and ask it']);
  const { gateway, server } = value.config;
  if (Object.hasOwn(server.tokens, name) || Object.hasOwn(gateway.keys, name))
    return refuse(context, [`the configuration has a token or a gateway key named ${name}`]);
  return storeToken(context, { settings: value, order: parsed.data, flags });
}

interface StoredToken {
  readonly settings: Extract<ReturnType<typeof loadSettings>, { ok: true }>['value'];
  readonly order: NewToken;
  readonly flags: NewTokenFlags;
}

async function storeToken(context: CommandContext, { settings, order, flags }: StoredToken): Promise<number> {
  const { db_path, synchronous } = settings.config.storage;
  const log = startLog(context, settings);
  const ids = createIdGenerator(() => systemClock.now(), Math.random);
  try {
    const migrationsDir = path.join(context.packageDir, 'migrations');
    const db = openDatabase({ path: db_path, synchronous, migrationsDir, log });
    try {
      const journal = createJournal({ db, ids, clock: systemClock, bus: createBus(log), log });
      const secret = makeSecret();
      const runtime = { ids, clock: systemClock, config: settings.config };
      const { writes } = makeTokenWrites(runtime, order, { token_sha256: hashSecret(secret), created_by: null });
      await journal.commit({ writes, emit: [] });
      printSecret(context, { name: order.name, secret }, flags);
      return 0;
    } finally {
      db.close();
    }
  } catch (cause) {
    const error = databaseFault(db_path, cause);
    if (error instanceof StartupError) return refuse(context, error.problems);
    if (error instanceof JournalConflict) return refuse(context, [error.message]);
    throw error;
  }
}

/** Prints the SHA-256 of the token on stdin, for `server.tokens`. */
export async function hashToken(context: CommandContext): Promise<number> {
  const token = (await text(context.stdin)).trim();
  if (token.length < 32) return refuse(context, ['send a token of at least 32 characters on stdin']);
  context.stdout.write(`${hashSecret(token)}\n`);
  return 0;
}

function hashSecret(token: string): string {
  return createHash('sha256').update(token).digest('hex');
}
