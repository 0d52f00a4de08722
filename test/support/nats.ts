// A NATS server that a test may stop and start: a program of its own where there is one, else a proxy before the shared one.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import net from 'node:net';
import { onTestFinished } from 'vitest';
import type { Certificate } from './certificate.ts';
import { freePort } from './free-port.ts';
import { startProxy } from './proxy.ts';
import { until } from './until.ts';

export interface Nats {
  readonly url: string;
  /** Nobody reaches it from now on. */
  stop(): Promise<void>;
  start(): Promise<void>;
}

/** For the title of what is skipped: a program of its own. */
export const noNats = spawnSync('nats-server', ['--version']).error === undefined ? '' : 'no nats-server';

/**
 * @param service where the shared one is
 * Ended with the test.
 */
export async function startNats(service: string): Promise<Nats> {
  return noNats === '' ? startNatsServer() : behindProxy(service);
}

async function behindProxy(service: string): Promise<Nats> {
  const { hostname, port } = new URL(service);
  const proxy = await startProxy({ host: hostname, port: Number(port) });
  return {
    url: `nats://127.0.0.1:${proxy.port}`,
    stop: async () => proxy.cut(),
    start: async () => proxy.mend(),
  };
}

/**
 * A server of its own, ended with the test.
 * @param tls it takes connections over TLS alone
 */
export async function startNatsServer(tls?: Certificate): Promise<Nats> {
  const secured = tls === undefined ? [] : ['--tls', '--tlscert', tls.certificate, '--tlskey', tls.key];
  const port = await freePort();
  let end = async () => {};
  const start = async () => {
    const server = spawn('nats-server', ['-a', '127.0.0.1', '-p', String(port), ...secured], { stdio: 'ignore' });
    const ended = once(server, 'exit');
    end = async () => {
      server.kill('SIGKILL');
      await ended;
    };
    await until(() => answers(port));
  };
  await start();
  onTestFinished(() => end());
  return { url: `${tls === undefined ? 'nats' : 'tls'}://127.0.0.1:${port}`, stop: () => end(), start };
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = net.connect(port, '127.0.0.1');
    socket.once('data', () => resolve(true));
    for (const bad of ['error', 'close']) socket.once(bad, () => resolve(false));
    socket.once('data', () => socket.destroy());
  });
}
