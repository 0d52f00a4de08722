// One attempt over HTTP: sends the request and reads the server-sent events until the body or the caller ends (11.1).

import { StringDecoder } from 'node:string_decoder';
import { createParser, type EventSourceParser } from 'eventsource-parser';
import type { Clock } from '#protocol/clock.ts';
import { readErrorMessage } from '#protocol/text/error-message.ts';
import type { Attempt, Exchange, Transport } from '../adapters/adapter-loop.ts';
import type { Wire } from '../adapters/provider-wires.ts';
import type { Decoder } from '../wire/codec.ts';
import { classify, type Fault, fault, readWireError, WireFault } from '../wire/fault.ts';
import { EVENT_CHARACTERS } from '../wire/provider-values.ts';
import { retryAfterSeconds } from './attempt-limits.ts';

// The interface to the network: one request, its response, and a body that is read in pieces (11.1).

/** The attempt of a request, for recorders only; it is not sent. */
export type AttemptInfo = Pick<Attempt, 'request' | 'attempt'>;

export interface HttpRequest {
  /** Absent = POST. */
  readonly method?: 'GET' | 'DELETE';
  readonly url: string;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>> | readonly (readonly [name: string, value: string])[];
  /** Pieces in order; read once, so that sent pieces can be freed. */
  readonly body: Iterable<Uint8Array>;
  /** Ends the request at any time, its body included, and closes its connection. */
  readonly signal: AbortSignal;
  /** Null = the request is not an attempt of an adapter. */
  readonly of: AttemptInfo | null;
}

export interface HttpResponse {
  readonly status: number;
  /** @param name in lower case */
  header(name: string): string | null;
  /** All of them, names in lower case. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  /** The next piece; null after the last. Rejects if the body is truncated, and at once when the request's signal aborts. */
  readPiece(): Promise<Uint8Array | null>;
  /**
   * Passes on each piece as it arrives, until `take` returns false or the body ends; `take` must not throw. Resolves with
   * whether the body ended, rejects as `readPiece` does.
   */
  readPieces(take: (piece: Uint8Array) => boolean): Promise<boolean>;
  /** Whether the body has been read completely. */
  isEnded(): boolean;
  /** Closes the connection unless the body has ended. */
  cancel(): void;
}

/** `readPieces` of a response whose pieces do not arrive by themselves. */
export async function readOneByOne(
  response: Pick<HttpResponse, 'readPiece'>,
  take: (piece: Uint8Array) => boolean,
): Promise<boolean> {
  for (;;) {
    const piece = await response.readPiece();
    if (piece === null) return true;
    if (!take(piece)) return false;
  }
}

/** Resolves with the head of the response. Rejects with the system's error, and at once when the signal aborts. */
export type Send = (request: HttpRequest) => Promise<HttpResponse>;

/** A failed socket or malformed bytes; `error_detail` is the system's error code if there is one. */
export function networkFault(error: unknown, detail: string | null = null): Fault {
  const code = error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : null;
  return fault('network', detail ?? code, errorMessage(error));
}

/** A host with several addresses fails with one error for each address and no message of its own. */
function errorMessage(error: unknown): string {
  if (error instanceof AggregateError && error.message === '') return error.errors.map(errorMessage).join('; ');
  return readErrorMessage(error);
}

const ERROR_BODY_BYTES = 64 * 1024;
const ERROR_TEXT_CHARACTERS = 2000;
const DRAIN_MS = 250;
/** Weight of an event or comment in characters, so that an endless stream of empty events reaches the limit. */
const EVENT_WEIGHT = 128;

export interface HttpOptions {
  readonly baseUrl: string;
  readonly extraHeaders: Readonly<Record<string, string>>;
  readonly send: Send;
  readonly clock: Clock;
}

/** Redirects are not followed: the key would reach another server. */
const REDIRECTS = new Set([301, 302, 303, 307, 308]);
const REDIRECTED = 'the provider answered with a redirect, which is not followed; correct base_url';

export function createHttpTransport(wire: Wire, options: HttpOptions): Transport {
  const url = `${options.baseUrl.replace(/\/+$/, '')}${wire.path}`;
  const headers = {
    'content-type': 'application/json',
    accept: 'text/event-stream',
    // Compressed bodies are not supported.
    'accept-encoding': 'identity',
    'user-agent': 'metis',
    ...wire.headers,
    ...lowerCaseNames(options.extraHeaders),
  };
  const endpoint: Endpoint = { wire, url, headers, send: options.send, clock: options.clock };
  return (attempt) => createExchange(endpoint, attempt);
}

/** Header names are case-insensitive: headers of the registry replace the defaults. */
function lowerCaseNames(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
}

/** A body of several pieces states its length, or it would be sent in chunks. */
function withLength(
  headers: Readonly<Record<string, string>>,
  body: readonly Uint8Array[],
): Readonly<Record<string, string>> {
  if (body.length === 1) return headers;
  return { ...headers, 'content-length': String(body.reduce((sum, { byteLength }) => sum + byteLength, 0)) };
}

interface Endpoint extends Pick<HttpOptions, 'send' | 'clock'> {
  readonly wire: Wire;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
}

