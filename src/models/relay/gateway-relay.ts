// Relays a client's bytes to a provider and the answer's bytes back, and reads the token counts on the way (19 §2.2).
import { type Duplex, Readable } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate } from 'node:zlib';
import { type AdapterConfig, anthropicVersion } from '#core/policy/registry/adapter-config.ts';
import {
  HOP_BY_HOP,
  type Relay,
  type RelayAnswer,
  RelayFault,
  type RelayHeaders,
  type RelayRequest,
} from '#core/ports/gateway-relay.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { ClientWire } from '#protocol/client-wire.ts';
import type { Clock } from '#protocol/clock.ts';
import { scrub } from '#protocol/text/scrub.ts';
import { type CredentialSource, DEFAULT_BASE_URLS } from '../adapters/create-adapters.ts';
import { type HttpResponse, networkFault, type Send } from '../http/provider-http.ts';
import { createExchangeLog, type ExchangeLog, type LoggedExchange } from '../recorded/recorder.ts';
import type { ThreadedParser } from '../threads/threaded-parser.ts';
import { createMeter, type Meter } from '../wire/answer-meter.ts';
import { toBill } from '../wire/billed-parts.ts';
import { METERS } from '../wire/wire-meters.ts';
import {
  connectionHeaders,
  createUsageFilter,
  filterHeaders,
  readSentCredentials,
  type SentCredentials,
} from './answer-filters.ts';

/** Idle time after which an answer is abandoned; there is no total limit (19 §2.7). */
const IDLE_SECONDS = 300;
const NOT_SENT = new Set([...HOP_BY_HOP, 'host', 'content-length', 'cookie', 'accept-encoding', 'expect']);
/** Decoders by content coding. */
const DECODERS: Readonly<Record<string, () => Duplex>> = {
  gzip: createGunzip,
  'x-gzip': createGunzip,
  br: createBrotliDecompress,
  deflate: createInflate,
};
/** Headers with keys of clients, and with the account of a key. */
const CREDENTIALS = new Set(['authorization', 'x-api-key', 'api-key', 'openai-organization', 'openai-project']);

interface RelayOptions {
  readonly type: 'anthropic' | 'openai' | 'openrouter';
  readonly baseUrl: string;
  readonly key: string | null;
  readonly keyed: boolean;
  readonly extraHeaders: Readonly<Record<string, string>>;
  readonly anthropicVersion: string;
  readonly send: Send;
  readonly clock: Clock;
  /** Null = exchanges are not recorded. */
  readonly record: ExchangeLog | null;
  readonly parser: Pick<ThreadedParser, 'above' | 'readAnswer'>;
}

function createRelay(options: RelayOptions): Relay {
  const base = options.baseUrl.replace(/\/+$/, '');
  return {
    keyed: options.keyed,
    origin: new URL(base).origin,
    async send(request, withKey, signal) {
      const url = `${base}${endpointPath(options.type, request.wire)}${request.tail}`;
      const body = [...request.takeBody()];
      const headers = buildRequestHeaders(options, request, withKey);
      const credentials = readSentCredentials(headers);
      const path = new URL(url).pathname;
      const record = request.body_bytes === 0 ? null : options.record;
      const exchange = record?.begin(request.request_id, path, body, credentials.values) ?? null;
      const watch = createWatch(options.clock, signal);
      try {
        const response = await options.send({
          url,
          ...(request.method !== undefined && { method: request.method }),
          headers: [...headers, ...contentLength(request)],
          body: drainPieces(body),
          signal: watch.signal,
          of: null,
        });
        watch.beat();
        exchange?.head(response.status, (name) => response.header(name));
        return createAnswer(request, response, {
          watch,
          exchange,
          credentials,
          ownKey: withKey,
          parser: options.parser,
        });
      } catch (error) {
        watch.end();
        exchange?.end(signal.aborted ? 'aborted' : 'network');
        throw toRelayFault(error, watch, credentials);
      }
    },
  };
}

/** Removes each piece from the list as it is read, so that sent pieces can be freed. */
function drainPieces(pieces: Uint8Array[]): Iterable<Uint8Array> {
  return {
    [Symbol.iterator]: () => ({
      next: () => {
        const value = pieces.shift();
        return { done: value === undefined, value } as IteratorResult<Uint8Array>;
      },
    }),
  };
}

