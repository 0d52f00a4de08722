// How a route is documented: its id, its results, and every error it may answer (05 §1.10, §5).
import type { FastifyContextConfig } from 'fastify';
import { z } from 'zod';
import { ERRORS, type ErrorCode } from '#protocol/errors.ts';
import { OPERATION_ROLES, type OperationId } from '#protocol/people/rights.ts';

/** What the gates may answer on any path. */
const GATE_ERRORS: readonly ErrorCode[] = [
  'service_shutting_down',
  'too_many_connections',
  'host_not_allowed',
  'origin_not_allowed',
  'uri_too_long',
  'headers_too_large',
  'expectation_failed',
  // An upgrade that the path does not take, and a body that it does not need.
  'validation_error',
  'payload_too_large',
  'unsupported_media_type',
  'storage_unavailable',
  'internal_error',
];
/** For operations that the owner of the session's tree answers, which may be another node (16 §5). */
const OWNER_ERRORS: readonly ErrorCode[] = ['node_unavailable', 'misdirected_request'];
const TOKEN_ERRORS: readonly ErrorCode[] = ['unauthorized', 'forbidden', 'rate_limit_exceeded'];

interface Bodies {
  readonly content: Readonly<Record<string, { readonly schema: z.ZodType }>>;
}

/** Headers that change what an operation does, as the document explains them. */
export const REQUEST_HEADERS = {
  'Idempotency-Key': 'Makes a retry safe for 24 hours: 1 to 255 printable ASCII characters.',
  Prefer: 'wait=<seconds>, at most 600: answers once the work has ended or is interrupted.',
  'Last-Event-ID': 'Resumes behind this event, in place of since and snapshot.',
} as const;
export type RequestHeader = keyof typeof REQUEST_HEADERS;

export interface Operation {
  /** Unique, camelCase. */
  readonly id: OperationId;
  readonly tag:
    | 'sessions'
    | 'turns'
    | 'confirmations'
    | 'history'
    | 'models'
    | 'workers'
    | 'analytics'
    | 'people'
    | 'maintenance'
    | 'meta';
  readonly summary: string;
  /** Status -> body, or bodies by media type; null = none. */
  readonly results: Readonly<Record<number, z.ZodType | Bodies | null>>;
  /** Its own codes, besides those of the gates. */
  readonly errors: readonly ErrorCode[];
  readonly headers?: readonly RequestHeader[];
  /** The owner of the tree answers it. */
  readonly owned?: boolean;
  /** Its good answers say where the new resource is. */
  readonly locates?: boolean;
  /** As in the route's config. */
  readonly open?: FastifyContextConfig['open'];
}

/**
 * The documenting half of a route's schema. Nothing of it runs when a request is served, and the schemas of its answers
 * are made for the document alone: 385 of them, in each start.
 */
export function operation({ id, tag, summary, results, errors, open, headers, locates, owned }: Operation) {
  return {
    operationId: id,
    tags: [tag],
    summary,
    ...(OPERATION_ROLES[id] !== 'open' && { 'x-metis-role': OPERATION_ROLES[id] }),
    ...(open !== undefined && { security: SECURITY[open] }),
    ...(headers !== undefined && { 'x-headers': headers }),
    ...(locates === true && { 'x-locates': true }),
    describeAnswers: () => {
      const elsewhere = owned === true ? OWNER_ERRORS : [];
      const codes = new Set([...GATE_ERRORS, ...(open === 'everywhere' ? [] : TOKEN_ERRORS), ...elsewhere, ...errors]);
      const answers: Record<string, unknown> = {};
      for (const status of new Set([...codes].map((code) => ERRORS[code].status))) {
        answers[status] = getErrorSchema([...codes].filter((code) => ERRORS[code].status === status));
      }
      for (const [status, schema] of Object.entries(results)) answers[status] = schema ?? NO_BODY;
      return answers;
    },
  };
}

/** Of a route's schema: what `operation` adds for the document. */
export interface DescribedSchema {
  describeAnswers?: () => Record<string, unknown>;
  response?: unknown;
}

const NO_BODY = z.null();
/** An empty requirement is one of several choices: there, a token may be left out. */
const SECURITY = { everywhere: [], on_loopback: [{}, { bearerAuth: [] }] };

const ENVELOPES = new Map<string, ReturnType<typeof buildEnvelopeSchema>>();

/** The error envelope with one of these codes: most operations share theirs. */
export function getErrorSchema(codes: readonly ErrorCode[]): ReturnType<typeof buildEnvelopeSchema> {
  const key = codes.join(' ');
  const made = ENVELOPES.get(key) ?? buildEnvelopeSchema(codes);
  ENVELOPES.set(key, made);
  return made;
}

function buildEnvelopeSchema(codes: readonly ErrorCode[]) {
  return z.object({
    error: z.object({
      code: z.enum(codes),
      message: z.string(),
      details: z.record(z.string(), z.unknown()).optional(),
    }),
  });
}
