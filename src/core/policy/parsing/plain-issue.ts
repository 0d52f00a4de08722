// Converts zod's issues: each gets its path and a sentence about the expected value.
import type { z } from 'zod';
import { shownName } from '../cut.ts';
import { findNearestKey, listKnownKeys } from './known-keys.ts';

/** A fault with the path of the faulty value. */
interface PlainIssue {
  readonly path: readonly PropertyKey[];
  readonly message: string;
}

type ZodIssue = z.core.$ZodIssue;
type UnionIssue = z.core.$ZodIssueInvalidUnion;

/** Maximum unknown keys that get a suggestion: a request may have thousands. */
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
export function describeIssues(error: z.core.$ZodError, schema: z.ZodType | null = null): PlainIssue[] {
  return error.issues.flatMap((issue) => describeIssue(issue, [], schema));
}

function describeIssue(issue: ZodIssue, at: readonly PropertyKey[], schema: z.ZodType | null): PlainIssue[] {
  const path = [...at, ...issue.path];
  if (issue.code === 'unrecognized_keys') {
    const known = schema === null ? [] : listKnownKeys(schema, path);
    return issue.keys.map((key, i) => ({
      path: [...path, key],
      message: describeUnknownKey(key, i < MAX_SUGGESTIONS ? known : []),
    }));
  }
  // A map's key has its own rules; they are nested one level down.
  if (issue.code === 'invalid_key') return issue.issues.flatMap((inner) => describeIssue(inner, path, schema));
  if (issue.code === 'invalid_union' && issue.message === 'Invalid input') {
    const meant = findMeantBranch(issue);
    if (meant !== null) return meant.flatMap((inner) => describeIssue(inner, path, schema));
  }
  return [{ path, message: describeProblem(issue) }];
}

function describeUnknownKey(key: string, known: readonly string[]): string {
  // The path does not show it.
  if (key.trim() === '') return `unknown key ${shownName(key)}`;
  const meant = findNearestKey(key, known);
  if (meant === null) return 'unknown key';
  return `unknown key; did you mean "${meant}"?`;
}

/** The first branch whose outer type fits the value; null when none does. */
function findMeantBranch({ errors }: UnionIssue): readonly ZodIssue[] | null {
  return errors.find((branch) => !branch.some(isOfAnotherType)) ?? null;
}

function isOfAnotherType(issue: ZodIssue): boolean {
  return issue.path.length === 0 && (issue.code === 'invalid_type' || issue.code === 'invalid_value');
}

/** A schema's own message stays; zod's messages get plainer wording. */
function describeProblem(issue: ZodIssue): string {
  const { message } = issue;
  switch (issue.code) {
    case 'invalid_type':
      if (!message.startsWith('Invalid input: ')) return message;
      if (message.endsWith('received undefined')) return 'is required';
      return `must be ${nameKind(issue.expected)}`;
    case 'invalid_value':
      if (!/^Invalid (input|option): /.test(message)) return message;
      return `must be ${describeChoice(issue.values)}`;
    case 'invalid_union':
      if ('options' in issue && Array.isArray(issue.options)) return `must be ${describeChoice(issue.options)}`;
      if (message !== 'Invalid input') return message;
      return nameKinds(issue);
    case 'too_small':
      if (!message.startsWith('Too small: ')) return message;
      return describeMinimum(issue);
    case 'too_big':
      if (!message.startsWith('Too big: ')) return message;
      return describeMaximum(issue);
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
    if (issue.code === 'invalid_value') return issue.values.map(quoteValue);
    return [];
  });
  if (kinds.length === 0) return 'must be of another form';
  return `must be ${[...new Set(kinds)].join(' or ')}`;
}

function describeChoice(values: readonly unknown[]): string {
  const listed = values.slice(0, MAX_CHOICES).map(quoteValue).join(', ');
  if (values.length <= 1) return listed;
  if (values.length <= MAX_CHOICES) return `one of ${listed}`;
  return `one of ${listed}, … (${values.length} in all)`;
}

function quoteValue(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value);
  return String(value);
}

function describeMinimum({ origin, minimum, inclusive }: z.core.$ZodIssueTooSmall): string {
  const measure = describeMeasure(origin, minimum);
  if (measure === null && inclusive) return `must be at least ${minimum}`;
  if (measure === null) return `must be more than ${minimum}`;
  if (Number(minimum) === 1) return 'must not be empty';
  return `must have at least ${minimum} ${measure}`;
}

function describeMaximum({ origin, maximum, inclusive }: z.core.$ZodIssueTooBig): string {
  const measure = describeMeasure(origin, maximum);
  if (measure === null && inclusive) return `must be at most ${maximum}`;
  if (measure === null) return `must be less than ${maximum}`;
  return `must have at most ${maximum} ${measure}`;
}

const MEASURES: Readonly<Record<string, string>> = { string: 'character', array: 'item', set: 'item' };

/** The noun of what is counted; null for numbers. */
function describeMeasure(origin: string, count: number | bigint): string | null {
  const noun = MEASURES[origin];
  if (noun === undefined) return null;
  if (Number(count) === 1) return noun;
  return `${noun}s`;
}

// Formats zod's issues as lines: `<key path>: <problem>`.

/**
 * One line per fault.
 * @param at key path of the value that was checked
 */
export function issueLines(error: z.ZodError, at: string): string[] {
  return describeIssues(error).map(({ path, message }) => `${formatIssuePath(path, at)}: ${message}`);
}

function formatIssuePath(path: readonly PropertyKey[], at: string): string {
  return [at, ...path.map(formatKey)].join('');
}

function formatKey(key: PropertyKey): string {
  if (typeof key === 'number') return `[${key}]`;
  return `.${String(key)}`;
}
