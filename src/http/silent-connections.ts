// Connections that never asked anything: Node's close waits for them as for a request that is under way.
import type { IncomingMessage, Server } from 'node:http';
import type { Socket } from 'node:net';

/**
 * Follows the connections of a server from now on.
 * @returns cuts those on which no whole request has come yet, such as a browser opens beforehand
 */
export function trackSilentConnections(server: Server): () => void {
  const silent = new Set<Socket>();
  const asked = ({ socket }: IncomingMessage) => void silent.delete(socket);
  server.on('connection', (socket: Socket) => {
    silent.add(socket);
    socket.once('close', () => silent.delete(socket));
  });
  for (const event of ['request', 'upgrade', 'checkExpectation']) server.on(event, asked);
  return () => {
    for (const socket of silent) socket.destroy();
  };
}