function createExchange({ wire, url, headers, send, clock }: Endpoint, run: Attempt): Exchange {
  const { request, assembly, guard, attempt } = run;
  const { signal } = guard;
  let response: HttpResponse | null = null;
  let requestId: string | null = null;
  let decoder: Decoder;
  let parser: EventSourceParser;
  // A streaming `TextDecoder` takes 0.6 µs a piece more, in part because its strings have two bytes a character.
  const text = new StringDecoder('utf8');
  let isFirst = true;
  function countEvent(): void {
    guard.touch();
    assembly.weigh(EVENT_WEIGHT);
  }

  async function open(): Promise<void> {
    const body = wire.encode(request);
    try {
      response = await send({ url, headers: withLength(headers, body), body, signal, of: { request, attempt } });
    } catch (error) {
      if (error instanceof WireFault) throw error;
      throw new WireFault(networkFault(error));
    }
    const { status } = response;
    if (REDIRECTS.has(status)) throw new WireFault(fault('other', 'redirected', REDIRECTED));
    requestId = response.header('request-id') ?? response.header('x-request-id');
    const type = response.header('content-type') ?? '';
    if (status < 200 || status > 299 || type.includes('application/json')) {
      guard.startIdleTimer();
      throw new WireFault(await readErrorResponse(response, clock));
    }
    decoder = wire.decoder(assembly);
    parser = createParser({
      onEvent(event) {
        countEvent();
        // Events after the end of the message are ignored.
        if (assembly.stop === null) decoder.event(event.data);
      },
      onComment: countEvent,
      onError(error) {
        if (error.type === 'max-buffer-size-exceeded')
          throw new WireFault(fault('other', 'response_too_large', 'an event of the stream is too large'));
      },
      maxBufferSize: EVENT_CHARACTERS,
    });
  }

  async function read(onFed: () => boolean): Promise<void> {
    if (response === null) return;
    const failures: unknown[] = [];
    const passPiece = (piece: Uint8Array) => {
      try {
        feed(text.write(piece));
      } catch (error) {
        failures.push(error);
        return false;
      }
      return onFed();
    };
    let ended: boolean;
    try {
      ended = await response.readPieces(passPiece);
    } catch (error) {
      throw new WireFault(networkFault(error));
    }
    const [failure] = failures;
    if (failure instanceof SyntaxError) throw new WireFault(networkFault(failure, 'malformed_event'));
    if (failure !== undefined) throw failure;
    if (ended && !signal.aborted) finish();
  }

  /** A byte order mark may stand before the first event. */
  function feed(fed: string): void {
    if (fed === '') return;
    parser.feed(isFirst && fed.startsWith('\uFEFF') ? fed.slice(1) : fed);
    isFirst = false;
  }

  /** The last event may lack its blank line. A truncated event is not JSON and is ignored. */
  function finish(): void {
    try {
      feed(`${text.end()}\n\n`);
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
    }
    if (assembly.stop === null) decoder.end();
  }

  return {
    requestId: () => requestId,
    open,
    read,
    close() {
      if (response === null || response.isEnded()) return;
      if (assembly.stop !== null && assembly.stop.reason !== 'error' && assembly.stop.reason !== 'cancelled')
        void drainBody(response, clock);
      else response.cancel();
    },
  };
}

/** Reads the bytes after the end of a message, so that the connection can be reused. Never rejects. */
async function drainBody(response: HttpResponse, clock: Clock): Promise<void> {
  const timer = clock.after(DRAIN_MS, () => response.cancel());
  try {
    while ((await response.readPiece()) !== null);
  } catch {
    // The message is complete: an error of the connection does not matter.
  } finally {
    timer.cancel();
  }
}

/** Reads the fault from a response that is not a stream. */
async function readErrorResponse(response: HttpResponse, clock: Clock): Promise<Fault> {
  const { status } = response;
  const ok = status >= 200 && status <= 299;
  const body = await readBodyText(response);
  let error = null;
  try {
    error = readWireError(JSON.parse(body));
  } catch {
    // Not JSON: the text is the message.
  }
  const message = error?.message ?? (body.trim().slice(0, ERROR_TEXT_CHARACTERS) || `HTTP ${status}`);
  const rest = {
    provider_status: status,
    retry_after_seconds: retryAfterSeconds((name) => response.header(name), clock.now()),
  };
  if (ok && error === null) return fault('other', 'not_a_stream', `the answer is not a stream: ${message}`, rest);
  let failedStatus: number | null = status;
  if (ok) failedStatus = error?.status ?? null;
  const [error_class, detail] = classify(error, failedStatus);
  return fault(error_class, detail, message, rest);
}

async function readBodyText(response: HttpResponse): Promise<string> {
  const text = new TextDecoder();
  let out = '';
  let size = 0;
  try {
    for (;;) {
      const piece = await response.readPiece();
      if (piece === null) return out + text.decode();
      size += piece.byteLength;
      out += text.decode(piece, { stream: true });
      if (size > ERROR_BODY_BYTES) break;
    }
    response.cancel();
  } catch {
    // The status is enough for classification.
  }
  return out;
}
