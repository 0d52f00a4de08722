// One WebSocket client: one subscribe frame in, frames out, pings, close codes (06 §2, §10, §11).
import type { Duplex } from 'node:stream';
import type { WebSocket } from 'ws';
import type { Caller } from '#core/engine/manage-people.ts';
import { readJson } from '#core/policy/parsing/json.ts';
import { OUTSIDE } from '#core/policy/parsing/text-limits.ts';
import { runAtEndOfTick } from '#protocol/async/end-of-tick.ts';
import { AppError, validationError } from '#protocol/errors.ts';
import {
  CLOSE_CODES,
  CLOSE_WITHIN_MS,
  type CloseReason,
  createBatchEncoder,
  errorFrame,
  type Frame,
  type Sink,
  waitUntilFlushed,
} from './frames.ts';
import type { StreamHub } from './hub.ts';
import { openSessionStream, type SessionStream } from './session-stream.ts';
import { parseFrameSubscription, parseQuerySubscription, type Subscription } from './subscription.ts';

const SUBSCRIBE_WITHIN_MS = 10_000;
const MISSED_PONGS = 2;
const MAX_REASON_BYTES = 123;

export interface SocketRequest {
  readonly sessionId: string;
  /** Null when the token is still to come by frame. */
  readonly caller: Caller | null;
  /** Records a token that was refused. */
  readonly noteRefusal: () => void;
  /** The query of the URL. */
  readonly query: Readonly<Record<string, unknown>>;
  /** The connection under the WebSocket. */
  readonly connection: Duplex;
}

/** Serves an upgraded socket until it closes. */
export function serveSocket(hub: StreamHub, socket: WebSocket, request: SocketRequest): void {
  let stream: SessionStream | null = null;
  let subscribed = false;
  let closed = false;
  let unanswered = 0;
  let { caller } = request;
  let unguard = () => {};
  const sink = socketSink(socket, request.connection, hub);

  const disconnect = hub.connect({
    sendHeartbeat() {
      if (unanswered >= MISSED_PONGS) return socket.terminate();
      unanswered += 1;
      if (socket.readyState === socket.OPEN) socket.ping();
    },
    shutdown: () => sink.close('server_shutdown'),
  });
  const deadline = hub.clock.after(SUBSCRIBE_WITHIN_MS, () => sink.close('subscribe_timeout'));

  socket.on('pong', () => {
    unanswered = 0;
  });
  socket.on('close', () => {
    closed = true;
    deadline.cancel();
    stream?.leave();
    disconnect();
    unguard();
  });
  socket.on('message', (data, isBinary) => {
    // Frames after the close are ignored.
    if (socket.readyState !== socket.OPEN) return;
    if (isBinary) return sink.close('binary_not_supported');
    const frame = parseFrame(String(data));
    if (frame === null) return sink.close('invalid_json');
    if (frame.type !== 'subscribe' && subscribed) return;
    attempt(async () => {
      if (subscribed) throw validationError([{ path: 'type', message: 'this connection is subscribed already' }]);
      const { token, ...wanted } = parseFrameSubscription(frame);
      caller ??= token === null ? null : await hub.people.recognize(token);
      if (caller === null) {
        if (token !== null) request.noteRefusal();
        throw refusedTokenError();
      }
      return wanted;
    });
  });
  if (caller !== null && Object.keys(request.query).length > 0)
    attempt(async () => parseQuerySubscription(request.query));

  /** Subscribes, or sends the error and closes. */
  function attempt(wanted: () => Promise<Subscription>): void {
    start(wanted).catch((error: unknown) => {
      if (closed) return;
      if (!(error instanceof AppError)) {
        hub.log.error({ session_id: request.sessionId, error: String(error) }, 'stream failed');
        return sink.close('internal_error');
      }
      sink.send(errorFrame(error));
      stream?.leave();
      sink.close(error.code in CLOSE_CODES ? (error.code as CloseReason) : 'validation_error');
    });
  }

  async function start(wanted: () => Promise<Subscription>): Promise<void> {
    const subscription = await wanted();
    if (closed || caller === null) return;
    if (subscribed) throw validationError([{ path: 'type', message: 'this connection is subscribed already' }]);
    const { person, digest } = caller;
    // The token of the upgrade may have ended since.
    if (!hub.people.isAccepted(digest)) throw refusedTokenError();
    subscribed = true;
    deadline.cancel();
    unguard = hub.guard({ person, digest, sessionId: request.sessionId, end: sink.close });
    stream = await openSessionStream(hub, request.sessionId, { ...subscription, person });
    if (closed) return stream.leave();
    await stream.run(sink);
  }
}

function refusedTokenError(): AppError {
  return new AppError('unauthorized', 'subscribe with a valid token');
}

/** Null for anything but a JSON object with a string `type`. */
function parseFrame(text: string): { readonly type: string } | null {
  const json = readJson(text, OUTSIDE);
  const value = json.ok ? json.value : null;
  const isFrame = typeof value === 'object' && value !== null && 'type' in value && typeof value.type === 'string';
  if (isFrame) return value as { type: string };
  return null;
}

const encode = createBatchEncoder();

/**
 * Frames of one tick leave in one write (one tick for all sockets: 6 % of a piece that 200 read), whose bytes all sockets with the same frames share. They go past the
 * library's own sender, which would encode and write each of them for each client; nothing is compressed or masked
 * on this side, so that both may write to the same connection.
 */
function socketSink(socket: WebSocket, connection: Duplex, { clock }: StreamHub): Sink {
  let waiting: Frame[] = [];
  let waitingLength = 0;
  let closing = false;

  function flushWaiting(): void {
    if (waiting.length === 0) return;
    const frames = waiting;
    waiting = [];
    waitingLength = 0;
    if (socket.readyState === socket.OPEN && connection.writable) connection.write(encode(frames));
  }
  return {
    send(frame) {
      if (waiting.length === 0) runAtEndOfTick(flushWaiting);
      waiting.push(frame);
      waitingLength += frame.text.length;
    },
    backlog: () => socket.bufferedAmount + waitingLength,
    flush() {
      flushWaiting();
      return waitUntilFlushed(connection);
    },
    close(reason) {
      if (closing) return;
      closing = true;
      flushWaiting();
      socket.close(CLOSE_CODES[reason], reasonText(reason));
      clock.after(CLOSE_WITHIN_MS, () => socket.terminate());
    },
    terminate: () => socket.terminate(),
  };
}

const REASON_MESSAGES: Partial<Record<CloseReason, string>> = {
  subscribe_timeout: 'no subscribe frame within 10 s',
  invalid_json: 'not a JSON object with a string "type"',
  server_shutdown: 'reconnect with since',
  internal_error: 'reconnect with since',
};

function reasonText(code: CloseReason): string {
  const message = REASON_MESSAGES[code];
  return JSON.stringify(message === undefined ? { code } : { code, message }).slice(0, MAX_REASON_BYTES);
}
