// A TCP proxy that a test can cut: what connects through it is connected to the service, refused, or left without an answer.
import { once } from 'node:events';
import net from 'node:net';
import { onTestFinished } from 'vitest';

export interface Proxy {
  readonly port: number;
  /** Ends every connection and refuses new ones. */
  cut(): void;
  /** Takes connections and bytes, and passes nothing on in either direction. */
  hole(): void;
  /** As at the beginning. */
  mend(): void;
}

/** Closed with the test. */
export async function startProxy(target: { readonly host: string; readonly port: number }): Promise<Proxy> {
  let state: 'open' | 'cut' | 'hole' = 'open';
  const pairs = new Set<readonly [net.Socket, net.Socket]>();
  const server = net.createServer((near) => {
    if (state === 'cut') return near.destroy();
    const far = net.connect(target);
    const pair = [near, far] as const;
    pairs.add(pair);
    const end = () => {
      pairs.delete(pair);
      near.destroy();
      far.destroy();
    };
    for (const [from, to] of [pair, [far, near]] as const) {
      from.setNoDelay(true);
      from.on('data', (bytes) => {
        if (state === 'open') to.write(bytes);
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
    mend() {
      // What was swallowed cannot be given back.
      if (state === 'hole') endAll();
      state = 'open';
    },
  };
}
