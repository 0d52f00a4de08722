// A TCP proxy that a test can cut: what connects through it is connected to the service, refused, or left without an answer.
import { once } from 'node:events';
import net from 'node:net';
import { onTestFinished } from 'vitest';
import { systemClock } from '#protocol/clock.ts';

export interface Proxy {
  readonly port: number;
  /** Ends every connection and refuses new ones. */
  cut(): void;
  /** Takes connections and bytes, and passes nothing on in either direction. */
  hole(): void;
  /** Bytes of the service take so long, ms. */
  delay(ms: number): void;
  /** As at the beginning. */
  mend(): void;
  /** Connects new connections to another service. */
  retarget(target: Target): void;
}

interface Target {
  readonly host: string;
  readonly port: number;
}

/**
 * Closed with the test.
 * @param listener of one connection's bytes on their way to the service
 */
export async function startProxy(
  first: Target,
  listener: () => (bytes: Buffer) => void = () => () => {},
): Promise<Proxy> {
  let target = first;
  let state: 'open' | 'cut' | 'hole' = 'open';
  let late = 0;
  const pairs = new Set<readonly [net.Socket, net.Socket]>();
  const server = net.createServer((near) => {
    if (state === 'cut') return near.destroy();
    const far = net.connect(target);
    const pair = [near, far] as const;
    near.on('data', listener());
    pairs.add(pair);
    const end = () => {
      pairs.delete(pair);
      near.destroy();
      far.destroy();
    };
    for (const [from, to] of [pair, [far, near]] as const) {
      from.setNoDelay(true);
      from.on('data', (bytes) => {
        if (state !== 'open') return;
        if (late === 0 || from === near) to.write(bytes);
        else systemClock.after(late, () => void (to.destroyed || to.write(bytes)));
      });
      from.on('error', end);
      from.on('close', end);
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const endAll = () => {
    for (const [near, far] of [...pairs]) {
      near.destroy();
      far.destroy();
    }
  };
  onTestFinished(() => {
    endAll();
    server.close();
  });
  return {
    port: (server.address() as net.AddressInfo).port,
    cut() {
      state = 'cut';
      endAll();
    },
    hole() {
      state = 'hole';
    },
    delay(ms) {
      late = ms;
    },
    mend() {
      late = 0;
      // What was swallowed cannot be given back.
      if (state === 'hole') endAll();
      state = 'open';
    },
    retarget(to) {
      target = to;
    },
  };
}

/** An address with the proxy in place of its host and port. */
export function through(address: string, { port }: Pick<Proxy, 'port'>): string {
  const url = new URL(address);
  url.hostname = '127.0.0.1';
  url.port = String(port);
  return url.href;
}

/** Where an address leads. */
export function targetOf(address: string): Target {
  const { hostname, port } = new URL(address);
  return { host: hostname, port: Number(port) };
}