/** Below the base URL of this type of adapter. */
function endpointPath(type: RelayOptions['type'], wire: ClientWire): string {
  const path = { messages: '/messages', chat: '/chat/completions', responses: '/responses' }[wire];
  if (type === 'anthropic') return `/v1${path}`;
  return path;
}

/** A GET has no body. */
function contentLength({ method, body_bytes }: RelayRequest): RelayHeaders {
  if (method === 'GET') return [];
  return [['content-length', String(body_bytes)]];
}

function buildRequestHeaders(options: RelayOptions, { headers, wire }: RelayRequest, withKey: boolean): RelayHeaders {
  const extra = Object.entries(options.extraHeaders).map(([name, value]) => [name.toLowerCase(), value] as const);
  const ofConnection = connectionHeaders(headers);
  const given = headers.filter(([name]) => {
    if (NOT_SENT.has(name) || ofConnection.has(name) || name.startsWith('x-metis-')) return false;
    return !(withKey && CREDENTIALS.has(name)) && !extra.some(([own]) => own === name);
  });
  const own: [string, string][] = [['accept-encoding', 'identity']];
  if (wire === 'messages' && !headers.some(([name]) => name === 'anthropic-version'))
    own.push(['anthropic-version', options.anthropicVersion]);
  if (withKey && options.key !== null) own.push(buildKeyHeader(options.type, options.key));
  return [...given, ...own, ...extra];
}

function buildKeyHeader(type: RelayOptions['type'], key: string): [string, string] {
  if (type === 'anthropic') return ['x-api-key', key];
  return ['authorization', `Bearer ${key}`];
}

/** Watches the client's signal and the idle time. */
interface Watch {
  readonly signal: AbortSignal;
  /** Whether the client has disconnected or the server has cancelled the call. */
  isAborted(): boolean;
  /** Restarts the idle time: data has arrived. */
  beat(): void;
  end(): void;
}

function createWatch(clock: Clock, client: AbortSignal): Watch {
  const controller = new AbortController();
  let last = clock.monotonic();
  const abortCall = () => controller.abort(client.reason);
  if (client.aborted) abortCall();
  else client.addEventListener('abort', abortCall, { once: true });
  const startIdleTimer = (ms: number): { cancel(): void } =>
    clock.after(ms, () => {
      const left = last + IDLE_SECONDS * 1000 - clock.monotonic();
      if (left > 0) timer = startIdleTimer(left);
      else controller.abort(new RelayFault('network', `no byte for ${IDLE_SECONDS} s`));
    });
  let timer = startIdleTimer(IDLE_SECONDS * 1000);
  return {
    signal: controller.signal,
    isAborted: () => client.aborted,
    beat: () => {
      last = clock.monotonic();
    },
    end() {
      timer.cancel();
      client.removeEventListener('abort', abortCall);
    },
  };
}

interface Call {
  readonly watch: Watch;
  readonly exchange: LoggedExchange | null;
  readonly credentials: SentCredentials;
  /** The key is the server's: clients must not learn it from an error that quotes it. */
  readonly ownKey: boolean;
  readonly parser: RelayOptions['parser'];
}

