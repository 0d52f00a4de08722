// The one error table: every public error code, its HTTP status and whether the same request may succeed later (05 §1.10).

import { shortenText } from './text/plain-text.ts';

export const ERRORS = {
  validation_error: { status: 400, retryable: false },
  unknown_alias: { status: 400, retryable: false },
  override_missing_body: { status: 400, retryable: false },
  model_not_configured: { status: 400, retryable: false },
  invalid_modified_input: { status: 400, retryable: false },
  unauthorized: { status: 401, retryable: false },
  budget_exceeded: { status: 402, retryable: false },
  unbounded_request: { status: 402, retryable: false },
  host_not_allowed: { status: 403, retryable: false },
  forbidden: { status: 403, retryable: false },
  origin_not_allowed: { status: 403, retryable: false },
  workspace_not_allowed: { status: 403, retryable: false },
  workspace_not_shared: { status: 403, retryable: false },
  approval_mode_not_allowed: { status: 403, retryable: false },
  not_found: { status: 404, retryable: false },
  method_not_allowed: { status: 405, retryable: false },
  session_already_ended: { status: 409, retryable: false },
  session_is_worker: { status: 409, retryable: false },
  session_is_gateway: { status: 409, retryable: false },
  turn_in_flight: { status: 409, retryable: true },
  turn_already_completed: { status: 409, retryable: false },
  turn_not_interrupted: { status: 409, retryable: false },
  turn_not_running: { status: 409, retryable: false },
  confirmation_already_resolved: { status: 409, retryable: false },
  invalid_fork_point: { status: 409, retryable: false },
  case_not_recorded: { status: 409, retryable: false },
  not_modifiable: { status: 409, retryable: false },
  worker_exists: { status: 409, retryable: false },
  worker_locked: { status: 409, retryable: false },
  worker_read_only: { status: 409, retryable: false },
  cursor_expired: { status: 409, retryable: false },
  idempotency_in_progress: { status: 409, retryable: true },
  token_name_taken: { status: 409, retryable: false },
  token_in_file: { status: 409, retryable: false },
  last_admin: { status: 409, retryable: false },
  maintenance_running: { status: 409, retryable: true },
  payload_too_large: { status: 413, retryable: false },
  uri_too_long: { status: 414, retryable: false },
  unsupported_media_type: { status: 415, retryable: false },
  expectation_failed: { status: 417, retryable: false },
  misdirected_request: { status: 421, retryable: true },
  explicit_model_rejected: { status: 422, retryable: false },
  idempotency_key_reused: { status: 422, retryable: false },
  rate_limit_exceeded: { status: 429, retryable: true },
  headers_too_large: { status: 431, retryable: false },
  internal_error: { status: 500, retryable: false },
  routing_failed: { status: 503, retryable: true },
  node_unavailable: { status: 503, retryable: true },
  server_busy: { status: 503, retryable: true },
  storage_unavailable: { status: 503, retryable: true },
  too_many_connections: { status: 503, retryable: true },
  service_shutting_down: { status: 503, retryable: true },
} as const satisfies Record<string, { status: number; retryable: boolean }>;

export type ErrorCode = keyof typeof ERRORS;
export const ERROR_CODES = Object.keys(ERRORS) as ErrorCode[];

/** One fault of form: where and what. */
export interface Issue {
  readonly path: string;
  readonly message: string;
}

/** A caller's fault, or a state that forbids the request: crosses the wire as `{error: {code, message, details}}`. */
export class AppError extends Error {
  readonly code: ErrorCode;
  readonly details: Readonly<Record<string, unknown>> | undefined;

  constructor(code: ErrorCode, message: string, details?: Readonly<Record<string, unknown>>) {
    super(message);
    this.code = code;
    this.details = details;
    this.name = 'AppError';
  }

  get status(): number {
    return ERRORS[this.code].status;
  }
}

/** `validation_error` from its issues; the message names the first one, so that a person sees the field at once. */
export function validationError(issues: readonly Issue[]): AppError {
  const shown = issues
    .slice(0, MAX_ISSUES)
    .map(({ path, message }) => ({ path: shortenText(path, MAX_PATH), message }));
  const first = shown[0];
  const more = issues.length > 1 ? ` (and ${issues.length - 1} more)` : '';
  const where = first && first.path !== '' ? `${first.path}: ` : '';
  return new AppError('validation_error', `${where}${first?.message ?? 'invalid input'}${more}`, { issues: shown });
}

const MAX_ISSUES = 100;
/** A path holds the names that a caller gave, which may be as long as the body and of many lines. */
export const MAX_PATH = 200;

/** A fault that stops the process at start: one line for the person, exit code 1. */
export class StartupError extends Error {
  readonly code: string;
  /** One line per problem. */
  readonly problems: readonly string[];

  constructor(code: string, problems: readonly string[]) {
    super(problems.join('\n'));
    this.code = code;
    this.problems = problems;
    this.name = 'StartupError';
  }
}
