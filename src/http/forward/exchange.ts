// One attempt to forward a request to another node: streams the body there and the answer back (16 §5.2).

import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Dispatcher } from 'undici';
import type { ForwardOutcome, Meter } from '#core/ports/meter.ts';
import type { Clock, Timer } from '#protocol/clock.ts';
import { AppError } from '#protocol/errors.ts';
import { toOriginForm } from '../access.ts';
import type { BodyDiscard } from '../connections.ts';
import { buildReturnedHeaders, buildSentHeaders, NOT_TAKEN } from './headers.ts';

// A body is forwarded as it arrives. It is kept until a node accepts the request, because it may have to be sent again (16 §5.2).

export interface HeldBody {
  /** Null = the length that the request's headers state. */
  readonly bytes: number | null;
  /** Yields the body from its first byte, also after an earlier reader. One reader at a time. */
  readFromStart(): AsyncGenerator<Buffer>;
  /** A node accepted the request: the kept bytes are dropped, and the rest is not kept. */
  markAccepted(): void;
  /** Reads the rest of the body and discards it. */
  discard(): void;
}

/**
 * Reads from the socket only as fast as the reader consumes.
 * @param most bytes; beyond them a read throws `payload_too_large`
 */
export function holdBody(raw: IncomingMessage, most: number): HeldBody {
  const kept: (Buffer | null)[] = [];
  let bytes = 0;
  /** The number of pieces that the reader has taken. A new reader ends the earlier one. */
  let reached = 0;
  let readers = 0;
  let fault: Error | null = null;
  let mode: 'kept' | 'taken' | 'discarded' = 'kept';
  const waiting = new Set<() => void>();
  const wake = () => {
    for (const go of [...waiting]) go();
    waiting.clear();
  };
  const fail = (error: Error) => {
    fault ??= error;
    wake();
  };

  raw.on('data', (piece: Buffer) => {
    if (mode === 'discarded') return;
    bytes += piece.byteLength;
    if (bytes > most)
      fail(new AppError('payload_too_large', `the body is larger than the ${most} bytes this path accepts`));
    kept.push(piece);
    raw.pause();
    wake();
  });
  raw.once('end', wake);
  raw.once('error', fail);
  raw.once('close', () => {
    if (!raw.complete) fail(new Error('the client closed the connection before its body was complete'));
  });
  raw.pause();

  return {
    bytes: null,
    async *readFromStart() {
      readers += 1;
      const mine = readers;
      for (reached = 0; mine === readers; ) {
        if (fault !== null) throw fault;
        const piece = kept[reached];
        if (piece !== undefined) {
          if (mode === 'taken') kept[reached] = null;
          reached += 1;
          if (piece !== null) yield piece;
        } else if (raw.readableEnded) return;
        else {
          const more = new Promise<void>((resolve) => void waiting.add(resolve));
          raw.resume();
          await more;
        }
      }
    },
    markAccepted() {
      mode = 'taken';
      kept.fill(null, 0, reached);
    },
    discard() {
      mode = 'discarded';
      kept.length = 0;
      fail(new Error('the body is not wanted any more'));
      raw.resume();
    },
  };
}

/** A body that is already in memory. */
export function toHeldBody(bytes: Buffer): HeldBody {
  return {
    bytes: bytes.byteLength,
    async *readFromStart() {
      yield bytes;
    },
    markAccepted: () => {},
    discard: () => {},
  };
}

/** `not_taken` = the other node started nothing; `broken` = the request was sent, and its outcome is unknown. */
type AttemptResult = 'answered' | 'not_taken' | 'broken';

interface Attempt {
  readonly url: string;
  readonly epoch: number;
  readonly body: HeldBody;
  /** Sending the request twice is safe. */
  readonly repeatable: boolean;
  /** The other node counts as gone after this long without a byte. */
  readonly silenceMs: number;
  /** A node that sends no final answer for this long counts as gone, even if it sends interim ones. */
  readonly answerMs: number;
  /** Aborts when the caller disconnects or this node shuts down. */
  readonly signal: AbortSignal;
}

interface Exchange {
  /** Resolves when the answer is complete. Throws the body's error, or the signal's reason if no answer has begun. */
  send(request: FastifyRequest, reply: FastifyReply, how: Attempt): Promise<AttemptResult>;
  /**
   * Sends a request of this node's own.
   * @param url with its path
   * @returns the status
   */
  ask(url: string, method: Dispatcher.HttpMethod, headers: Readonly<Record<string, string>>): Promise<number>;
  close(): Promise<void>;
}

const CONNECT_MS = 2000;
const HEADER_BYTES = 16 * 1024;
/** Behind the head; longer than an answer of the gateway may be silent (19 §2.7). */
const BODY_SILENCE_MS = 330_000;

