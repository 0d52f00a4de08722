// Connections that a close would wait for though nothing is under way on them: Node ends those that are idle at its beginning alone.
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/**
 * Follows the connections of a server from now on.
 * @returns called when it closes: cuts those on which no whole request has come yet, such as a browser opens beforehand,
 * and from then on ends each behind its answer, which a client would keep for its next request
 */
export function trackSilentConnections(server: Server): () => void {
  const silent = new Set<Socket>();
  let closing = false;
  const asked = ({ socket }: IncomingMessage) => void silent.delete(socket);
  server.on('connection', (socket: Socket) => {
    silent.add(socket);
    socket.once('close', () => silent.delete(socket));
  });
  for (const event of ['request', 'upgrade', 'checkExpectation']) server.on(event, asked);
  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    response.once('finish', () => {
      if (!closing) return;
      // What still comes of a body is read within limits.
      if (request.complete) request.socket.end();
      else request.once('close', () => request.socket.end());
    });
  });
  return () => {
    closing = true;
    for (const socket of silent) socket.destroy();
  };
}
