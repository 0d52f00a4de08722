// The HTTP client: connection pool, TLS and the environment's proxies, built on undici (11.1).
import { AsyncLocalStorage } from 'node:async_hooks';
import { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import type { Agent, buildConnector, Dispatcher } from 'undici';
import { runAtEndOfTick } from '#protocol/async/end-of-tick.ts';
import { StartupError } from '#protocol/errors.ts';
import type { HttpRequest, HttpResponse, Send } from './provider-http.ts';

type Environment = Readonly<Record<string, string | undefined>>;

/** Unread bytes above which the socket is paused. */
const UNREAD_BYTES = 64 * 1024;
const CONNECT_MS = 300_000;
/** Maximum size of a response head; a larger head fails the attempt. */
const HEADER_BYTES = 16 * 1024;

/**
 * One pool of connections for all addresses. Reads `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`, in upper or lower case.
 * Throws `StartupError` for an invalid proxy address.
 */
export function createHttpClient(env: Environment): Send {
  const proxies = readProxies(env);
  let dispatcher: Dispatcher | null = null;
  const startAndSend = async (request: HttpRequest) => {
    // Loaded with the first call: the server's start does not need it.
    const { Agent, buildConnector, EnvHttpProxyAgent, Pool } = await import('undici');
    const pool = (origin: string | URL, { connect, ...rest }: Agent.Options) =>
      new Pool(origin, { ...rest, connect: abandonable(connect as Connector) });
    const options = {
      ...proxies,
      // Attempts have their own timers (11.8).
      headersTimeout: 0,
      bodyTimeout: 0,
      connect: buildConnector({ timeout: CONNECT_MS }),
      maxHeaderSize: HEADER_BYTES,
      factory: pool,
      // Options for connections to a proxy.
      clientFactory: pool,
    };
    dispatcher ??= proxies.httpProxy || proxies.httpsProxy ? new EnvHttpProxyAgent(options) : new Agent(options);
    return sendRequest(dispatcher, request);
  };
  return (request) => (dispatcher === null ? startAndSend(request) : sendRequest(dispatcher, request));
}

interface Proxies {
  readonly httpProxy: string;
  readonly httpsProxy: string;
  readonly noProxy: string;
}

function readProxies(env: Environment): Proxies {
  const readVariable = (name: string) => env[name.toLowerCase()] || env[name] || '';
  const proxy = (name: string) => {
    const value = readVariable(name).trim();
    if (value === '') return '';
    const url = proxyUrl(value.includes('://') ? value : `http://${value}`);
    if (url === null)
      throw new StartupError('proxy_invalid', [
        `${name}: must be the address of an HTTP proxy, such as 127.0.0.1:3128; unset it to connect directly`,
      ]);
    return url;
  };
  return { httpProxy: proxy('HTTP_PROXY'), httpsProxy: proxy('HTTPS_PROXY'), noProxy: readVariable('NO_PROXY').trim() };
}

/** The form that undici accepts: no path, and credentials that can be decoded. */
function proxyUrl(text: string): string | null {
  if (!/^https?:\/\//i.test(text) || !URL.canParse(text)) return null;
  const url = new URL(text);
  try {
    decodeURIComponent(`${url.username}${url.password}`);
  } catch {
    return null;
  }
  url.pathname = '';
  url.search = '';
  url.hash = '';
  return url.href;
}

type Connector = buildConnector.connector;
type Abandon = (error: Error) => void;

/** Pending connections of a request; null once the request needs no new connection. */
interface Openings {
  abandons: Abandon[] | null;
}
const openings = new AsyncLocalStorage<Openings>();

/**
 * A connector that abandons a pending connection with its request; undici alone would continue. If a proxy closes a
 * connection, undici reconnects endlessly without a pause; here the request fails.
 */
function abandonable(connect: Connector): Connector {
  return (where, done) => {
    let over = false;
    const opening: unknown = connect(where, (error, socket) => {
      if (over) return void socket?.destroy();
      over = true;
      if (error === null) done(null, socket);
      else if (REOPENED.has(errorCode(error))) done(proxyFailure(error), null);
      else done(error, null);
    });
    openings.getStore()?.abandons?.push((error) => {
      if (opening instanceof Socket) opening.destroy(error);
      if (over) return;
      over = true;
      done(error, null);
    });
  };
}

/** Errors that undici treats as the end of an idle connection. */
const REOPENED = new Set(['UND_ERR_SOCKET', 'UND_ERR_INFO']);

function errorCode(error: Error): string {
  if ('code' in error) return String(error.code);
  return '';
}
function proxyFailure(cause: Error): Error {
  return Object.assign(new Error(`the proxy closed the connection: ${cause.message}`, { cause }), {
    code: 'ECONNRESET',
  });
}

function toAbortError(reason: unknown): Error {
  if (reason instanceof Error) return reason;
  return new Error('cut off');
}

/** A single piece is not copied. */
function joinPieces(pieces: readonly Uint8Array[]): Uint8Array {
  if (pieces.length === 1) return pieces[0]!;
  return Buffer.concat(pieces);
}

/** A pending `readPiece`. */
interface Reader {
  resolve(piece: Uint8Array | null): void;
  reject(error: unknown): void;
}
/** A pending `readPieces`. */
interface Flow {
  take(piece: Uint8Array): boolean;
  resolve(hasEnded: boolean): void;
  reject(error: unknown): void;
}

function sendRequest(
  dispatcher: Dispatcher,
  { method, url, headers, body, signal }: HttpRequest,
): Promise<HttpResponse> {
  return new Promise((resolve, reject) => {
    const { origin, pathname, search } = new URL(url);
    const unread: Uint8Array[] = [];
    let unreadBytes = 0;
    let controller: Dispatcher.DispatchController | null = null;
    let waiting: Reader | null = null;
    let flow: Flow | null = null;
    let over = false;
    let failure: unknown = null;
    const opening: Openings = { abandons: [] };

    /** No more data arrives. Unread data stays readable unless an error ended the response. */
    function end(error: unknown): void {
      if (over) return;
      over = true;
      opening.abandons = null;
      failure = error;
      signal.removeEventListener('abort', onAbort);
      const pending = waiting ?? flow;
      if (error !== null) (pending?.reject ?? reject)(error);
      else {
        waiting?.resolve(null);
        flow?.resolve(true);
      }
      waiting = null;
      flow = null;
    }
    /** Everything that arrived since the last read, as one piece. */
    function takeUnread(): Uint8Array {
      const all = joinPieces(unread);
      unread.length = 0;
      unreadBytes = 0;
      if (controller?.paused) controller.resume();
      return all;
    }
    function passUnread(): void {
      if (flow === null || unread.length === 0) return;
      const { resolve } = flow;
      if (flow.take(takeUnread())) return;
      flow = null;
      resolve(false);
    }
    function abort(reason: unknown): void {
      const error = toAbortError(reason);
      const abandons = opening.abandons ?? [];
      end(error);
      unread.length = 0;
      controller?.abort(error);
      for (const abandonConnection of abandons) abandonConnection(new Error('given up'));
    }
    const onAbort = () => abort(signal.reason);

    const response = (status: number, head: Readonly<Record<string, string | string[] | undefined>>): HttpResponse => ({
      status,
      get headers() {
        return Object.entries(head).flatMap(([name, value]) => [value ?? ''].flat().map((one) => [name, one] as const));
      },
      header(name) {
        return [head[name]].flat()[0] ?? null;
      },
      readPiece() {
        if (unread.length > 0) return Promise.resolve(takeUnread());
        if (failure !== null) return Promise.reject(failure);
        if (over) return Promise.resolve(null);
        return new Promise((resolve, reject) => {
          waiting = { resolve, reject };
        });
      },
      readPieces(take) {
        return new Promise((resolve, reject) => {
          flow = { take, resolve, reject };
          passUnread();
          if (!over || flow === null) return;
          flow = null;
          if (failure === null) resolve(true);
          else reject(failure);
        });
      },
      isEnded: () => over && unread.length === 0,
      cancel: () => abort(null),
    });

    if (signal.aborted) return reject(signal.reason);
    signal.addEventListener('abort', onAbort);
    const asked = {
      origin,
      path: pathname + search,
      method: method ?? 'POST',
      headers: groupHeaders(headers),
      body: method === 'GET' ? null : toUndiciBody(body),
    } as const;
    openings.run(opening, () =>
      dispatcher.dispatch(asked, {
        onRequestStart(begun) {
          controller = begun;
          opening.abandons = null;
          if (over) begun.abort(toAbortError(failure));
        },
        onResponseStart(_, status, head) {
          if (status >= 200) resolve(response(status, head));
        },
        onResponseData(begun, piece) {
          if (over) return;
          if (waiting !== null) {
            waiting.resolve(piece);
            waiting = null;
            return;
          }
          // All that one read of the socket brings is one piece.
          if (unread.push(piece) === 1 && flow !== null) runAtEndOfTick(passUnread);
          unreadBytes += piece.byteLength;
          if (unreadBytes > UNREAD_BYTES) begun.pause();
        },
        onResponseEnd() {
          passUnread();
          end(null);
        },
        onResponseError(_, error) {
          passUnread();
          end(error);
        },
      }),
    );
  });
}

/** Headers by name. Through a proxy undici would keep only the last of several values in a list. */
function groupHeaders(headers: HttpRequest['headers']): Record<string, string | string[]> {
  if (!Array.isArray(headers)) return headers as Record<string, string>;
  const values = new Map<string, string | string[]>();
  for (const [name, value] of headers) {
    const known = values.get(name);
    if (known === undefined) values.set(name, value);
    else values.set(name, [known, value].flat());
  }
  return Object.fromEntries(values);
}

/**
 * A single piece is sent as it is; several pieces form one body of the length in `content-length`. undici accepts any
 * iterable, although its types name only a stream, which delays a call by several ticks.
 */
function toUndiciBody(body: HttpRequest['body']): Uint8Array | Readable {
  if (Array.isArray(body) && body.length === 1) return body[0]!;
  return body as unknown as Readable;
}
