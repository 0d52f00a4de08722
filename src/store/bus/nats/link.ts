// The connection to NATS, opened in the background and reopened without limit. Messages sent while it is down are lost (16 §10).

import type { Msg, NatsConnection, NodeConnectionOptions, Subscription, TlsOptions } from '@nats-io/transport-node';
import type { Logger } from '#core/ports/logger.ts';
import type { Clock } from '#protocol/clock.ts';
import { readErrorMessage } from '#protocol/text/error-message.ts';

export type Hear = (data: Uint8Array, subject: string) => void;

export interface Link {
  up(): boolean;
  /** Called when it comes up or goes down. */
  onChange(listener: (up: boolean) => void): void;
  /** Lost while the connection is down. */
  publish(subject: string, data: Uint8Array): void;
  /** The subscription survives reconnects. Returns the function that ends it. */
  listen(subject: string, hear: Hear): () => void;
  /** Resolves when the server has received everything that was sent, or after a short time limit. */
  flush(): Promise<void>;
  /** Milliseconds of a question to the server and its answer; null while it is away. */
  measureRoundTrip(): Promise<number | null>;
  close(): Promise<void>;
}

export interface LinkOptions {
  /** `nats://` or `tls://`, with user and password where the server requires them. */
  readonly url: string;
  readonly name: string;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Interval of pings; a connection without an answer for twice this time is closed. */
const PING_MS = 2000;
const AGAIN_MS = 500;
const FLUSH_MS = 1000;

interface Listener {
  readonly subject: string;
  readonly hear: Hear;
  subscription: Subscription | null;
}

async function connectTo(url: string, more: NodeConnectionOptions): Promise<NatsConnection> {
  const { connect } = await import('@nats-io/transport-node');
  const { protocol, host, hostname, username, password } = new URL(url);
  // Without `host` the library checks the certificate of an IP address as one of `localhost`.
  const tls: TlsOptions & { host: string } = { host: hostname.replace(/^\[|\]$/g, '') };
  return connect({
    servers: host,
    ...(username !== '' && { user: decodeURIComponent(username), pass: decodeURIComponent(password) }),
    ...(protocol === 'tls:' && { tls }),
    ...more,
  });
}

/** Null where NATS accepts this server, else the reason. */
export async function natsFault(url: string): Promise<string | null> {
  try {
    await (await connectTo(url, { reconnect: false, timeout: PING_MS })).close();
    return null;
  } catch (error) {
    return describeLinkFault(error);
  }
}

function describeLinkFault(error: unknown): string {
  return readErrorMessage(error);
}

export function openLink({ url, name, clock, log }: LinkOptions): Link {
  const listeners = new Set<Listener>();
  const changes: ((up: boolean) => void)[] = [];
  let connection: NatsConnection | null = null;
  let up = false;
  let reported = false;
  let closed = false;

  function setConnected(now: boolean): void {
    if (now === up) return;
    up = now;
    for (const listener of changes) listener(now);
  }
  function subscribe(listener: Listener): void {
    const hear = (error: Error | null, message: Msg) => {
      if (error === null) attemptStep(() => listener.hear(message.data, message.subject));
    };
    attemptStep(() => {
      listener.subscription = connection?.subscribe(listener.subject, { callback: hear }) ?? null;
    });
  }
  /** An exception here would end the library's own read loop. */
  function attemptStep(step: () => void): void {
    try {
      step();
    } catch (err) {
      log.warn({ err }, 'NATS');
    }
  }

  /** Runs one connection to its end. Only a refusal or `close` ends it. */
  async function connectOnce(): Promise<void> {
    const nats = await connectTo(url, {
      name,
      noEcho: true,
      maxReconnectAttempts: -1,
      reconnectTimeWait: AGAIN_MS,
      pingInterval: PING_MS,
      maxPingOut: 2,
    });
    if (closed) return nats.close();
    connection = nats;
    for (const listener of listeners) subscribe(listener);
    reported = false;
    log.info({}, 'connected to NATS');
    setConnected(true);
    for await (const { type } of nats.status()) {
      if (type === 'disconnect') {
        log.warn({}, 'NATS is out of reach: events of trees on other nodes come from the database');
        setConnected(false);
      } else if (type === 'reconnect') {
        log.info({}, 'connected to NATS again');
        setConnected(true);
      }
    }
  }

  async function stay(): Promise<void> {
    while (!closed) {
      try {
        await connectOnce();
      } catch (error) {
        if (!reported)
          log.warn(
            { reason: describeLinkFault(error) },
            'NATS does not answer: events of trees on other nodes come from the database',
          );
        reported = true;
      }
      connection = null;
      setConnected(false);
      if (!closed) await new Promise<void>((resolve) => clock.after(AGAIN_MS, resolve));
    }
  }
  // Ends with `close`, and catches whatever happens.
  void stay();

  return {
    up: () => up,
    onChange: (listener) => void changes.push(listener),
    publish(subject, data) {
      if (up) attemptStep(() => connection?.publish(subject, data));
    },
    listen(subject, hear) {
      const listener: Listener = { subject, hear, subscription: null };
      listeners.add(listener);
      subscribe(listener);
      return () => {
        listeners.delete(listener);
        attemptStep(() => listener.subscription?.unsubscribe());
      };
    },
    async flush() {
      if (!up) return;
      const late = new Promise<void>((resolve) => clock.after(FLUSH_MS, resolve));
      await Promise.race([connection?.flush().catch(() => {}), late]);
    },
    async measureRoundTrip() {
      if (!up || connection === null) return null;
      return connection.rtt().catch(() => null);
    },
    async close() {
      closed = true;
      await connection?.close();
    },
  };
}
