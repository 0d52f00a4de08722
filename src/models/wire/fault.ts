// Failures on the wire, and the table that maps them to error classes (11.7).

import { faultOfValue, OUTSIDE } from '#core/policy/parsing/text-limits.ts';
import type { ErrorClass } from '#protocol/scalars.ts';

/** A failure of one attempt, which may be retried. */
export interface Fault {
  readonly error_class: ErrorClass;
  readonly error_detail: string | null;
  readonly provider_status: number | null;
  /** Not scrubbed yet. */
  readonly message: string;
  readonly retry_after_seconds: number | null;
}

/** Wraps a fault as an exception. */
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
  ['invalid_api_key', ['auth', null]],
  ['context_length_exceeded', ['context_overflow', null]],
  ['request_too_large', ['context_overflow', null]],
  ['api_error', ['server_error', null]],
  ['server_error', ['server_error', null]],
  ['timeout_error', ['network', 'timeout_error']],
  ['model_not_found', ['invalid_request', 'model_not_found']],
]);

const TOO_LONG =
  /context[\s\S]*(length|window)|(length|window)[\s\S]*context|tokens exceed|prompt is too long|too large|maximum context/i;

/** A 403 because of the request's content: other requests are not affected. */
const FLAGGED = /\b(moderat|flagged|content (policy|filter)|usage policy)/i;
/** A 403 about the requested model, not about the key. */
const DENIES_MODEL = /\bmodels?\b|\bthe specified resource\b|\b(access|permission) (to|for)\b/i;
/** A 404 about the model. Only the start counts: the rest may quote the client. */
const MISSES_MODEL = /^(the )?(requested )?model\b|^no endpoints found for\b/i;
/** A 403 about the key or the account behind it. */
const ABOUT_ACCOUNT =
  /api[ _-]?key|\bkey\b|credential|token|\baccount|organi[sz]ation|project|workspace|billing|\bcredits?\b|country|region|territor|oauth/i;
/** A 402 for the size of the request: a smaller one would be accepted. */
const ASKS_TOO_MUCH = /fewer max_tokens|can only afford/i;

/**
 * Class and detail of a failure that the provider reported.
 * @param status the HTTP status of the response, or the one an error inside a 200 response claims; null when neither is known
 */
export function classify(error: WireError | null, status: number | null): Verdict {
  const code = typeof error?.code === 'string' ? error.code : null;
  const scoped = classifyByMessage(error, status);
  if (scoped !== null) return scoped;
  // A quota error has `insufficient_quota` as type or code next to a generic name: the code is more specific.
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
  if (status !== null) return classifyByStatus(status);
  if (invalid) return ['invalid_request', code];
  return ['other', code];
}

/** The cause of a 402, 403 or 404: it follows from the message, not from the status. */
function classifyByMessage(error: WireError | null, status: number | null): Verdict | null {
  const { type = null, code = null, message = '' } = error ?? {};
  if (status === 402 && ASKS_TOO_MUCH.test(message)) return ['auth', 'credit_too_low'];
  if (status === 404 || type === 'not_found_error') {
    if (code === 'model_not_found') return ['invalid_request', 'model_not_found'];
    // A code names the reason; without one the message does.
    if (typeof code !== 'string' && MISSES_MODEL.test(message)) return ['invalid_request', 'model_not_found'];
    return ['invalid_request', 'not_found'];
  }
  if (status !== 403 && !(status === null && type === 'permission_error')) return null;
  if (code === 'model_not_found') return ['auth', 'model_denied'];
  if (BY_NAME.has(String(code)) || BY_NAME.has(String(type))) return null;
  if (FLAGGED.test(message)) return ['invalid_request', 'content_refused'];
  if (DENIES_MODEL.test(message)) return ['auth', 'model_denied'];
  if (ABOUT_ACCOUNT.test(message)) return ['auth', null];
  if (type === 'permission_error') return ['auth', 'model_denied'];
  return ['auth', 'forbidden'];
}

function classifyByStatus(status: number): Verdict {
  if (status === 429) return ['rate_limit', null];
  if (status === 529) return ['rate_limit', 'overloaded'];
  if (status === 401) return ['auth', null];
  if (status === 402) return ['auth', 'quota_exhausted'];
  if (status === 413) return ['context_overflow', null];
  if (status === 408) return ['network', null];
  if (status >= 500 && status <= 599) return ['server_error', null];
  if (status >= 400 && status <= 499) return ['invalid_request', null];
  return ['other', null];
}

/** Maximum characters read of an error message. */
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
  // An aggregator's own message is generic; `metadata.raw` has the message of its upstream.
  const metadata = error.metadata;
  let upstream: string | null = null;
  if (typeof metadata === 'object' && metadata !== null && 'raw' in metadata && typeof metadata.raw === 'string')
    upstream = metadata.raw;
  const limit = faultOfValue(error, OUTSIDE);
  let message = `an error that ${limit}`;
  if (typeof error.message === 'string') message = error.message;
  else if (limit === null) message = JSON.stringify(error);
  if (upstream !== null) message = `${message.slice(0, MAX_MESSAGE / 2)}: ${upstream}`;
  return {
    type: typeof error.type === 'string' ? error.type : null,
    code,
    status: typeof claimed === 'number' && claimed >= 400 && claimed <= 599 ? claimed : null,
    message: message.slice(0, MAX_MESSAGE),
  };
}

/** The fault of an error object that arrived inside a 200 response. */
export function toStreamFault(error: WireError): WireFault {
  const [error_class, detail] = classify(error, error.status);
  return new WireFault(fault(error_class, detail, error.message, { provider_status: error.status }));
}

/** The model declined to answer, or a filter withheld the answer. @param reason as the provider names it */
export function createRefusal(reason: string): WireFault {
  return new WireFault(
    fault('invalid_request', 'content_refused', `the model declined to answer (the provider reports "${reason}")`),
  );
}

/** The provider ended the answer for a reason that this server does not know: whether the answer is whole is unknown too. */
export function createUnknownStop(reason: string): WireFault {
  return new WireFault(
    fault('other', 'unknown_stop_reason', `the provider ended the answer for the unknown reason "${reason}"`),
  );
}