function createAnswer(
  { wire, withhold_usage }: Pick<RelayRequest, 'wire' | 'withhold_usage'>,
  response: HttpResponse,
  { watch, exchange, credentials, ownKey, parser }: Call,
): RelayAnswer {
  const { status } = response;
  const streams = (response.header('content-type') ?? '').includes('event-stream');
  // A redirect is passed on; it is not an answer.
  const answered = status >= 200 && status < 300;
  const kind = streams ? 'stream' : 'json';
  const meter = createMeter(METERS[wire], answered ? kind : { status }, {
    above: parser.above,
    read: (bytes) => parser.readAnswer(wire, bytes),
  });
  const withheld = withhold_usage && streams && answered ? createUsageFilter() : null;
  const decoder = findDecoder(response);
  const filter = ownKey && status >= 400 ? credentials.createFilter() : null;
  const body = async function* (): AsyncGenerator<Uint8Array> {
    let ended = false;
    try {
      for await (const piece of decoder === null ? readPieces(response) : decodePieces(response, decoder())) {
        watch.beat();
        exchange?.piece(piece);
        const passed = withheld?.pass(piece) ?? filter?.pass(piece) ?? piece;
        if (passed.byteLength > 0) yield passed;
        meter.feed(piece);
      }
      ended = true;
      const rest = withheld?.rest() ?? filter?.rest();
      if (rest !== undefined && rest.byteLength > 0) yield rest;
      await meter.end();
    } catch (error) {
      throw toRelayFault(error, watch, credentials);
    } finally {
      watch.end();
      const failure = watch.isAborted() ? 'aborted' : 'network';
      exchange?.end(ended ? 'complete' : failure);
      if (!ended) response.cancel();
    }
  };
  const headers = filterHeaders(response.headers, decoder !== null).filter(
    ([, value]) => !(ownKey && credentials.isContainedIn(value)),
  );
  return { status, headers, body: body(), reading: () => redactReading(meter, credentials) };
}

/** Some servers compress although the request forbids it. Null = not compressed, or the client decodes. */
function findDecoder(response: HttpResponse): (() => Duplex) | null {
  return DECODERS[response.header('content-encoding')?.trim().toLowerCase() ?? ''] ?? null;
}

function decodePieces(response: HttpResponse, decoder: Duplex): AsyncIterable<Uint8Array> {
  const source = Readable.from(readPieces(response));
  source.once('error', (error) => decoder.destroy(error));
  return source.pipe(decoder);
}

async function* readPieces(response: HttpResponse): AsyncGenerator<Uint8Array> {
  for (let piece = await response.readPiece(); piece !== null; piece = await response.readPiece()) yield piece;
}

function redactReading({ reading }: Meter, credentials: SentCredentials) {
  let fault = reading.fault && { ...reading.fault };
  if (fault?.name != null && credentials.isContainedIn(fault.name)) fault = { ...fault, name: null };
  return { ...reading, usage: { ...reading.usage }, bill: toBill(reading.bill), fault };
}

function toRelayFault(error: unknown, watch: Watch, { values }: SentCredentials): RelayFault {
  if (watch.isAborted()) return new RelayFault('cancelled', 'the call was cancelled');
  if (error instanceof RelayFault) return error;
  const { error_detail, message } = networkFault(error);
  return new RelayFault('network', error_detail ?? scrub(message, { secrets: values }));
}

// One relay for every adapter that has an address (19 §2.1).

interface RelaySetup {
  readonly adapters: ReadonlyMap<string, AdapterConfig>;
  readonly credentials: CredentialSource;
  /** Folder for exchanges; null = exchanges are not recorded. */
  readonly record: string | null;
  readonly send: Send;
  readonly clock: Clock;
  readonly log: Logger;
  readonly parser: ThreadedParser;
}

interface OpenRelays {
  readonly relays: ReadonlyMap<string, Relay>;
  /** Resolves when all recordings are on disk. */
  flush(): Promise<void>;
}

export function createRelays({ adapters, credentials, record, send, clock, log, parser }: RelaySetup): OpenRelays {
  const relays = new Map<string, Relay>();
  const logs: ExchangeLog[] = [];
  for (const [id, config] of adapters) {
    if (config.type === 'scripted') continue;
    const found = credentials.forAdapter(id, config);
    const { secrets } = credentials;
    let exchanges: ExchangeLog | null = null;
    if (record !== null) {
      exchanges = createExchangeLog({ dir: record, adapter: id, clock, secrets, log, parser });
      logs.push(exchanges);
    }
    relays.set(
      id,
      createRelay({
        type: config.type,
        baseUrl: config.base_url ?? found?.base_url ?? DEFAULT_BASE_URLS[config.type],
        key: found?.key?.trim() || null,
        keyed: found !== null,
        extraHeaders: config.extra_headers,
        anthropicVersion: anthropicVersion(config),
        send,
        clock,
        record: exchanges,
        parser,
      }),
    );
  }
  return {
    relays,
    async flush() {
      await Promise.all(logs.map((one) => one.flush()));
    },
  };
}
