// A session's events as an async iterator that survives broken connections (06 §2-§4, §11).
import { createBackoff, LONGEST_DELAY_MS } from './backoff.ts';
import { type Closed, connect } from './connection.ts';
import type { StreamEventType, StreamItem } from './events.ts';
import { ApiError, request, type ServerAddress, urlOf } from './request.ts';

export interface StreamOptions {
  readonly types?: readonly StreamEventType[];
  /** What a chat window shows; not together with `types`. */
  readonly preset?: 'chat';
  /** The events of all workers below the session too. */
  readonly include_worker_sessions?: boolean;
  /** Events after this id. Without it and without `snapshot` the stream starts with what comes next. */
  readonly since?: string;
  /** First the state as it is; `since` then counts for nothing. */
  readonly snapshot?: boolean;
  /** Ends the stream, without an error. */
  readonly signal?: AbortSignal;
  /** Told `false` when the connection is lost, and `true` when it stands, the first time and again. */
  readonly connected?: (yes: boolean) => void;
}

/** Closed because the client is wrong: trying again changes nothing. */
const FINAL_CLOSE_CODES = new Set([1003, 1007, 1008, 1009]);
const CURSOR_EXPIRED = 'cursor_expired';

/**
 * Yields every event once and in order. A lost connection is taken up again after the last id seen, for as long as it
 * takes; when the server no longer holds that place, with a snapshot. Ends with the session. Throws `ApiError` when the
 * server refuses.
 */
export async function* streamSession(
  server: ServerAddress,
  sessionId: string,
  options: StreamOptions = {},
  wait: typeof pause = pause,
): AsyncGenerator<StreamItem, void, undefined> {
  const { signal, types, preset, include_worker_sessions } = options;
  let since = options.since ?? null;
  let snapshot = options.snapshot ?? false;
  const backoff = createBackoff();
  let standing: boolean | null = null;
  const tell = (yes: boolean) => {
    if (standing !== yes) options.connected?.(yes);
    standing = yes;
  };
  while (!signal?.aborted) {
    const connection = await connect(streamUrl(server, sessionId), {
      type: 'subscribe',
      types,
      preset,
      include_worker_sessions,
      ...(snapshot ? { snapshot } : since === null ? {} : { since }),
      ...(server.token ? { token: server.token } : {}),
    });
    const stop = () => connection.close();
    signal?.addEventListener('abort', stop, { once: true });
    if (signal?.aborted) stop();
    let lost = false;
    const gone = new AbortController();
    try {
      while (!signal?.aborted) {
        const frame = await connection.next();
        if (frame === null) break;
        if (frame.type === 'subscribe_ack') {
          tell(true);
          void wait(LONGEST_DELAY_MS, gone.signal).then(() => gone.signal.aborted || backoff.good());
          // Where the stream began: a connection that breaks before its first event goes on from there.
          since ??= frame.since;
        } else if (frame.type === 'subscribe_error') {
          if (frame.code !== CURSOR_EXPIRED) throw new ApiError(0, frame.code, frame.message, {});
          lost = true;
          snapshot = true;
          since = null;
        } else if (frame.type === 'snapshot') {
          backoff.good();
          snapshot = false;
          since = frame.snapshot_at_event_id;
          yield frame;
        } else if (frame.type === 'event') {
          const { id } = frame.event;
          if (id !== null && since !== null && id <= since) continue;
          backoff.good();
          if (id !== null) since = id;
          yield frame;
        }
      }
    } finally {
      signal?.removeEventListener('abort', stop);
      gone.abort();
      connection.close();
    }
    const closed = connection.closed();
    if (signal?.aborted || closed.code === 1000) return;
    if (!lost) refuseFinal(closed);
    tell(false);
    if (!closed.opened) await server.lost?.();
    // A refused upgrade does not tell a socket why; the same session over HTTP does.
    if (!closed.opened) await explainRefusal(server, sessionId, signal);
    await wait(backoff.lost(), signal);
  }
}

function refuseFinal({ code, reason }: Closed): void {
  if (!FINAL_CLOSE_CODES.has(code)) return;
  const why = reason === '' ? '' : `: ${reason}`;
  throw new ApiError(
    0,
    reason === '' ? 'stream_closed' : reason,
    `the server closed the stream with ${code}${why}`,
    {},
  );
}

async function explainRefusal(server: ServerAddress, sessionId: string, signal?: AbortSignal): Promise<void> {
  try {
    await request(server, 'GET', `/sessions/${encodeURIComponent(sessionId)}`, { signal });
  } catch (error) {
    if (error instanceof ApiError && error.status < 500) throw error;
  }
}

function streamUrl(server: ServerAddress, sessionId: string): string {
  const url = urlOf(server, `/sessions/${encodeURIComponent(sessionId)}/stream`);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  return url.href;
}

/** Ends early when `signal` is aborted. */
function pause(ms: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const timer = setTimeout(done, ms);
    signal?.addEventListener('abort', done, { once: true });
    function done(): void {
      clearTimeout(timer);
      signal?.removeEventListener('abort', done);
      resolve();
    }
  });
}
