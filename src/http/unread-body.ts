// What a client still sends after its answer: read and thrown away within limits, since closing would cost it the answer (05 §1.2).
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Clock } from '#protocol/clock.ts';

/** Read after an answer before the connection is cut. */
export const MOST_UNREAD_BYTES = 64 * 1024 * 1024;
const LINGER_MS = 20_000;

export type BodyDiscard = (request: FastifyRequest, reply: FastifyReply) => void;

/** For requests that are answered before their body has been read: called before the head of the answer is written. */
export function createBodyDiscard(clock: Clock): BodyDiscard {
  return function discardBody(request, reply) {
    const { raw } = request;
    if (raw.complete || raw.destroyed || request.ws) return;
    const { raw: response } = reply;
    const last = !response.shouldKeepAlive || reply.getHeader('connection') === 'close';
    // With `close` the connection would end behind the answer, and what arrives after that is a reset.
    reply.header('connection', 'keep-alive');
    let left = MOST_UNREAD_BYTES;
    const cut = () => raw.socket.destroy();
    const deadline = clock.after(LINGER_MS, cut);
    raw.on('data', (chunk: Buffer) => {
      left -= chunk.length;
      if (left < 0) cut();
    });
    raw.once('close', () => {
      deadline.cancel();
      if (!last) return;
      if (response.writableFinished) raw.socket.end();
      else response.once('finish', () => raw.socket.end());
    });
  };
}
