// TCP connections: their limit, unread bodies, requests that the parser rejects, and shutdown (05 §1.2, §1.7, §1.10).
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Clock } from '#protocol/clock.ts';
import { AppError, type ErrorCode, validationError } from '#protocol/errors.ts';
import { MAX_TARGET_BYTES, toEnvelope, uriTooLong } from './error-handler.ts';

interface Connections {
  /** Whether the connection exceeds the limit. It is served the health routes only. */
  isSpare(socket: Socket): boolean;
  /**
   * Cuts connections that have sent no complete request, such as those that a browser opens in advance. Every other
   * connection ends after its current answer, although a client would keep it for the next request.
   */
  close(): void;
}

/** Connections beyond the limit: for the health routes, and for connections that are being ended. */
const SPARE = 50;

/**
 * Tracks the connections of a server from now on. Beyond `most` connections an idle one is closed: first one that has
 * sent no complete request, then one between two requests.
 */
export function trackConnections(server: Server, most: number): Connections {
  const open = new Set<Socket>();
  const spare = new Set<Socket>();
  const silent = createGroups();
  const waiting = createGroups();
  const underWay = new Map<Socket, number>();
  let closing = false;
  server.maxConnections = most + SPARE;

  function forgetSocket(socket: Socket): void {
    open.delete(socket);
    spare.delete(socket);
    silent.delete(socket);
    waiting.delete(socket);
    underWay.delete(socket);
  }
  function makeRoom(): boolean {
    const idle = silent.oldest() ?? waiting.oldest();
    if (idle === null) return false;
    forgetSocket(idle);
    idle.destroy();
    return true;
  }
  const markActive = ({ socket }: IncomingMessage) => {
    silent.delete(socket);
    waiting.delete(socket);
  };

  server.on('connection', (socket: Socket) => {
    if (open.size >= most && !makeRoom()) spare.add(socket);
    open.add(socket);
    silent.add(socket);
    socket.once('close', () => forgetSocket(socket));
  });
  for (const event of ['request', 'upgrade', 'checkExpectation']) server.on(event, markActive);
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
      // The rest of the body is read within limits.
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

/** Groups sockets by their remote address. */
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
    /** The oldest socket of the address that has the most sockets. */
    oldest(): Socket | null {
      let most: ReadonlySet<Socket> = new Set();
      for (const group of groups.values()) if (group.size > most.size) most = group;
      const [socket] = most;
      return socket ?? null;
    },
    all: () => addresses.keys(),
  };
}

// Bytes that a client sends after its answer are read and discarded within limits: an immediate close could lose the answer (05 §1.2).

/** The limit of bytes that are read after an answer before the connection is cut. */
const MAX_UNREAD_BYTES = 64 * 1024 * 1024;
const BODY_LINGER_MS = 20_000;

export type BodyDiscard = (request: FastifyRequest, reply: FastifyReply) => void;

/** For requests that are answered before their body has been read. Call it before the head of the answer is written. */
export function createBodyDiscard(clock: Clock): BodyDiscard {
  return function discardBody(request, reply) {
    const { raw } = request;
    if (raw.complete || raw.destroyed || request.ws) return;
    const { raw: response } = reply;
    const last = !response.shouldKeepAlive || reply.getHeader('connection') === 'close';
    // With `close` the connection would end behind the answer, and what arrives after that is a reset.
    reply.header('connection', 'keep-alive');
    let left = MAX_UNREAD_BYTES;
    const cutConnection = () => raw.socket.destroy();
    const deadline = clock.after(BODY_LINGER_MS, cutConnection);
    raw.on('data', (chunk: Buffer) => {
      left -= chunk.length;
      if (left < 0) cutConnection();
    });
    raw.once('close', () => {
      deadline.cancel();
      if (!last) return;
      if (response.writableFinished) raw.socket.end();
      else response.once('finish', () => raw.socket.end());
    });
  };
}

// Requests that the HTTP parser or a WebSocket handshake rejects are answered in the error envelope (05 §1.10).

const STATUS_TEXT: Partial<Record<ErrorCode, string>> = {
  headers_too_large: '431 Request Header Fields Too Large',
  uri_too_long: '414 URI Too Long',
};
const ANSWER_LINGER_MS = 2000;

interface ParserError {
  readonly code?: string;
  /** The bytes it stumbled over. */
  readonly rawPacket?: unknown;
}

/** Makes the listener of `clientError` and `wsClientError`. It closes the connection. */
export function createParserErrorAnswer(clock: Clock) {
  /** Connections that have their answer, with what had been read by then. */
  const answered = new WeakMap<Socket, number>();

  return function answerParserError(error: ParserError, socket: Socket): void {
    const before = answered.get(socket);
    // What a client goes on sending is an error each time.
    if (before !== undefined && error.code?.startsWith('HPE_') && socket.bytesRead - before < MAX_UNREAD_BYTES) return;
    if (before !== undefined || error.code === 'ECONNRESET' || !socket.writable || isAnswering(socket)) {
      socket.destroy();
      return;
    }
    answered.set(socket, socket.bytesRead);
    // A client that goes on sending must not keep the connection; closing at once could cost it the answer.
    const deadline = clock.after(ANSWER_LINGER_MS, () => socket.destroy());
    socket.once('close', deadline.cancel);
    const answer = translateParserError(error);
    const body = JSON.stringify(toEnvelope(answer));
    socket.end(
      `HTTP/1.1 ${STATUS_TEXT[answer.code] ?? '400 Bad Request'}\r\nConnection: close\r\n` +
        'Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n' +
        `Content-Type: application/json; charset=utf-8\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
    );
  };
}

/** Whether an answer is under way, into which another one must not be written. Only this field of Node shows it. */
function isAnswering(socket: Socket): boolean {
  const { _httpMessage: response } = socket as { readonly _httpMessage?: ServerResponse | null };
  return response?.headersSent ?? false;
}

function translateParserError({ code, rawPacket }: ParserError): AppError {
  if (code !== 'HPE_HEADER_OVERFLOW') {
    return validationError([{ path: '', message: 'not a valid HTTP request' }]);
  }
  // The parser counts request line and headers together: without an end of line in reach it was the line.
  const isLine =
    Buffer.isBuffer(rawPacket) && /^[A-Z]+ \S+$/.test(rawPacket.toString('latin1', 0, MAX_TARGET_BYTES + 8));
  if (isLine) return uriTooLong();
  return new AppError('headers_too_large', 'the headers are larger than 16 KiB');
}
