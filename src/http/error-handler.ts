// Turns every error into its answer: one envelope, codes from one table, bugs opaque (05 §1.10).
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify';
import { StorageFault, TreeLost } from '#core/ports/journal-writer.ts';
import type { Logger } from '#core/ports/logger.ts';
import { AppError, type ErrorCode, validationError } from '#protocol/errors.ts';
import { scrub } from '#protocol/text/scrub.ts';
import { markNotTaken } from './forward/headers.ts';

/** Seconds after which a client may try again. */
const RETRY_SECONDS: Partial<Record<ErrorCode, number>> = {
  service_shutting_down: 5,
  node_unavailable: 1,
  server_busy: 1,
};

export interface ErrorEnvelope {
  readonly error: {
    readonly code: ErrorCode;
    readonly message: string;
    readonly details?: Readonly<Record<string, unknown>>;
  };
}

export function toEnvelope(error: AppError): ErrorEnvelope {
  const { code, message, details } = error;
  return { error: { code, message, ...(details !== undefined && { details }) } };
}

/** Null for a bug. */
export function toAppError(error: FastifyError | Error): AppError | null {
  if (error instanceof AppError) return error;
  if (error instanceof StorageFault)
    return new AppError(
      'storage_unavailable',
      `nothing can be stored: ${error.message}; try again when that is repaired`,
    );
  if (error instanceof TreeLost)
    return new AppError('node_unavailable', 'this node no longer holds the session; try again');
  return translateFastifyError('code' in error ? error.code : undefined);
}

/** What fastify finds wrong by itself, in our words; null for anything it did not raise. */
function translateFastifyError(code: string | undefined): AppError | null {
  switch (code) {
    case 'FST_ERR_CTP_BODY_TOO_LARGE':
      return new AppError('payload_too_large', 'the body is larger than this path accepts');
    case 'FST_ERR_CTP_INVALID_MEDIA_TYPE':
      return new AppError('unsupported_media_type', 'send the body as Content-Type: application/json');
    case 'FST_ERR_CTP_INVALID_JSON_BODY':
      return validationError([{ path: '', message: 'the body is not valid JSON' }]);
    case 'FST_ERR_CTP_INVALID_CONTENT_LENGTH':
      return validationError([{ path: '', message: 'the body is not as long as its Content-Length' }]);
    default:
      return null;
  }
}

/**
 * The error handler of the server: an `AppError` as it is, a bug as `internal_error` with the id of its log line.
 * @param secrets values that must not reach the log
 */
export function createErrorHandler(log: Logger, secrets: readonly string[]) {
  return function handleError(error: FastifyError | Error, request: FastifyRequest, reply: FastifyReply): void {
    const answer = toAppError(error) ?? detectAbortedBody(log, request) ?? logBug(error, request);
    const retry = RETRY_SECONDS[answer.code];
    if (retry !== undefined) reply.header('retry-after', retry);
    if (answer.code === 'service_shutting_down') markNotTaken(request, reply);
    // What was asked may have begun before the tree went.
    if (error instanceof TreeLost) markNotTaken(request, reply, 'perhaps');
    if (answer.code === 'unauthorized') reply.header('www-authenticate', 'Bearer');
    reply.status(answer.status).send(toEnvelope(answer));
  };

  function logBug(error: Error, request: FastifyRequest): AppError {
    const { method, id: request_id } = request;
    const path = request.routeOptions.url ?? null;
    log.error(
      { request_id, method, path, ...readPathIds(request), error: scrub(error.stack ?? String(error), { secrets }) },
      'request failed',
    );
    return new AppError('internal_error', 'an unexpected error; the log has it under this request id', { request_id });
  }
}

/** Session and turn of the path, where it names them. */
function readPathIds({ params }: FastifyRequest): Readonly<Record<string, unknown>> {
  const { session_id, turn_id } = (params ?? {}) as Readonly<Record<string, unknown>>;
  return { ...(session_id !== undefined && { session_id }), ...(turn_id !== undefined && { turn_id }) };
}

/** The error for a connection that closed before its body was complete; null while it is open. */
export function detectAbortedBody(
  log: Logger,
  { id: request_id, method, routeOptions, raw }: FastifyRequest,
): AppError | null {
  if (!raw.destroyed || raw.complete) return null;
  log.debug(
    { request_id, method, path: routeOptions.url ?? null },
    'the client closed the connection before its body was complete',
  );
  return validationError([{ path: '', message: 'the body ended before it was whole' }]);
}

export const MAX_TARGET_BYTES = 8192;

export function uriTooLong(): AppError {
  return new AppError('uri_too_long', `the request target is longer than ${MAX_TARGET_BYTES} bytes`);
}

/** @param resource which noun is missing; `route` when the path itself is */
export function notFound(resource: string, id?: string): AppError {
  const none = resource === 'route' ? 'no such route; GET /docs shows all of them' : `no such ${resource}`;
  const message = id === undefined ? none : `no ${resource} with id ${id}`;
  return new AppError('not_found', message, { resource });
}

/** @throws `not_found` when the value is null */
export function requireFound<T>(value: T | null, resource: string, id: string): T {
  if (value === null) throw notFound(resource, id);
  return value;
}
