// One HTTP request to a server and its one way to fail.

export interface ServerAddress {
  /** `http://127.0.0.1:8420`, with or without a path before the server's own and a slash at its end. */
  readonly baseUrl: string;
  readonly token?: string | null;
}

export type Parameters = object;

export interface RequestOptions {
  /** Values are strings, numbers, booleans or lists of strings; null and undefined are left out. */
  readonly query?: Parameters | undefined;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal | undefined;
}

/** The server said no: `code` is what a program dispatches on (05 §1.10). */
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

/** `path` begins with a slash and stands below the path of the base URL. */
export function urlOf({ baseUrl }: ServerAddress, path: string): URL {
  const base = new URL(baseUrl);
  return new URL(`${base.pathname.replace(/\/+$/, '')}${path}`, base);
}

/**
 * Sends JSON and returns the parsed answer. Throws `ApiError` for every status but 2xx and for an answer that is no
 * JSON, `TypeError` when nobody answers, the signal's reason when it is aborted.
 */
export async function request<T>(
  server: ServerAddress,
  method: string,
  path: string,
  options: RequestOptions = {},
): Promise<T> {
  const url = urlOf(server, path);
  for (const [name, value] of Object.entries(options.query ?? {})) {
    // A list becomes `a,b`, as every list parameter is written.
    if (value !== undefined && value !== null) url.searchParams.set(name, String(value));
  }
  const response = await fetch(url, {
    method,
    headers: {
      ...(options.body === undefined ? {} : { 'content-type': 'application/json' }),
      ...(server.token ? { authorization: `Bearer ${server.token}` } : {}),
      ...options.headers,
    },
    ...(options.body === undefined ? {} : { body: JSON.stringify(options.body) }),
    ...(options.signal ? { signal: options.signal } : {}),
  });
  const text = await response.text();
  if (!response.ok) throw toApiError(response.status, text);
  try {
    return JSON.parse(text === '' ? 'null' : text) as T;
  } catch {
    throw new ApiError(response.status, 'unknown', `${url.origin} does not answer like a Metis server`, {});
  }
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
