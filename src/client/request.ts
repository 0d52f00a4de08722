// One HTTP request to a server and its one way to fail.

export interface ServerAddress {
  /** `http://127.0.0.1:8420`, with or without a path before the server's own and a slash at its end. */
  readonly baseUrl: string;
  readonly token?: string | null;
  /**
   * Called when no server answers at the address. Once it has resolved, `baseUrl` is read again: a stream goes on, and a request is
   * repeated where that is safe. Its rejection ends both.
   */
  readonly lost?: () => Promise<void>;
}

export type Parameters = object;

/** More than any answer of a Metis server. */
const MAX_ANSWER_BYTES = 128 * 1024 * 1024;

export interface RequestOptions {
  /** Values are strings, numbers, booleans or lists of strings; null and undefined are left out. */
  readonly query?: Parameters | undefined;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  /** Type of a successful answer; JSON by default. */
  readonly answer?: 'text';
  readonly signal?: AbortSignal | undefined;
}

/** The server answered with an error: programs decide by `code` (05 §1.10). */
export class ApiError extends Error {
  /** HTTP status; 0 when a stream was refused after its upgrade. */
  readonly status: number;
  readonly code: string;
  readonly details: Readonly<Record<string, unknown>>;

  constructor(status: number, code: string, message: string, details: Readonly<Record<string, unknown>>) {
    super(message);
    this.status = status;
    this.code = code;
    this.details = details;
    this.name = 'ApiError';
  }
}

/** `path` begins with a slash and is appended to the path of the base URL. */
export function resolveUrl({ baseUrl }: ServerAddress, path: string): URL {
  // A URL takes them for steps upwards, however they are encoded: the request would go to another operation.
  if (/\/\.{1,2}(?:\/|$)/.test(path)) throw new ApiError(400, 'validation_error', 'an id cannot be "." or ".."', {});
  const base = new URL(baseUrl);
  return new URL(`${base.pathname.replace(/\/+$/, '')}${path}`, base);
}

/**
 * Sends JSON and returns the parsed answer, or its text where that is asked for. Throws `ApiError` for every status but 2xx and for an answer that is no
 * JSON, `TypeError` when no server answers, the signal's reason when it is aborted.
 */
export async function request<T>(
  server: ServerAddress,
  method: string,
  path: string,
  options: RequestOptions = {},
): Promise<T> {
  try {
    return await requestOnce(server, method, path, options);
  } catch (error) {
    if (server.lost === undefined || !mayRepeat(error, method, options)) throw error;
    await server.lost();
    return requestOnce(server, method, path, options);
  }
}

/** Whether a request that failed can be sent again: no server took it, or a second one changes nothing. */
function mayRepeat(error: unknown, method: string, { headers, signal }: RequestOptions): boolean {
  if (!(error instanceof TypeError) || signal?.aborted) return false;
  const { code } = (error.cause ?? {}) as { readonly code?: unknown };
  return code === 'ECONNREFUSED' || method === 'GET' || headers?.['idempotency-key'] !== undefined;
}

async function requestOnce<T>(
  server: ServerAddress,
  method: string,
  path: string,
  options: RequestOptions,
): Promise<T> {
  const url = resolveUrl(server, path);
  for (const [name, value] of Object.entries(options.query ?? {})) {
    // A list becomes `a,b`, as every list parameter is written.
    if (value !== undefined && value !== null) url.searchParams.set(name, String(value));
  }
  const response = await fetch(url, {
    method,
    headers: {
      ...(options.body !== undefined && { 'content-type': 'application/json' }),
      ...(server.token ? { authorization: `Bearer ${server.token}` } : {}),
      ...options.headers,
    },
    ...(options.body !== undefined && { body: JSON.stringify(options.body) }),
    // No Metis server redirects. Another server must not get the request.
    redirect: 'manual',
    ...(options.signal ? { signal: options.signal } : {}),
  });
  const text = await readAnswer(response);
  if (!response.ok) throw toApiError(response.status, text);
  if (options.answer === 'text') return text as T;
  try {
    return JSON.parse(text === '' ? 'null' : text) as T;
  } catch {
    throw new ApiError(response.status, 'unknown', `${url.origin} does not answer like a Metis server`, {});
  }
}

/** Throws `ApiError` for an answer that is longer than any of a Metis server: it would fill the memory of the caller. */
async function readAnswer(response: Response): Promise<string> {
  const decoder = new TextDecoder();
  let text = '';
  let bytes = 0;
  const reader = response.body?.getReader();
  for (let part = await reader?.read(); part !== undefined && !part.done; part = await reader?.read()) {
    bytes += part.value.byteLength;
    if (bytes > MAX_ANSWER_BYTES) {
      await reader?.cancel();
      const limit = `${MAX_ANSWER_BYTES / 1024 / 1024} MiB`;
      throw new ApiError(response.status, 'unknown', `${new URL(response.url).origin} answered more than ${limit}`, {});
    }
    text += decoder.decode(part.value, { stream: true });
  }
  return text + decoder.decode();
}

function toApiError(status: number, text: string): ApiError {
  try {
    const { error } = JSON.parse(text) as {
      error: { code: string; message: string; details?: Record<string, unknown> };
    };
    return new ApiError(status, error.code, error.message, error.details ?? {});
  } catch {
    return new ApiError(status, 'unknown', `the server answered ${status} without an error body`, {});
  }
}
