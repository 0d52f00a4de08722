// A PostgreSQL of a test's own, stopped and started as its operator would.
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import pg from 'pg';
import { onTestFinished } from 'vitest';
import type { Certificate } from './certificate.ts';
import { freePort } from './free-port.ts';
import { ordinaryUser } from './ordinary-user.ts';
import { until } from './until.ts';

const START_SECONDS = 60;
/** Of `pg_ctl stop`, as the signals that it sends. */
const MODES = { fast: 'SIGINT', immediate: 'SIGQUIT' } as const;

export interface Postgres {
  readonly url: string;
  /** `fast` = connections are ended and all is written; `immediate` = it falls, and recovers when it starts. */
  stop(mode: keyof typeof MODES): Promise<void>;
  /** Until it takes connections. */
  start(): Promise<void>;
  /** Starts a hot standby, which is read-only until `promote`. This server is stopped meanwhile. */
  standby(): Promise<Postgres>;
  /** Makes a standby the server that takes writes; resolves when it does. */
  promote(): Promise<void>;
}

/** The folder of its programs; null where there are none, since a client needs neither. */
const PROGRAMS = programs();

/** For the title of what is skipped. */
export const noPostgres = PROGRAMS === null ? 'no initdb' : '';

/**
 * Ended and removed with the test.
 * @param tls it takes connections over TLS alone
 */
export async function startPostgres(tls?: Certificate): Promise<Postgres> {
  return startedFrom(
    (data, place) => {
      runProgram('initdb', ['--pgdata', data, '--username', 'postgres', '--auth', 'trust', '--no-sync'], place);
      if (tls === undefined) return;
      const key = path.join(data, 'server.key');
      fs.copyFileSync(tls.certificate, path.join(data, 'server.crt'));
      fs.copyFileSync(tls.key, key);
      // It takes a key of its owner alone.
      fs.chmodSync(key, 0o600);
      if (place.uid !== undefined) fs.chownSync(key, place.uid, place.gid!);
      fs.appendFileSync(path.join(data, 'postgresql.auto.conf'), 'ssl = on\n');
      fs.writeFileSync(path.join(data, 'pg_hba.conf'), 'local all all trust\nhostssl all all 127.0.0.1/32 trust\n');
    },
    tls === undefined ? '' : `?sslmode=verify-full&sslrootcert=${tls.authority}`,
  );
}

/** Where a server's programs run, and as whom. */
interface Place {
  readonly cwd: string;
  readonly uid?: number;
  readonly gid?: number;
}

function runProgram(name: string, flags: readonly string[], place: Place): void {
  const made = spawnSync(path.join(PROGRAMS!, name), flags, { ...place, encoding: 'utf8' });
  if (made.status !== 0) throw new Error(`${name}: ${made.stderr}`);
}

/**
 * @param make fills the data folder
 * @param parameters of the address
 */
async function startedFrom(make: (data: string, place: Place) => void, parameters = ''): Promise<Postgres> {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'metis-postgres-'));
  onTestFinished(() => fs.rmSync(folder, { recursive: true, force: true }));
  // It refuses to run as root.
  const user = process.getuid?.() === 0 ? ordinaryUser() : null;
  if (user !== null) fs.chownSync(folder, user.uid, user.gid);
  const data = path.join(folder, 'data');
  const place = { ...user, cwd: folder };
  make(data, place);
  const port = await freePort();
  const url = `postgres://postgres@127.0.0.1:${port}/postgres${parameters}`;
  let server: ChildProcess | null = null;

  async function end(signal: NodeJS.Signals): Promise<void> {
    if (server === null) return;
    const ended = once(server, 'exit');
    server.kill(signal);
    server = null;
    await ended;
  }
  async function start(): Promise<void> {
    const flags = ['-D', data, '-p', String(port), '-k', folder, '-c', 'listen_addresses=127.0.0.1'];
    server = spawn(path.join(PROGRAMS!, 'postgres'), flags, { ...place, stdio: 'ignore' });
    await until(() => answers(url), START_SECONDS);
  }
  onTestFinished(() => end(MODES.immediate));
  await start();
  return {
    url,
    start,
    stop: (mode) => end(MODES[mode]),
    async standby() {
      await end(MODES.fast);
      const copied = startedFrom((copy, at) => {
        fs.cpSync(data, copy, { recursive: true });
        // It starts on a folder of its owner alone.
        fs.chmodSync(copy, 0o700);
        fs.writeFileSync(path.join(copy, 'standby.signal'), '');
        const replication = `primary_conninfo = '${url}'\nwal_retrieve_retry_interval = '100ms'\n`;
        fs.appendFileSync(path.join(copy, 'postgresql.auto.conf'), replication);
        if (at.uid !== undefined) spawnSync('chown', ['-R', `${at.uid}:${at.gid}`, copy]);
      });
      await start();
      const standby = await copied;
      // Until then a stop of this server does not wait for it, and it would miss what was written before.
      await until(() => isReplicated(url), START_SECONDS);
      return standby;
    },
    async promote() {
      await runOn(url, 'SELECT pg_promote()');
    },
  };
}

function programs(): string | null {
  const found = (process.env.PATH ?? '').split(path.delimiter);
  const debian = '/usr/lib/postgresql';
  const versions = fs.existsSync(debian) ? fs.readdirSync(debian) : [];
  const folders = [...found, ...versions.map((version) => path.join(debian, version, 'bin'))];
  const has = (folder: string) => ['initdb', 'postgres'].every((name) => fs.existsSync(path.join(folder, name)));
  return folders.find((folder) => folder !== '' && has(folder)) ?? null;
}

async function answers(url: string): Promise<boolean> {
  try {
    await runOn(url, 'SELECT 1');
    return true;
  } catch {
    return false;
  }
}

/** @returns whether a standby of the server at `url` receives its writes */
async function isReplicated(url: string): Promise<boolean> {
  const { rows } = await runOn(url, `SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'`);
  return rows.length > 0;
}

async function runOn(url: string, sql: string): Promise<pg.QueryResult> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => {});
  await client.connect();
  try {
    return await client.query(sql);
  } finally {
    await client.end();
  }
}
