// A PostgreSQL of a test's own, stopped and started as its operator would.
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import pg from 'pg';
import { onTestFinished } from 'vitest';
import { freePort } from './free-port.ts';
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
}

/** The folder of its programs; null where there are none, since a client needs neither. */
const PROGRAMS = programs();

/** For the title of what is skipped. */
export const noPostgres = PROGRAMS === null ? 'no initdb' : '';

/** Ended and removed with the test. */
export async function startPostgres(): Promise<Postgres> {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'metis-postgres-'));
  onTestFinished(() => fs.rmSync(folder, { recursive: true, force: true }));
  // It refuses to run as root.
  const user = process.getuid?.() === 0 ? ordinaryUser() : null;
  if (user !== null) fs.chownSync(folder, user.uid, user.gid);
  const data = path.join(folder, 'data');
  const made = spawnSync(
    path.join(PROGRAMS!, 'initdb'),
    ['--pgdata', data, '--username', 'postgres', '--auth', 'trust', '--no-sync'],
    { ...user, cwd: folder, encoding: 'utf8' },
  );
  if (made.status !== 0) throw new Error(`initdb: ${made.stderr}`);
  const port = await freePort();
  const url = `postgres://postgres@127.0.0.1:${port}/postgres`;
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
    server = spawn(path.join(PROGRAMS!, 'postgres'), flags, { ...user, cwd: folder, stdio: 'ignore' });
    await until(() => answers(url), START_SECONDS);
  }
  onTestFinished(() => end(MODES.immediate));
  await start();
  return { url, start, stop: (mode) => end(MODES[mode]) };
}

function programs(): string | null {
  const found = (process.env.PATH ?? '').split(path.delimiter);
  const debian = '/usr/lib/postgresql';
  const versions = fs.existsSync(debian) ? fs.readdirSync(debian) : [];
  const folders = [...found, ...versions.map((version) => path.join(debian, version, 'bin'))];
  const has = (folder: string) => ['initdb', 'postgres'].every((name) => fs.existsSync(path.join(folder, name)));
  return folders.find((folder) => folder !== '' && has(folder)) ?? null;
}

function ordinaryUser(): { readonly uid: number; readonly gid: number } {
  for (const name of ['postgres', 'nobody']) {
    const line = new RegExp(`^${name}:[^:]*:(\\d+):(\\d+):`, 'm').exec(fs.readFileSync('/etc/passwd', 'utf8'));
    if (line !== null) return { uid: Number(line[1]), gid: Number(line[2]) };
  }
  throw new Error('PostgreSQL does not run as root, and neither postgres nor nobody is a user here');
}

async function answers(url: string): Promise<boolean> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => {});
  try {
    await client.connect();
    await client.end();
    return true;
  } catch {
    return false;
  }
}
