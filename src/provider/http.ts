// One attempt over HTTP: sends the request, reads the server-sent events, and knows when the body or the caller has ended (11.1).
import { createParser, type EventSourceParser } from 'eventsource-parser';
import { orAbort } from '../kernel/abort.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Decoder } from '../wire/decoder.ts';
import { EVENT_CHARACTERS } from '../wire/event-data.ts';
import { classify, type Fault, fault, readWireError, WireFault } from '../wire/fault.ts';
import type { Attempt, Exchange, Transport } from './base.ts';
import { networkFault, redirectFault } from './network-fault.ts';
import { retryAfterSeconds } from './retry.ts';
import type { Wire } from './wire.ts';

const ERROR_BODY_BYTES = 64 * 1024;
const ERROR_TEXT_CHARACTERS = 2000;
const DRAIN_MS = 250;

export interface HttpOptions {
  readonly baseUrl: string;
  readonly extraHeaders: Readonly<Record<string, string>>;
  readonly fetch: typeof fetch;
  readonly clock: Clock;
}

/** What a wrapped `fetch` knows about the attempt, without any of it reaching the wire. */
export type AttemptInfo = Pick<Attempt, 'request' | 'attempt'>;
/** Request options carry the attempt under this key; the real `fetch` ignores it. */
export const ATTEMPT = Symbol('attempt');

export function createHttpTransport(wire: Wire, options: HttpOptions): Transport {
  const url = `${options.baseUrl.replace(/\/+$/, '')}${wire.path}`;
  const headers = {
    'content-type': 'application/json',
    accept: 'text/event-stream',
    ...wire.headers,
    ...options.extraHeaders,
  };
  const endpoint: Endpoint = { wire, url, headers, fetch: options.fetch, clock: options.clock };
  return (attempt) => createExchange(endpoint, attempt);
}

interface Endpoint extends Pick<HttpOptions, 'fetch' | 'clock'> {
  readonly wire: Wire;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
}

function createExchange({ wire, url, headers, fetch, clock }: Endpoint, run: Attempt): Exchange {
  const { request, assembly, guard, attempt } = run;
  const { signal } = guard;
  let reader: ReadableStreamDefaultReader<Uint8Array> | null = null;
  let ended = false;
  let requestId: string | null = null;
  let decoder: Decoder;
  let parser: EventSourceParser;
  const text = new TextDecoder();
  const cut = () => void reader?.cancel().catch(() => {});

  async function open(): Promise<void> {
    const init: RequestInit & { [ATTEMPT]?: AttemptInfo } = {
      method: 'POST',
      headers,
      body: wellFormed(wire.encode(request)),
      signal,
      // A redirect would carry the key to another place. Refused, and without a window, the body needs no second copy.
      redirect: 'error',
      window: null,
      [ATTEMPT]: { request, attempt },
    };
    const pending = fetch(url, init);
    let response: Response;
    try {
      response = await orAbort(pending, signal);
    } catch (error) {
      // A fetch that does not heed the signal may still answer.
      pending.then((late) => late.body?.cancel()).catch(() => {});
      throw error instanceof WireFault ? error : new WireFault(redirectFault(error) ?? networkFault(error));
    }
    requestId = response.headers.get('request-id') ?? response.headers.get('x-request-id');
    reader = response.body?.getReader() ?? null;
    if (signal.aborted) cut();
    else signal.addEventListener('abort', cut, { once: true });
    const type = response.headers.get('content-type') ?? '';
    if (!response.ok || type.includes('application/json')) {
      guard.connected();
      throw new WireFault(await refusal(response, reader, clock));
    }
    decoder = wire.decoder(assembly);
    parser = createParser({
      onEvent(event) {
        guard.beat();
        // Nothing counts after the end of the message.
        if (assembly.stop === null) decoder.event(event.data);
      },
      onComment: guard.beat,
      onError(error) {
        if (error.type === 'max-buffer-size-exceeded')
          throw new WireFault(fault('other', 'response_too_large', 'an event of the stream is too large'));
      },
      maxBufferSize: EVENT_CHARACTERS,
    });
  }

  async function pull(): Promise<boolean> {
    if (reader === null) return false;
    let piece: Awaited<ReturnType<typeof reader.read>>;
    try {
      piece = await reader.read();
    } catch (error) {
      throw new WireFault(networkFault(error));
    }
    ended = piece.done;
    try {
      if (piece.value !== undefined) parser.feed(text.decode(piece.value, { stream: true }));
      else if (!signal.aborted) finish();
    } catch (error) {
      throw error instanceof SyntaxError ? new WireFault(networkFault(error, 'malformed_event')) : error;
    }
    return !ended;
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
      signal.removeEventListener('abort', cut);
      if (reader === null || ended) return;
      if (assembly.stop !== null && assembly.stop.reason !== 'error' && assembly.stop.reason !== 'cancelled')
        void drain(reader, clock);
      else cut();
    },
  };
}

/** Half of a surrogate pair, which JSON can only write as an escape, is refused by providers; U+FFFD stands in for it. */
function wellFormed(json: string): string {
  if (!json.includes('\\ud')) return json;
  return json.replaceAll(/(?<!\\)((?:\\\\)*)\\ud[89a-f][0-9a-f]{2}/g, '$1\\ufffd');
}

/** Reads the few bytes after the end of a message, so that the connection can serve the next call. Never rejects. */
async function drain(reader: ReadableStreamDefaultReader<Uint8Array>, clock: Clock): Promise<void> {
  const timer = clock.after(DRAIN_MS, () => void reader.cancel().catch(() => {}));
  try {
    while (!(await reader.read()).done);
  } catch {
    // The message is whole: how its connection ends is of no interest.
  } finally {
    timer.cancel();
  }
}

/** The fault of a response that is not a stream. */
async function refusal(
  response: Response,
  reader: ReadableStreamDefaultReader<Uint8Array> | null,
  clock: Clock,
): Promise<Fault> {
  const body = await readText(reader);
  let error = null;
  try {
    error = readWireError(JSON.parse(body));
  } catch {
    // Not JSON: the text itself is the message.
  }
  const message = error?.message ?? (body.trim().slice(0, ERROR_TEXT_CHARACTERS) || `HTTP ${response.status}`);
  const rest = {
    provider_status: response.status,
    retry_after_seconds: retryAfterSeconds(response.headers, clock.now()),
  };
  if (response.ok && error === null)
    return fault('other', 'not_a_stream', `the answer is not a stream: ${message}`, rest);
  const [error_class, detail] = classify(error, response.ok ? (error?.status ?? null) : response.status);
  return fault(error_class, detail, message, rest);
}

async function readText(reader: ReadableStreamDefaultReader<Uint8Array> | null): Promise<string> {
  if (reader === null) return '';
  const text = new TextDecoder();
  let out = '';
  let size = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return out + text.decode();
      size += value.byteLength;
      out += text.decode(value, { stream: true });
      if (size > ERROR_BODY_BYTES) break;
    }
    await reader.cancel();
  } catch {
    // The status already says what matters.
  }
  return out;
}