/** Connects directly and ignores proxy variables of the environment: a forwarded request may contain a caller's keys. */
export function createExchange(clock: Clock, discard: BodyDiscard, meter: Meter): Exchange {
  let agent: Promise<Dispatcher> | null = null;
  const open = async () => {
    const { Agent } = await import('undici');
    return new Agent({
      headersTimeout: 0,
      bodyTimeout: BODY_SILENCE_MS,
      connect: { timeout: CONNECT_MS },
      maxHeaderSize: HEADER_BYTES,
    });
  };
  return {
    async send(request, reply, how) {
      agent ??= open();
      const from = clock.monotonic();
      let seconds: number | null = null;
      const onAnswer = () => {
        seconds = (clock.monotonic() - from) / 1000;
      };
      let outcome: ForwardOutcome = 'failed';
      try {
        const result = await dispatchRequest(await agent, request, reply, { ...how, clock, discard, onAnswer });
        outcome = result;
        return result;
      } finally {
        meter.addForward(outcome, seconds);
      }
    },
    async ask(url, method, headers) {
      agent ??= open();
      const { origin, pathname: path } = new URL(url);
      const { statusCode, body } = await (await agent).request({ origin, path, method, headers });
      await body.dump();
      return statusCode;
    },
    async close() {
      await (await agent)?.destroy();
    },
  };
}

type Work = Attempt & {
  readonly clock: Clock;
  readonly discard: BodyDiscard;
  /** Called when the answer that goes to the caller begins. */
  readonly onAnswer: () => void;
};

function dispatchRequest(
  dispatcher: Dispatcher,
  request: FastifyRequest,
  reply: FastifyReply,
  work: Work,
): Promise<AttemptResult> {
  const { body, clock, signal } = work;
  const { raw } = reply;
  return new Promise((resolve, reject) => {
    let controller: Dispatcher.DispatchController | null = null;
    /** The answer that goes to the caller has begun. */
    let begun = false;
    let refused = false;
    let watch: Timer | null = null;
    let whole: Timer | null = null;
    let over = false;
    const forget = () => {
      watch?.cancel();
      whole?.cancel();
    };
    const finish = (end: () => void) => {
      if (over) return;
      over = true;
      forget();
      signal.removeEventListener('abort', onCallerGone);
      raw.off('drain', resumeAnswer);
      end();
    };
    const abortRequest = (reason: Error) => controller?.abort(reason);
    const onCallerGone = () => {
      if (begun) raw.destroy();
      finish(() => (begun ? resolve('answered') : reject(signal.reason)));
      abortRequest(new Error('the caller left'));
    };
    const resumeAnswer = () => controller?.resume();
    const onSilence = () => {
      finish(() => resolve('broken'));
      abortRequest(new Error('no answer from the other node'));
    };
    const restartSilenceTimer = () => {
      watch?.cancel();
      watch = clock.after(work.silenceMs, onSilence);
    };
    if (signal.aborted) return reject(signal.reason);
    signal.addEventListener('abort', onCallerGone, { once: true });
    raw.on('drain', resumeAnswer);

    const sent = hasBody(request) ? Readable.from(body.readFromStart(), { objectMode: false }) : null;
    dispatcher.dispatch(
      {
        origin: work.url,
        // Of a target in absolute form the path alone: its authority is this node's.
        path: toOriginForm(request.originalUrl),
        method: request.method as Dispatcher.HttpMethod,
        headers: buildSentHeaders(request, work.epoch, body.bytes),
        body: sent,
      },
      {
        onRequestStart(started) {
          controller = started;
          if (over) return started.abort(new Error('the caller left'));
          whole = clock.after(work.answerMs, onSilence);
          restartSilenceTimer();
        },
        onResponseStart(_, status, head) {
          if (over) return;
          restartSilenceTimer();
          if (status < 200) return;
          refused = head[NOT_TAKEN] !== undefined && (work.repeatable || head[NOT_TAKEN] === '1');
          if (refused) return;
          forget();
          begun = true;
          work.onAnswer();
          beginAnswer(request, reply, { status, head }, work);
        },
        onResponseData(started, piece) {
          if (over || refused) return;
          if (!raw.write(piece)) started.pause();
        },
        onResponseEnd() {
          finish(() => {
            if (begun) raw.end();
            resolve(refused ? 'not_taken' : 'answered');
          });
        },
        onResponseError(_, error) {
          finish(() => {
            if (begun) raw.destroy();
            if (begun) resolve('answered');
            else if (refused || controller === null) resolve('not_taken');
            else if (error === sent?.errored) reject(error);
            else resolve('broken');
          });
        },
      },
    );
  });
}

interface Head {
  readonly status: number;
  readonly head: Parameters<typeof buildReturnedHeaders>[1];
}

function beginAnswer(
  request: FastifyRequest,
  reply: FastifyReply,
  { status, head }: Head,
  { body, discard }: Work,
): void {
  if (request.raw.complete) body.markAccepted();
  // Read and thrown away, as where it is answered here.
  else body.discard();
  discard(request, reply);
  const headers = buildReturnedHeaders(reply, head);
  reply.hijack();
  reply.raw.writeHead(status, headers);
  reply.raw.flushHeaders();
}

function hasBody({ raw: { headers } }: FastifyRequest): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
}
