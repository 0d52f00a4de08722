// Faults that zod found, each with its place in the value and a sentence about what to write instead.
import type { z } from 'zod';
import { knownKeys, nearestKey } from './known-keys.ts';

/** A fault with the path of the faulty value. */
interface PlainIssue {
  readonly path: readonly PropertyKey[];
  readonly message: string;
}

type ZodIssue = z.core.$ZodIssue;
type UnionIssue = z.core.$ZodIssueInvalidUnion;

/** A stranger may send thousands of keys. */
const MAX_SUGGESTIONS = 10;
/** Choices beyond these are only counted. */
const MAX_CHOICES = 12;

const KINDS: Readonly<Record<string, string>> = {
  string: 'a string',
  number: 'a number',
  int: 'an integer',
  boolean: 'true or false',
  array: 'a list',
  tuple: 'a list',
  object: 'an object',
  record: 'an object',
};

/**
 * Every fault in its order: unknown keys one by one, and of a union the faults of the branch that was meant.
 * @param schema of the whole value, to say what an unknown key was probably meant to be
 */
export function plainIssues(error: z.core.$ZodError, schema: z.ZodType | null = null): PlainIssue[] {
  return error.issues.flatMap((issue) => plain(issue, [], schema));
}

function plain(issue: ZodIssue, at: readonly PropertyKey[], schema: z.ZodType | null): PlainIssue[] {
  const path = [...at, ...issue.path];
  if (issue.code === 'unrecognized_keys') {
    const known = schema === null ? [] : knownKeys(schema, path);
    return issue.keys.map((key, i) => {
      const meant = i < MAX_SUGGESTIONS ? nearestKey(key, known) : null;
      return {
        path: [...path, key],
        message: meant === null ? 'unknown key' : `unknown key; did you mean "${meant}"?`,
      };
    });
  }
  // A map's key has its own rules; they are nested one level down.
  if (issue.code === 'invalid_key') return issue.issues.flatMap((inner) => plain(inner, path, schema));
  if (issue.code === 'invalid_union' && issue.message === 'Invalid input') {
    const meant = meantBranch(issue);
    if (meant !== null) return meant.flatMap((inner) => plain(inner, path, schema));
  }
  return [{ path, message: plainMessage(issue) }];
}

/** The first branch whose outer type fits the value; null when none does. */
function meantBranch({ errors }: UnionIssue): readonly ZodIssue[] | null {
  return errors.find((branch) => !branch.some(isOfAnotherType)) ?? null;
}

function isOfAnotherType(issue: ZodIssue): boolean {
  return issue.path.length === 0 && (issue.code === 'invalid_type' || issue.code === 'invalid_value');
}

/** A schema's own message stays; zod's messages get plainer wording. */
function plainMessage(issue: ZodIssue): string {
  const { message } = issue;
  switch (issue.code) {
    case 'invalid_type':
      if (!message.startsWith('Invalid input: ')) return message;
      return message.endsWith('received undefined') ? 'is required' : `must be ${nameKind(issue.expected)}`;
    case 'invalid_value':
      return /^Invalid (input|option): /.test(message) ? `must be ${describeChoice(issue.values)}` : message;
    case 'invalid_union':
      if ('options' in issue && Array.isArray(issue.options)) return `must be ${describeChoice(issue.options)}`;
      return message === 'Invalid input' ? nameKinds(issue) : message;
    case 'too_small':
      return message.startsWith('Too small: ') ? lowerBound(issue) : message;
    case 'too_big':
      return message.startsWith('Too big: ') ? upperBound(issue) : message;
    case 'invalid_format':
      return message.replace(/^Invalid string: /, '');
    default:
      return message;
  }
}

function nameKind(expected: string): string {
  return KINDS[expected] ?? expected;
}

function nameKinds({ errors }: UnionIssue): string {
  const issues = errors.flat();
  if (issues.some((issue) => issue.message.endsWith('received undefined'))) return 'is required';
  const kinds = issues.flatMap((issue) => {
    if (issue.code === 'invalid_type') return [nameKind(issue.expected)];
    return issue.code === 'invalid_value' ? issue.values.map(quoteValue) : [];
  });
  return `must be ${kinds.length === 0 ? 'of another form' : [...new Set(kinds)].join(' or ')}`;
}

function describeChoice(values: readonly unknown[]): string {
  const more = values.length > MAX_CHOICES ? `, … (${values.length} in all)` : '';
  return `${values.length > 1 ? 'one of ' : ''}${values.slice(0, MAX_CHOICES).map(quoteValue).join(', ')}${more}`;
}

function quoteValue(value: unknown): string {
  return typeof value === 'string' ? JSON.stringify(value) : String(value);
}

function lowerBound({ origin, minimum, inclusive }: z.core.$ZodIssueTooSmall): string {
  const measure = describeMeasure(origin, minimum);
  if (measure === null) return `must be ${inclusive ? 'at least' : 'more than'} ${minimum}`;
  return Number(minimum) === 1 ? 'must not be empty' : `must have at least ${minimum} ${measure}`;
}

function upperBound({ origin, maximum, inclusive }: z.core.$ZodIssueTooBig): string {
  const measure = describeMeasure(origin, maximum);
  if (measure === null) return `must be ${inclusive ? 'at most' : 'less than'} ${maximum}`;
  return `must have at most ${maximum} ${measure}`;
}

/** What is counted; null for numbers. */
function describeMeasure(origin: string, count: number | bigint): string | null {
  const one = Number(count) === 1;
  if (origin === 'string') return one ? 'character' : 'characters';
  return origin === 'array' || origin === 'set' ? `item${one ? '' : 's'}` : null;
}

// Faults that zod found, as lines a person can act on: `<key path>: <problem>`.

/**
 * One line per fault.
 * @param at key path of the value that was checked
 */
export function issueLines(error: z.ZodError, at: string): string[] {
  return plainIssues(error).map(({ path, message }) => `${formatPath(path, at)}: ${message}`);
}

function formatPath(path: readonly PropertyKey[], at: string): string {
  return path.reduce<string>(
    (prefix, key) => (typeof key === 'number' ? `${prefix}[${key}]` : `${prefix}.${String(key)}`),
    at,
  );
}
