// One SSE client: the same frames as a socket receives, as server-sent events (06 §13).
import type { ServerResponse } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { AppError } from '#protocol/errors.ts';
import { CLOSE_WITHIN_MS, type CloseReason, type Frame, type Sink, waitUntilFlushed } from './frames.ts';
import type { StreamHub } from './hub.ts';
import { openSessionStream, type SessionStream } from './session-stream.ts';
import type { Subscription } from './subscription.ts';

const RETRY_MS = 2000;
const HEADERS = {
  'content-type': 'text/event-stream',
  'cache-control': 'no-store',
  'x-accel-buffering': 'no',
} as const;

export function tooManyConnections({ maxConnections }: StreamHub): AppError {
  return new AppError('too_many_connections', `${maxConnections} streams are open, which is the limit`);
}

/**
 * Answers with a stream, or with 204 when the session has ended and nothing is left to send.
 * Throws `not_found`, `cursor_expired` or `too_many_connections` before the stream starts.
 */
export async function serveEventStream(
  hub: StreamHub,
  request: FastifyRequest,
  reply: FastifyReply,
  target: { readonly sessionId: string; readonly subscription: Subscription },
): Promise<FastifyReply> {
  const response = reply.raw;
  const sink = responseSink(response, hub);
  let stream: SessionStream | null = null;
  let disconnect = () => {};
  let unguard = () => {};
  // Before the first wait: who leaves during one must not keep a place. It also comes after an answer in one piece.
  response.on('close', () => {
    stream?.leave();
    disconnect();
    unguard();
  });
  const { person, tokenHash: digest } = request;
  stream = await openSessionStream(hub, target.sessionId, { ...target.subscription, person });
  if (response.destroyed) {
    stream.leave();
    return reply.hijack();
  }
  if (hub.isFull()) throw tooManyConnections(hub);
  // Counted from here, since the next step waits.
  disconnect = hub.connect({
    sendHeartbeat: () => sink.sendHeartbeat(),
    shutdown: () => (response.headersSent ? sink.close('server_shutdown') : response.destroy()),
  });
  const end = (reason: CloseReason) => (response.headersSent ? sink.close(reason) : response.destroy());
  unguard = hub.guard({ person, digest, sessionId: target.sessionId, end });
  if (await stream.isIdle()) return reply.status(204).send();
  if (response.destroyed) return reply.hijack();
  reply.hijack();
  for (const [name, value] of Object.entries(reply.getHeaders()))
    if (value !== undefined) response.setHeader(name, value);
  response.writeHead(200, HEADERS);
  response.write(`retry: ${RETRY_MS}\n\n`);
  stream.run(sink).catch((error: unknown) => {
    hub.log.error({ request_id: request.id, session_id: target.sessionId, error: String(error) }, 'stream failed');
    sink.close('internal_error');
  });
  return reply;
}

interface ResponseSink extends Sink {
  /** Keeps the connection from looking idle. */
  sendHeartbeat(): void;
}

function responseSink(response: ServerResponse, { clock }: StreamHub): ResponseSink {
  const open = () => response.headersSent && !response.writableEnded;
  return {
    send(frame) {
      if (open()) response.write(formatMessage(frame));
    },
    sendHeartbeat() {
      if (open()) response.write(': ping\n\n');
    },
    backlog: () => response.writableLength,
    flush: () => waitUntilFlushed(response),
    close(reason) {
      if (!open()) return;
      // Any other end is one after which the client's automatic reconnect is right.
      if (reason === 'session_ended' || reason === 'session_purged') {
        response.write(`event: close\ndata: ${JSON.stringify({ code: reason })}\n\n`);
      }
      response.end();
      const deadline = clock.after(CLOSE_WITHIN_MS, () => response.destroy());
      response.once('close', deadline.cancel);
    },
    terminate: () => void response.destroy(),
  };
}

function formatMessage({ type, id, text }: Frame): string {
  const cursor = id === null ? '' : `id: ${id}\n`;
  return `event: ${type}\n${cursor}data: ${text}\n\n`;
}
