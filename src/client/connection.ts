// One WebSocket to a session: frames in the order of their arrival, and why it was closed (06 §2, §4, §11).
import type { WebSocket as Socket } from 'ws';
import type { StreamItem } from './events.ts';

export type Frame =
  | StreamItem
  | { readonly type: 'subscribe_ack'; readonly since: string | null }
  | { readonly type: 'subscribe_error'; readonly code: string; readonly message: string };

export interface Closed {
  readonly code: number;
  /** The server's word for it; '' where it gave none. */
  readonly reason: string;
  /** False when the upgrade was refused, or nobody answered. */
  readonly opened: boolean;
}

export interface Connection {
  /** The next frame; null when the socket is closed and everything received was taken. */
  next(): Promise<Frame | null>;
  close(): void;
  /** Once `next` has said null. */
  closed(): Closed;
}

/** Connects and sends `subscribe` as soon as it may. What fails shows as a close. */
export async function connect(url: string, subscribe: object): Promise<Connection> {
  const WebSocket = await socketClass();
  const socket = new WebSocket(url);
  const received: Frame[] = [];
  let opened = false;
  let closed: Closed | null = null;
  let wake = () => {};
  socket.onopen = () => {
    opened = true;
    socket.send(JSON.stringify(subscribe));
  };
  socket.onmessage = (message) => {
    const frame = frameOf(message.data);
    if (frame === null) {
      // What follows a frame that cannot be read would leave a hole behind it.
      socket.onmessage = null;
      socket.close();
    } else received.push(frame);
    wake();
  };
  // What an error means is decided by the close that follows it.
  socket.onerror = () => {};
  socket.onclose = ({ code, reason }) => {
    closed = { code, reason: codeOf(reason), opened };
    wake();
  };
  return {
    async next() {
      while (received.length === 0 && closed === null) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
      return received.shift() ?? null;
    },
    close() {
      if (closed === null) socket.close();
    },
    closed: () => closed ?? { code: 1006, reason: '', opened },
  };
}

/** Null for what no Metis server sends. */
function frameOf(data: unknown): Frame | null {
  try {
    const frame = JSON.parse(String(data)) as Partial<Record<string, unknown>> | null;
    return isSound(frame) ? (frame as unknown as Frame) : null;
  } catch {
    return null;
  }
}

/** As far as the stream itself looks into it. Other types may come with later servers. */
function isSound(frame: Partial<Record<string, unknown>> | null): boolean {
  const cursor = (value: unknown) => value === null || typeof value === 'string';
  switch (frame?.type) {
    case 'event':
      return typeof frame.event === 'object' && frame.event !== null && 'id' in frame.event && cursor(frame.event.id);
    case 'snapshot':
      return cursor(frame.snapshot_at_event_id);
    case 'subscribe_ack':
      return cursor(frame.since ?? null);
    case 'subscribe_error':
      return typeof frame.code === 'string' && typeof frame.message === 'string';
    default:
      return typeof frame?.type === 'string';
  }
}

function codeOf(reason: string): string {
  try {
    const { code } = JSON.parse(reason) as { code?: unknown };
    return typeof code === 'string' ? code : '';
  } catch {
    return '';
  }
}

/** The library's socket in Node, whose own says nothing when an upgrade is refused (22); the platform's in a browser. */
async function socketClass(): Promise<new (url: string) => Socket> {
  if (globalThis.process?.versions?.node) return (await import('ws')).WebSocket;
  return (globalThis as unknown as { WebSocket: new (url: string) => Socket }).WebSocket;
}
