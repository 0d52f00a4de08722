// One try to have a request answered by another node: streamed there, its answer streamed back (16 §5.2).
import { Readable } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Dispatcher } from 'undici';
import type { Clock, Timer } from '#protocol/clock.ts';
import { pathOf } from '../origin.ts';
import type { BodyDiscard } from '../unread-body.ts';
import type { HeldBody } from './body.ts';
import { NOT_TAKEN, returnedHeaders, sentHeaders } from './headers.ts';

/** `not_taken` = nothing was begun there; `broken` = it was sent, and nobody knows what came of it. */
export type Tried = 'answered' | 'not_taken' | 'broken';

export interface Try {
  readonly url: string;
  readonly epoch: number;
  readonly body: HeldBody;
  /** May be done twice. */
  readonly repeatable: boolean;
  /** Without a word from there for so long the other side counts as gone. */
  readonly silenceMs: number;
  /** So does one that does not answer for so long, whatever it says meanwhile. */
  readonly answerMs: number;
  /** The caller has left, or this node goes down. */
  readonly signal: AbortSignal;
}

export interface Exchange {
  /** Resolves when the answer is over. Throws what is wrong with the body, and the signal's reason before an answer. */
  send(request: FastifyRequest, reply: FastifyReply, how: Try): Promise<Tried>;
  close(): Promise<void>;
}

const CONNECT_MS = 2000;
const HEADER_BYTES = 16 * 1024;
/** Behind the head; longer than an answer of the gateway may be silent (19 §2.7). */
const BODY_SILENCE_MS = 330_000;

/** Straight to the other node, past any proxy of the environment: what is forwarded may hold a caller's keys. */
export function createExchange(clock: Clock, discard: BodyDiscard): Exchange {
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
      return exchanged(await agent, request, reply, { ...how, clock, discard });
    },
    async close() {
      await (await agent)?.destroy();
    },
  };
}

type Work = Try & { readonly clock: Clock; readonly discard: BodyDiscard };

function exchanged(dispatcher: Dispatcher, request: FastifyRequest, reply: FastifyReply, work: Work): Promise<Tried> {
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
      signal.removeEventListener('abort', leave);
      raw.off('drain', goOn);
      end();
    };
    const cut = (reason: Error) => controller?.abort(reason);
    const leave = () => {
      if (begun) raw.destroy();
      finish(() => (begun ? resolve('answered') : reject(signal.reason)));
      cut(new Error('the caller left'));
    };
    const goOn = () => controller?.resume();
    const gone = () => {
      finish(() => resolve('broken'));
      cut(new Error('no answer from the other node'));
    };
    const lifeSign = () => {
      watch?.cancel();
      watch = clock.after(work.silenceMs, gone);
    };
    if (signal.aborted) return reject(signal.reason);
    signal.addEventListener('abort', leave, { once: true });
    raw.on('drain', goOn);

    const sent = hasBody(request) ? Readable.from(body.read(), { objectMode: false }) : null;
    dispatcher.dispatch(
      {
        origin: work.url,
        // Of a target in absolute form the path alone: its authority is this node's.
        path: pathOf(request.originalUrl),
        method: request.method as Dispatcher.HttpMethod,
        headers: sentHeaders(request, work.epoch, body.bytes),
        body: sent,
      },
      {
        onRequestStart(started) {
          controller = started;
          if (over) return started.abort(new Error('the caller left'));
          whole = clock.after(work.answerMs, gone);
          lifeSign();
        },
        onResponseStart(_, status, head) {
          if (over) return;
          lifeSign();
          if (status < 200) return;
          refused = head[NOT_TAKEN] !== undefined && (work.repeatable || head[NOT_TAKEN] === '1');
          if (refused) return;
          forget();
          begun = true;
          begin(request, reply, { status, head }, work);
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
  readonly head: Parameters<typeof returnedHeaders>[1];
}

function begin(request: FastifyRequest, reply: FastifyReply, { status, head }: Head, { body, discard }: Work): void {
  if (request.raw.complete) body.taken();
  // Read and thrown away, as where it is answered here.
  else body.discard();
  discard(request, reply);
  const headers = returnedHeaders(reply, head);
  reply.hijack();
  reply.raw.writeHead(status, headers);
  reply.raw.flushHeaders();
}

function hasBody({ raw: { headers } }: FastifyRequest): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
}
