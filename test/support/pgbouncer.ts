// A pgbouncer of a test's own before the PostgreSQL of the tests.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { onTestFinished } from 'vitest';
import { freePort } from './free-port.ts';
import { ordinaryUser } from './ordinary-user.ts';
import { until } from './until.ts';

const START_SECONDS = 30;

const PROGRAM = [...(process.env.PATH ?? '').split(path.delimiter), '/usr/sbin']
  .map((folder) => path.join(folder, 'pgbouncer'))
  .find((file) => path.isAbsolute(file) && fs.existsSync(file));

/** For the title of what is skipped. */
export const noPgbouncer = PROGRAM === undefined ? 'no pgbouncer' : '';

export interface PgbouncerOptions {
  readonly mode: 'session' | 'transaction' | 'statement';
  /** Further lines of its section `[pgbouncer]`. */
  readonly lines?: readonly string[];
}

/** Resolves with the address of the database of `url` through the pooler, which ends with the test. */
export async function startPgbouncer(url: string, { mode, lines = [] }: PgbouncerOptions): Promise<string> {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'metis-pgbouncer-'));
  onTestFinished(() => fs.rmSync(folder, { recursive: true, force: true }));
  const port = await freePort();
  const server = new URL(url);
  const user = decodeURIComponent(server.username);
  const target = [`host=${server.hostname}`, `port=${server.port || 5432}`, `user=${user}`];
  if (server.password !== '') target.push(`password=${decodeURIComponent(server.password)}`);
  const file = path.join(folder, 'pgbouncer.ini');
  const users = path.join(folder, 'users.txt');
  fs.writeFileSync(users, `"${user}" ""\n`);
  fs.writeFileSync(
    file,
    [
      '[databases]',
      `${server.pathname.slice(1)} = ${target.join(' ')}`,
      '[pgbouncer]',
      'listen_addr = 127.0.0.1',
      `listen_port = ${port}`,
      'unix_socket_dir =',
      'auth_type = trust',
      `auth_file = ${users}`,
      `pool_mode = ${mode}`,
      ...lines,
      '',
    ].join('\n'),
  );
  // It refuses to run as root.
  const as = process.getuid?.() === 0 ? ordinaryUser() : {};
  fs.chmodSync(folder, 0o755);
  const pooler = spawn(PROGRAM!, [file], { ...as, cwd: folder, stdio: 'ignore' });
  onTestFinished(async () => {
    if (pooler.exitCode !== null) return;
    const ended = once(pooler, 'exit');
    pooler.kill('SIGKILL');
    await ended;
  });
  await until(() => isListening(port), START_SECONDS);
  const address = new URL(url);
  address.host = `127.0.0.1:${port}`;
  address.password = '';
  return address.href;
}

async function isListening(port: number): Promise<boolean> {
  const socket = net.connect({ host: '127.0.0.1', port });
  const answer = await new Promise<boolean>((resolve) => {
    socket.once('connect', () => resolve(true));
    socket.once('error', () => resolve(false));
  });
  socket.destroy();
  return answer;
}
