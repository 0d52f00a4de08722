// The seam between adapters and the network: one request, its answer, and a body that is read piece by piece (11.1).
import type { Attempt } from '../adapters/base.ts';

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
  read(): Promise<Uint8Array | null>;
  /** Whether everything has been read, so that nothing is left to wait for. */
  ended(): boolean;
  /** Closes the connection unless the body has ended. */
  cancel(): void;
}

/** Resolves when the head of the response is here; rejects with the system's error, and at once when the signal aborts. */
export type Send = (request: HttpRequest) => Promise<HttpResponse>;
