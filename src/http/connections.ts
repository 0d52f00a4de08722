// The connections of the server: how many there are, which of them make room for others, and how a close ends them (05 §1.7).
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

export interface Connections {
  /** It came when there was no room: it is served the health routes alone. */
  isSpare(socket: Socket): boolean;
  /**
   * The server closes: cuts connections on which no whole request has come yet, such as a browser opens beforehand, and
   * from then on ends each behind its answer, which a client would keep for its next request.
   */
  close(): void;
}

/** Beyond the limit, for the health routes, and for connections that are just being ended. */
const SPARE = 50;

/**
 * Follows the connections of a server from now on. Where there are more than `most`, one on which nothing is under way
 * makes room: first of those that have sent no whole request, then of those that wait for their next one.
 */
export function trackConnections(server: Server, most: number): Connections {
  const open = new Set<Socket>();
  const spare = new Set<Socket>();
  const silent = createGroups();
  const waiting = createGroups();
  const underWay = new Map<Socket, number>();
  let closing = false;
  server.maxConnections = most + SPARE;

  function forget(socket: Socket): void {
    open.delete(socket);
    spare.delete(socket);
    silent.delete(socket);
    waiting.delete(socket);
    underWay.delete(socket);
  }
  function makeRoom(): boolean {
    const idle = silent.oldest() ?? waiting.oldest();
    if (idle === null) return false;
    forget(idle);
    idle.destroy();
    return true;
  }
  const asked = ({ socket }: IncomingMessage) => {
    silent.delete(socket);
    waiting.delete(socket);
  };

  server.on('connection', (socket: Socket) => {
    if (open.size >= most && !makeRoom()) spare.add(socket);
    open.add(socket);
    silent.add(socket);
    socket.once('close', () => forget(socket));
  });
  for (const event of ['request', 'upgrade', 'checkExpectation']) server.on(event, asked);
  server.on('request', ({ socket }: IncomingMessage, response: ServerResponse) => {
    underWay.set(socket, (underWay.get(socket) ?? 0) + 1);
    response.once('close', () => {
      const left = (underWay.get(socket) ?? 0) - 1;
      underWay.set(socket, left);
      if (left <= 0 && open.has(socket)) waiting.add(socket);
    });
  });
  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    response.once('finish', () => {
      if (!closing) return;
      // What still comes of a body is read within limits.
      if (request.complete) request.socket.end();
      else request.once('close', () => request.socket.end());
    });
  });
  return {
    isSpare: (socket) => spare.has(socket),
    close() {
      closing = true;
      for (const socket of silent.all()) socket.destroy();
    },
  };
}

/** Sockets by the address at their other end. */
function createGroups() {
  const groups = new Map<string, Set<Socket>>();
  const addresses = new Map<Socket, string>();
  return {
    add(socket: Socket): void {
      const address = socket.remoteAddress ?? '';
      addresses.set(socket, address);
      const group = groups.get(address) ?? new Set();
      groups.set(address, group.add(socket));
    },
    delete(socket: Socket): void {
      const address = addresses.get(socket);
      if (address === undefined) return;
      addresses.delete(socket);
      const group = groups.get(address);
      group?.delete(socket);
      if (group?.size === 0) groups.delete(address);
    },
    /** The oldest of the address that has the most. */
    oldest(): Socket | null {
      let most: ReadonlySet<Socket> = new Set();
      for (const group of groups.values()) if (group.size > most.size) most = group;
      const [socket] = most;
      return socket ?? null;
    },
    all: () => addresses.keys(),
  };
}
