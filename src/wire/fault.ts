// What went wrong on the wire, and the one table that turns it into an error class (11.7).
import type { ErrorClass } from '../domain/scalars.ts';
import { faultOfValue, OUTSIDE } from '../policy/parsing/limits.ts';

/** A failure of one attempt, before it is known whether it will be retried. */
export interface Fault {
  readonly error_class: ErrorClass;
  readonly error_detail: string | null;
  readonly provider_status: number | null;
  /** Not scrubbed yet. */
  readonly message: string;
  readonly retry_after_seconds: number | null;
}

/** Carries a fault through code that reads a stream. */
export class WireFault extends Error {
  readonly fault: Fault;

  constructor(fault: Fault) {
    super(fault.message);
    this.fault = fault;
    this.name = 'WireFault';
  }
}

export function fault(
  error_class: ErrorClass,
  error_detail: string | null,
  message: string,
  rest: Partial<Omit<Fault, 'error_class' | 'error_detail' | 'message'>> = {},
): Fault {
  return {
    error_class,
    error_detail,
    message,
    provider_status: rest.provider_status ?? null,
    retry_after_seconds: rest.retry_after_seconds ?? null,
  };
}

/** The error object of a response body or of an event in a stream, as far as it can be read. */
export interface WireError {
  readonly type: string | null;
  readonly code: string | number | null;
  readonly status: number | null;
  readonly message: string;
}

type Verdict = readonly [ErrorClass, string | null];

/** Names that providers put into `type` or `code`; these beat the status. */
const BY_NAME: ReadonlyMap<string, Verdict> = new Map<string, Verdict>([
  ['rate_limit_error', ['rate_limit', null]],
  ['rate_limit_exceeded', ['rate_limit', null]],
  ['overloaded_error', ['rate_limit', 'overloaded']],
  ['insufficient_quota', ['auth', 'quota_exhausted']],
  ['billing_error', ['auth', 'quota_exhausted']],
  ['authentication_error', ['auth', null]],
  ['permission_error', ['auth', null]],
  ['invalid_api_key', ['auth', null]],
  ['context_length_exceeded', ['context_overflow', null]],
  ['request_too_large', ['context_overflow', null]],
  ['api_error', ['server_error', null]],
  ['server_error', ['server_error', null]],
  ['timeout_error', ['network', 'timeout_error']],
  ['model_not_found', ['invalid_request', 'model_not_found']],
  ['not_found_error', ['invalid_request', 'model_not_found']],
]);

const TOO_LONG =
  /context[\s\S]*(length|window)|(length|window)[\s\S]*context|tokens exceed|prompt is too long|too large|maximum context/i;

/**
 * Class and detail of a failure that the provider reported.
 * @param status the HTTP status of the response, or the one an error inside a 200 response claims; null when neither is known
 */
export function classify(error: WireError | null, status: number | null): Verdict {
  const code = typeof error?.code === 'string' ? error.code : null;
  // A quota error comes as type `insufficient_quota` or as its code, beside a generic other name: the code is narrower.
  const named = (code !== null && BY_NAME.get(code)) || (error?.type != null && BY_NAME.get(error.type)) || null;
  if (named) return named;
  const invalid = error?.type === 'invalid_request_error';
  if (
    error !== null &&
    (invalid || status === 400) &&
    (status === null || status === 400) &&
    TOO_LONG.test(error.message)
  )
    return ['context_overflow', null];
  if (status !== null) return byStatus(status);
  return invalid ? ['invalid_request', code] : ['other', code];
}

function byStatus(status: number): Verdict {
  if (status === 429) return ['rate_limit', null];
  if (status === 529) return ['rate_limit', 'overloaded'];
  if (status === 401 || status === 403) return ['auth', null];
  if (status === 402) return ['auth', 'quota_exhausted'];
  if (status === 413) return ['context_overflow', null];
  if (status === 408) return ['network', null];
  if (status === 404) return ['invalid_request', 'model_not_found'];
  if (status >= 500 && status <= 599) return ['server_error', null];
  if (status >= 400 && status <= 499) return ['invalid_request', null];
  return ['other', null];
}

/** Characters of a failure's message that are read: it is searched for words and shown to people. */
const MAX_MESSAGE = 4096;

/** Reads `{error: {type, code, message, ...}}` or `{error: "text"}`; null when there is no error in it. */
export function readWireError(body: unknown): WireError | null {
  if (typeof body !== 'object' || body === null || !('error' in body)) return null;
  const raw = body.error;
  if (typeof raw === 'string') return { type: null, code: null, status: null, message: raw.slice(0, MAX_MESSAGE) };
  if (typeof raw !== 'object' || raw === null) return null;
  const error = raw as Record<string, unknown>;
  const code = typeof error.code === 'string' || typeof error.code === 'number' ? error.code : null;
  const claimed = typeof code === 'number' ? code : error.status_code;
  // An aggregator's own message says little; what its upstream said stands in `metadata.raw`.
  const metadata = error.metadata;
  const upstream =
    typeof metadata === 'object' && metadata !== null && 'raw' in metadata && typeof metadata.raw === 'string'
      ? metadata.raw
      : null;
  const limit = faultOfValue(error, OUTSIDE);
  const whole = limit === null ? JSON.stringify(error) : `an error that ${limit}`;
  const message = typeof error.message === 'string' ? error.message : whole;
  return {
    type: typeof error.type === 'string' ? error.type : null,
    code,
    status: typeof claimed === 'number' && claimed >= 400 && claimed <= 599 ? claimed : null,
    message: (upstream === null ? message : `${message.slice(0, MAX_MESSAGE / 2)}: ${upstream}`).slice(0, MAX_MESSAGE),
  };
}

/** The fault of an error object that arrived inside a 200 response. */
export function streamFault(error: WireError): WireFault {
  const [error_class, detail] = classify(error, error.status);
  return new WireFault(fault(error_class, detail, error.message, { provider_status: error.status }));
}
