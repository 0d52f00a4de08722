// How a route is documented: its id, its results, and every error it may answer (05 §1.10, §5).
import { z } from 'zod';
import { ERRORS, type ErrorCode } from '../kernel/errors.ts';

/** What the gates may answer on any path. */
const GATE_ERRORS: readonly ErrorCode[] = [
  'service_shutting_down',
  'host_not_allowed',
  'origin_not_allowed',
  'uri_too_long',
  'headers_too_large',
  'expectation_failed',
  'storage_unavailable',
  'internal_error',
];
const TOKEN_ERRORS: readonly ErrorCode[] = ['unauthorized', 'rate_limit_exceeded'];
const BODY_ERRORS: readonly ErrorCode[] = ['unsupported_media_type', 'payload_too_large', 'validation_error'];

interface Bodies {
  readonly content: Readonly<Record<string, { readonly schema: z.ZodType }>>;
}

export interface Operation {
  /** Unique, camelCase. */
  readonly id: string;
  readonly tag: 'sessions' | 'turns' | 'confirmations' | 'history' | 'models' | 'analytics' | 'maintenance' | 'meta';
  readonly summary: string;
  /** Status -> body, or bodies by media type; null = none. */
  readonly results: Readonly<Record<number, z.ZodType | Bodies | null>>;
  /** Its own codes, besides those of the gates. */
  readonly errors: readonly ErrorCode[];
  /** Reads a body. */
  readonly body?: boolean;
  /** Needs no token. */
  readonly open?: boolean;
}

/** The documenting half of a route's schema. Nothing of it runs when a request is served. */
export function operation({ id, tag, summary, results, errors, body = false, open = false }: Operation) {
  const codes = new Set([...GATE_ERRORS, ...(open ? [] : TOKEN_ERRORS), ...(body ? BODY_ERRORS : []), ...errors]);
  const response: Record<string, unknown> = {};
  for (const status of new Set([...codes].map((code) => ERRORS[code].status))) {
    response[status] = errorsOf([...codes].filter((code) => ERRORS[code].status === status));
  }
  for (const [status, schema] of Object.entries(results)) response[status] = schema ?? NO_BODY;
  return { operationId: id, tags: [tag], summary, ...(open ? { security: [] } : {}), response };
}

const NO_BODY = z.null();

/** The error envelope with one of these codes. */
export function errorsOf(codes: readonly ErrorCode[]) {
  return z.object({
    error: z.object({
      code: z.enum(codes),
      message: z.string(),
      details: z.record(z.string(), z.unknown()).optional(),
    }),
  });
}
