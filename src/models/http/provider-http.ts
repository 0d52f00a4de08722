// One attempt over HTTP: sends the request and reads the server-sent events until the body or the caller ends (11.1).
import { createParser, type EventSourceParser } from 'eventsource-parser';
import type { Clock } from '#protocol/clock.ts';
import type { Attempt, Exchange, Transport } from '../adapters/adapter-loop.ts';
import type { Wire } from '../adapters/provider-wires.ts';
import type { Decoder } from '../wire/codec.ts';
import { classify, type Fault, fault, readWireError, WireFault } from '../wire/fault.ts';
import { EVENT_CHARACTERS } from '../wire/provider-values.ts';
import { retryAfterSeconds } from './attempt-limits.ts';

// The interface to the network: one request, its response, and a body that is read in pieces (11.1).

/** Which attempt a request belongs to: for a recorder, none of it reaches the wire. */
export type AttemptInfo = Pick<Attempt, 'request' | 'attempt'>;

export interface HttpRequest {
  /** Absent = POST. */
  readonly method?: 'GET' | 'DELETE';
  readonly url: string;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>> | readonly (readonly [name: string, value: string])[];
  /** Pieces go out in their order; read once, so that what is sent may be let go. */
  readonly body: Iterable<Uint8Array>;
  /** Ends the request at any time, its body included, and closes its connection. */
  readonly signal: AbortSignal;
  /** Null for what is no attempt of an adapter. */
  readonly of: AttemptInfo | null;
}

export interface HttpResponse {
  readonly status: number;
  /** @param name in lower case */
  header(name: string): string | null;
  /** All of them, names in lower case. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  /** The next piece, null behind the last. Rejects when the body breaks off, and at once when the request's signal aborts. */
  readPiece(): Promise<Uint8Array | null>;
  /** Whether everything has been read, so that nothing is left to wait for. */
  isEnded(): boolean;
  /** Closes the connection unless the body has ended. */
  cancel(): void;
}

/** Resolves when the head of the response is here; rejects with the system's error, and at once when the signal aborts. */
export type Send = (request: HttpRequest) => Promise<HttpResponse>;

/** A socket that failed or bytes that make no sense; `error_detail` is the system's code where there is one. */
export function networkFault(error: unknown, detail: string | null = null): Fault {
  const code = error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : null;
  return fault('network', detail ?? code, errorMessage(error));
}

/** A name with several addresses fails with one error for each, and none of its own. */
function errorMessage(error: unknown): string {
  if (error instanceof AggregateError && error.message === '') return error.errors.map(errorMessage).join('; ');
  return error instanceof Error ? error.message : String(error);
}

const ERROR_BODY_BYTES = 64 * 1024;
const ERROR_TEXT_CHARACTERS = 2000;
const DRAIN_MS = 250;
/** What an event or a comment weighs, so that a stream of empty ones ends too: half a million of them are an answer. */
const EVENT_WEIGHT = 128;

export interface HttpOptions {
  readonly baseUrl: string;
  readonly extraHeaders: Readonly<Record<string, string>>;
  readonly send: Send;
  readonly clock: Clock;
}

/** Statuses that point elsewhere. To follow would carry the key to another place. */
const REDIRECTS = new Set([301, 302, 303, 307, 308]);
const REDIRECTED = 'the provider answered with a redirect, which is not followed; correct base_url';

export function createHttpTransport(wire: Wire, options: HttpOptions): Transport {
  const url = `${options.baseUrl.replace(/\/+$/, '')}${wire.path}`;
  const headers = {
    'content-type': 'application/json',
    accept: 'text/event-stream',
    // Nothing here unpacks.
    'accept-encoding': 'identity',
    'user-agent': 'metis',
    ...wire.headers,
    ...lowerCaseNames(options.extraHeaders),
  };
  const endpoint: Endpoint = { wire, url, headers, send: options.send, clock: options.clock };
  return (attempt) => createExchange(endpoint, attempt);
}

/** Names are the same in any case: what a registry adds replaces ours. */
function lowerCaseNames(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
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
  const text = new TextDecoder();
  function countEvent(): void {
    guard.touch();
    assembly.weigh(EVENT_WEIGHT);
  }

  async function open(): Promise<void> {
    const body = [wire.encode(request)];
    try {
      response = await send({ url, headers, body, signal, of: { request, attempt } });
    } catch (error) {
      throw error instanceof WireFault ? error : new WireFault(networkFault(error));
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
        // Nothing counts after the end of the message.
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

  async function pull(): Promise<boolean> {
    if (response === null) return false;
    let piece: Uint8Array | null;
    try {
      piece = await response.readPiece();
    } catch (error) {
      throw new WireFault(networkFault(error));
    }
    try {
      if (piece !== null) parser.feed(text.decode(piece, { stream: true }));
      else if (!signal.aborted) finish();
    } catch (error) {
      throw error instanceof SyntaxError ? new WireFault(networkFault(error, 'malformed_event')) : error;
    }
    return piece !== null;
  }

  /** The last event may lack its blank line. What is cut inside an event is no JSON and says nothing. */
  function finish(): void {
    try {
      parser.feed(`${text.decode()}\n\n`);
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
    }
    if (assembly.stop === null) decoder.end();
  }

  return {
    requestId: () => requestId,
    open,
    pull,
    close() {
      if (response === null || response.isEnded()) return;
      if (assembly.stop !== null && assembly.stop.reason !== 'error' && assembly.stop.reason !== 'cancelled')
        void drain(response, clock);
      else response.cancel();
    },
  };
}

/** Reads the few bytes after the end of a message, so that the connection can serve the next call. Never rejects. */
async function drain(response: HttpResponse, clock: Clock): Promise<void> {
  const timer = clock.after(DRAIN_MS, () => response.cancel());
  try {
    while ((await response.readPiece()) !== null);
  } catch {
    // The message is whole: how its connection ends is of no interest.
  } finally {
    timer.cancel();
  }
}

/** The fault of a response that is not a stream. */
async function readErrorResponse(response: HttpResponse, clock: Clock): Promise<Fault> {
  const { status } = response;
  const ok = status >= 200 && status <= 299;
  const body = await readText(response);
  let error = null;
  try {
    error = readWireError(JSON.parse(body));
  } catch {
    // Not JSON: the text itself is the message.
  }
  const message = error?.message ?? (body.trim().slice(0, ERROR_TEXT_CHARACTERS) || `HTTP ${status}`);
  const rest = {
    provider_status: status,
    retry_after_seconds: retryAfterSeconds((name) => response.header(name), clock.now()),
  };
  if (ok && error === null) return fault('other', 'not_a_stream', `the answer is not a stream: ${message}`, rest);
  const [error_class, detail] = classify(error, ok ? (error?.status ?? null) : status);
  return fault(error_class, detail, message, rest);
}

async function readText(response: HttpResponse): Promise<string> {
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
    // The status already says what matters.
  }
  return out;
}
