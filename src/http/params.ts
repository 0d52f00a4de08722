// Shared schemas of paths, queries and pages, and how their faults are reported (05 §1.6, §1.7).
import type { FastifySchemaCompiler } from 'fastify';
import { z } from 'zod';
import { shownName } from '#core/policy/cut.ts';
import { findNearestKey } from '#core/policy/parsing/known-keys.ts';
import { describeIssues } from '#core/policy/parsing/plain-issue.ts';
import { type Issue, validationError } from '#protocol/errors.ts';
import { ConfirmationIdSchema, SessionIdSchema, TurnIdSchema } from '#protocol/scalars.ts';
import { canonicalJson, sha256Hex } from '#protocol/text/canonical-json.ts';

export const SessionParams = z.object({ session_id: SessionIdSchema });
export const TurnParams = z.object({ session_id: SessionIdSchema, turn_id: TurnIdSchema });
export const WorkerSessionParams = z.object({ worker_session_id: SessionIdSchema });
export const ConfirmationParams = z.object({ confirmation_id: ConfirmationIdSchema });

const BOOLEANS: Readonly<Record<string, boolean>> = {
  true: true,
  '1': true,
  yes: true,
  false: false,
  '0': false,
  no: false,
};

/**
 * A query flag.
 * @param otherwise where it is absent
 * @param description for readers of the document
 */
export function flag(otherwise: boolean, description: string) {
  return z
    .string()
    .optional()
    .transform((text, context) => {
      if (text === undefined) return otherwise;
      const value = BOOLEANS[text.toLowerCase()];
      if (value !== undefined) return value;
      context.addIssue({ code: 'custom', message: 'must be one of true, 1, yes, false, 0, no' });
      return z.NEVER;
    })
    .describe(`${description} Default: ${otherwise}.`);
}

/** A page size: at least 1, clamped to `max`. */
export function limit(standard: number, max: number) {
  return z
    .string()
    .regex(/^0*[1-9]\d{0,30}$/, 'must be an integer of at least 1')
    .optional()
    .transform((text) => Math.min(max, text === undefined ? standard : Number(text)))
    .describe(`Rows per page. Default: ${standard}, at most ${max}.`);
}

/** Longest choice, and most unknown names, that are listed in full. */
const MAX_NAMED = 12;

/** A comma-separated list of names out of `allowed`. */
export function nameList<const T extends readonly string[]>(allowed: T) {
  const names = new Set<string>(allowed);
  return z.string().transform((text, context): T[number][] => {
    const items = text.split(',').map((item) => item.trim());
    const unknown = items.filter((item) => !names.has(item));
    if (unknown.length === 0) return [...new Set(items)];
    const named = unknown.slice(0, MAX_NAMED).map(shownName).join(', ');
    const list = unknown.length > MAX_NAMED ? `${named} and ${unknown.length - MAX_NAMED} more` : named;
    const near = findNearestKey(unknown[0]!, allowed);
    const meant = near === null ? '' : `; did you mean "${near}"?`;
    const choice = allowed.length > MAX_NAMED ? meant : `; known: ${allowed.join(', ')}`;
    context.addIssue({ code: 'custom', message: `unknown: ${list}${choice}` });
    return z.NEVER;
  });
}

export const CursorSchema = z.string().max(1024).optional().describe('next_cursor of the page before.');
export const PageQuery = { cursor: CursorSchema, limit: limit(50, 200) };

/** A zod error as issues: dotted paths, and each unknown key under its own name. */
function listIssues(error: z.core.$ZodError, schema: z.ZodType): Issue[] {
  return describeIssues(error, schema).map(({ path, message }) => ({ path: path.map(String).join('.'), message }));
}

/** Parses or throws `validation_error`. */
export function parseOrThrow<T extends z.ZodType>(schema: T, value: unknown): z.output<T> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  throw validationError(listIssues(result.error, schema));
}

/** A field may have been sent in the other part of the request, where it counts for nothing. */
function namePart({ path, message }: Issue, part: string | undefined): Issue {
  if (message !== 'is required' || path.includes('.')) return { path, message };
  if (part === 'querystring') return { path, message: `${message} in the query` };
  if (part === 'body') return { path, message: `${message} in the body` };
  return { path, message };
}

/** Request validation for fastify: same schemas, our error. */
export const requestValidator: FastifySchemaCompiler<z.ZodType> =
  ({ schema, httpPart }) =>
  (value) => {
    const result = schema.safeParse(value);
    const repeated = httpPart === 'querystring' ? listRepeated(value) : [];
    if (result.success && repeated.length === 0) return { value: result.data };
    const issues = result.success ? [] : listIssues(result.error, schema).map((issue) => namePart(issue, httpPart));
    return { error: validationError(mergeRepeated(issues, repeated, listUnknown(result.error))) };
  };

/** Query parameters that are given more than once. */
function listRepeated(query: unknown): string[] {
  return Object.entries(query ?? {}).flatMap(([name, value]) => (Array.isArray(value) ? [name] : []));
}

/** Names that a query may not have. */
function listUnknown(error: z.core.$ZodError | undefined): string[] {
  return (error?.issues ?? []).flatMap((issue) => (issue.code === 'unrecognized_keys' ? issue.keys : []));
}

/**
 * No parameter is a list of its own: a name that stands twice would leave open which one counts. It is reported in place of
 * the faults of its value; an unknown one is unknown however often it stands.
 */
function mergeRepeated(issues: readonly Issue[], repeated: readonly string[], unknown: readonly string[]): Issue[] {
  const unknownNames = new Set(unknown);
  const twice = new Set(repeated.filter((name) => !unknownNames.has(name)));
  return [
    ...Array.from(twice, (path) => ({ path, message: 'is given more than once' })),
    ...issues.filter(({ path }) => !twice.has(path)),
  ];
}

// Page cursors are opaque: the last sort key, bound to the query it came from (05 §1.7).

const HASH_LENGTH = 16;

/** What a page is a page of: the path and every filter, without `cursor` and `limit`. */
type PageScope = Readonly<Record<string, unknown>>;

/** Null for the last page. */
export function encodeCursor(key: string | null, scope: PageScope): string | null {
  if (key === null) return null;
  return Buffer.from(JSON.stringify({ k: key, q: hashScope(scope) })).toString('base64url');
}

/** The sort key to go on after; null for the first page. Throws `validation_error`. */
export function decodeCursor(cursor: string | undefined, scope: PageScope): string | null {
  if (cursor === undefined) return null;
  const { k, q } = parseCursor(cursor);
  if (typeof k !== 'string' || typeof q !== 'string') throw toCursorError('is not a cursor of this server');
  if (q !== hashScope(scope)) throw toCursorError('belongs to a query with other parameters; start again without it');
  return k;
}

function parseCursor(cursor: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(Buffer.from(cursor, 'base64url').toString('utf8'));
    if (typeof value === 'object' && value !== null) return { ...value };
    return {};
  } catch {
    return {};
  }
}

function hashScope(scope: PageScope): string {
  return sha256Hex(canonicalJson(scope)).slice(0, HASH_LENGTH);
}

function toCursorError(message: string) {
  return validationError([{ path: 'cursor', message }]);
}
