// Errors of the gateway in the format of each wire, with the statuses that its clients act on (19 §2.6).

import { RelayFault } from '#core/ports/gateway-relay.ts';
import type { ClientWire } from '#protocol/client-wire.ts';
import { AppError, type ErrorCode } from '#protocol/errors.ts';

export interface WireAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: unknown;
}

/** Seconds after which a client may come again. */
const RETRY_SECONDS = 5;

interface Kind {
  readonly status: number;
  /** `error.type` of Anthropic Messages. */
  readonly messages: string;
  /** `error.type` of OpenAI's wires. */
  readonly openai: string;
}

const INVALID: Kind = { status: 400, messages: 'invalid_request_error', openai: 'invalid_request_error' };
const KINDS: Partial<Record<ErrorCode, Kind>> = {
  budget_exceeded: { status: 402, messages: 'billing_error', openai: 'insufficient_quota' },
  unbounded_request: { status: 402, messages: 'billing_error', openai: 'insufficient_quota' },
  unauthorized: { status: 401, messages: 'authentication_error', openai: 'invalid_request_error' },
  forbidden: { status: 403, messages: 'permission_error', openai: 'invalid_request_error' },
  host_not_allowed: { status: 403, messages: 'permission_error', openai: 'invalid_request_error' },
  origin_not_allowed: { status: 403, messages: 'permission_error', openai: 'invalid_request_error' },
  workspace_not_allowed: { status: 400, messages: 'invalid_request_error', openai: 'invalid_request_error' },
  workspace_not_shared: { status: 400, messages: 'invalid_request_error', openai: 'invalid_request_error' },
  not_found: { status: 404, messages: 'not_found_error', openai: 'invalid_request_error' },
  method_not_allowed: { status: 405, messages: 'invalid_request_error', openai: 'invalid_request_error' },
  payload_too_large: { status: 413, messages: 'request_too_large', openai: 'invalid_request_error' },
  rate_limit_exceeded: { status: 429, messages: 'rate_limit_error', openai: 'rate_limit_error' },
  internal_error: { status: 500, messages: 'api_error', openai: 'server_error' },
  storage_unavailable: { status: 503, messages: 'api_error', openai: 'server_error' },
  node_unavailable: { status: 503, messages: 'api_error', openai: 'server_error' },
  misdirected_request: { status: 421, messages: 'api_error', openai: 'server_error' },
  service_shutting_down: { status: 503, messages: 'api_error', openai: 'server_error' },
};
const OVERLOADED: Kind = { status: 529, messages: 'overloaded_error', openai: 'server_error' };

/** @param id of the request, by which the log is searched */
export function wireError(wire: ClientWire, error: AppError | RelayFault, id: string): WireAnswer {
  const code = error instanceof AppError ? error.code : 'provider_unreachable';
  const kind = classifyError(error);
  const status = chooseStatus(wire, kind);
  const message = formatMessage(error);
  const headers = {
    ...([400, 402, 413].includes(status) && { 'x-should-retry': 'false' }),
    ...([429, 503].includes(status) && { 'retry-after': String(RETRY_SECONDS) }),
    ...(status === 401 && { 'www-authenticate': 'Bearer' }),
  };
  const body =
    wire === 'messages'
      ? { type: 'error', error: { type: kind.messages, message }, request_id: id }
      : { error: { message, type: kind.openai, param: null, code } };
  return { status, headers, body };
}

function classifyError(error: AppError | RelayFault): Kind {
  if (error instanceof RelayFault) return { status: 502, messages: 'api_error', openai: 'server_error' };
  if (error.code === 'routing_failed' || error.code === 'explicit_model_rejected') {
    if (isTransientOutage(error)) return OVERLOADED;
    return INVALID;
  }
  return KINDS[error.code] ?? INVALID;
}

/** Whether the same call may succeed soon. An operator has to act first where a key or a model was refused. */
function isTransientOutage({ details = {} }: AppError): boolean {
  const { outages } = details;
  return (
    Array.isArray(outages) &&
    outages.some((one: { trigger_reason?: unknown }) => one.trigger_reason === '5_consecutive_failures')
  );
}

/** Codex repeats a 402, and shows a 400; 529 is Anthropic's own. */
function chooseStatus(wire: ClientWire, { status }: Kind): number {
  if (wire === 'responses' && status === 402) return 400;
  if (wire !== 'messages' && status === 529) return 503;
  return status;
}

function formatMessage(error: AppError | RelayFault): string {
  if (error instanceof RelayFault) return `Metis could not reach the provider: ${error.message}`;
  const session = error.details?.session_id;
  if (typeof session === 'string') return `${error.message} (session ${session})`;
  return error.message;
}
