// What the HTTP parser or a WebSocket handshake refuses before a handler could: answered in the envelope (05 §1.10).
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Clock } from '#protocol/clock.ts';
import { AppError, type ErrorCode, validationError } from '#protocol/errors.ts';
import { envelopeOf, MAX_TARGET_BYTES, uriTooLong } from './error-handler.ts';
import { MOST_UNREAD_BYTES } from './unread-body.ts';

const STATUS_TEXT: Partial<Record<ErrorCode, string>> = {
  headers_too_large: '431 Request Header Fields Too Large',
  uri_too_long: '414 URI Too Long',
};
const LINGER_MS = 2000;

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
    if (before !== undefined && error.code?.startsWith('HPE_') && socket.bytesRead - before < MOST_UNREAD_BYTES) return;
    if (before !== undefined || error.code === 'ECONNRESET' || !socket.writable || isAnswering(socket)) {
      socket.destroy();
      return;
    }
    answered.set(socket, socket.bytesRead);
    // A client that goes on sending must not keep the connection; closing at once could cost it the answer.
    const deadline = clock.after(LINGER_MS, () => socket.destroy());
    socket.once('close', deadline.cancel);
    const answer = parserError(error);
    const body = JSON.stringify(envelopeOf(answer));
    socket.end(
      `HTTP/1.1 ${STATUS_TEXT[answer.code] ?? '400 Bad Request'}\r\nConnection: close\r\n` +
        'Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n' +
        `Content-Type: application/json; charset=utf-8\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
    );
  };
}

/** Whether an answer is under way, into which another one must not be written. Node tells by this field alone. */
function isAnswering(socket: Socket): boolean {
  const { _httpMessage: response } = socket as { readonly _httpMessage?: ServerResponse | null };
  return response?.headersSent ?? false;
}

function parserError({ code, rawPacket }: ParserError): AppError {
  if (code !== 'HPE_HEADER_OVERFLOW') {
    return validationError([{ path: '', message: 'not a valid HTTP request' }]);
  }
  // The parser counts request line and headers together: without an end of line in reach it was the line.
  const isLine =
    Buffer.isBuffer(rawPacket) && /^[A-Z]+ \S+$/.test(rawPacket.toString('latin1', 0, MAX_TARGET_BYTES + 8));
  return isLine ? uriTooLong() : new AppError('headers_too_large', 'the headers are larger than 16 KiB');
}
