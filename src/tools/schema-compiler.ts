// One compiler for every JSON Schema the server is given: tools, MCP servers, `output_schema` (01 §5, 09 §3).

import { createRequire } from 'node:module';
import vm from 'node:vm';
import type { Ajv, ErrorObject, Options } from 'ajv';
import type { Ajv2020 } from 'ajv/dist/2020.js';
import { compilePattern, type Pattern } from '#core/policy/parsing/regular-expression.ts';
import { faultOfValue, type Limits } from '#core/policy/parsing/text-limits.ts';
import type { SchemaCompiler } from '#core/ports/tool-port.ts';
import { type Issue, MAX_PATH } from '#protocol/errors.ts';
import { compareText } from '#protocol/text/compare-text.ts';
import { readErrorMessage } from '#protocol/text/error-message.ts';
import { shortenText } from '#protocol/text/plain-text.ts';
import type { JsonSchema } from '#protocol/tool.ts';

// A time limit for synchronous work on untrusted input.

/** Processor time: far above the needs of a sensible schema, short enough for other requests. */
const LIMIT_MS = 100;
/** Processor time of all attempts together. */
const TOTAL_MS = 2 * LIMIT_MS;

export class OutOfTime extends Error {}

const script = new vm.Script('job()');
let context: vm.Context | null = null;

/**
 * The result of `work`, or whatever it throws. It must neither be async nor change anything that outlives it: it can
 * be broken off at any place, and begun again.
 * @throws OutOfTime after 100 ms of processor time
 */
export function withinTime<T>(work: () => T): T {
  context ??= vm.createContext(Object.create(null));
  context.job = work;
  try {
    // Only time on the clock can break work off. On a busy machine it passes without work being done: then more of it.
    let spentMs = 0;
    for (let clockMs = LIMIT_MS; ; ) {
      const before = processorMs();
      try {
        return script.runInContext(context, { timeout: Math.ceil(clockMs) }) as T;
      } catch (error) {
        // It is of the other context's `Error` class.
        if ((error as { code?: unknown }).code !== 'ERR_SCRIPT_EXECUTION_TIMEOUT') throw error;
        const tookMs = processorMs() - before;
        spentMs += tookMs;
        // The two clocks do not tick together.
        if (tookMs >= 0.9 * LIMIT_MS || spentMs >= TOTAL_MS) throw new OutOfTime(`takes longer than ${LIMIT_MS} ms`);
        // As much as the limit takes where the processor is shared as it was: with more, a processor that is free again
        // would work on for all of it.
        clockMs *= Math.min(2, LIMIT_MS / tookMs);
      }
    }
  } finally {
    context.job = null;
  }
}

function processorMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/** Longest schema, as UTF-8 bytes of its JSON. */
export const MAX_SCHEMA_BYTES = 32_768;
const LIMITS: Limits = { bytes: MAX_SCHEMA_BYTES, depth: 64, nodes: 5000 };
/** Length of all schemas whose validators are kept: eight of the longest, hundreds of usual ones. */
const MAX_RECENT_LENGTH = 8 * MAX_SCHEMA_BYTES;
const MAX_ISSUES = 100;
/** Their values are data: a member named `$ref` in there refers to nothing. */
const DATA_KEYWORDS = new Set(['const', 'enum', 'default', 'examples']);

/** Maximum different regular expressions: ajv's time grows with the square of their number. */
const MAX_EXPRESSIONS = 100;

const OPTIONS: Options = {
  allErrors: true,
  strict: false,
  validateFormats: false,
  logger: false,
  // A schema is compiled once and used a few times: shorter code is not worth the search for it.
  code: { optimize: false },
};
const require = createRequire(import.meta.url);
/** Loads a hundred files with the first value or schema that is checked, of which a start has none. */
type Dialect = () => typeof Ajv | typeof Ajv2020;
const DRAFT_2020: Dialect = () => (require('ajv/dist/2020.js') as typeof import('ajv/dist/2020.js')).Ajv2020;
const DRAFT_07: Dialect = () => (require('ajv') as typeof import('ajv')).Ajv;
/** By `$schema`, without scheme and final `#`. */
const DIALECTS: ReadonlyMap<string, Dialect> = new Map([
  ['json-schema.org/draft/2020-12/schema', DRAFT_2020],
  ['json-schema.org/draft-07/schema', DRAFT_07],
]);
// Compiling a schema of schemas takes longer than all the rest, so it waits for the first schema from outside.
const metaSchemas = new Map<Dialect, Ajv>();

/**
 * Compiles schemas of 2020-12, or of draft-07 if `$schema` names it, with an object root and local references. Values
 * are never coerced or filled in.
 */
export const schemaCompiler: SchemaCompiler = {
  compile(schema) {
    const fault = findFormFault(schema);
    if (fault !== null) return { ok: false, problems: [fault] };
    const { $schema, ...plain } = schema as Record<string, unknown>;
    const dialect = findDialect($schema);
    if (dialect === null) return { ok: false, problems: [{ path: '$schema', message: UNKNOWN_DIALECT }] };
    const text = JSON.stringify(schema);
    const known = recentSchemas.get(text);
    if (known !== null) return { ok: true, validate: known };
    try {
      const meta = loadMetaSchema(dialect);
      const { faults, check } = withinTime(() => {
        const problems = meta.validateSchema(plain) ? [] : toIssues(meta.errors ?? []);
        const expressions = createExpressions();
        const faults = [...problems, ...findTextFaults(plain, '', expressions)];
        return { faults, check: faults.length > 0 ? null : compileSchema(plain, dialect, expressions) };
      });
      if (check === null) return { ok: false, problems: sortIssues(faults) };
      const validate: Validate = (value) => validateWith((given) => withinTime(() => check(given)), check, value);
      recentSchemas.put(text, validate);
      return { ok: true, validate };
    } catch (error) {
      return {
        ok: false,
        problems: [{ path: '$', message: describeCompileError(error, 'refers to itself too often') }],
      };
    }
  },
};

type Validate = (value: unknown) => readonly Issue[];

/** What a delegation compiles at its call it needs again, when the machine may be too busy to compile it in time. */
const recentSchemas = createRecentSchemas();

/** Evicts the least recently used first. */
function createRecentSchemas() {
  const entries = new Map<string, Validate>();
  let total = 0;
  return {
    get(text: string): Validate | null {
      const validate = entries.get(text);
      if (validate === undefined) return null;
      entries.delete(text);
      entries.set(text, validate);
      return validate;
    },
    put(text: string, validate: Validate): void {
      entries.set(text, validate);
      total += text.length;
      for (const oldest of entries.keys()) {
        if (total <= MAX_RECENT_LENGTH) return;
        entries.delete(oldest);
        total -= oldest.length;
      }
    },
  };
}

/** Runs outside of the time limit: the result is cached and must not be interrupted while it is created. */
function loadMetaSchema(dialect: Dialect): Ajv {
  let meta = metaSchemas.get(dialect);
  if (meta === undefined) {
    meta = new (dialect())(OPTIONS);
    // Compiles it; otherwise the first schema from outside would.
    meta.validateSchema({});
    metaSchemas.set(dialect, meta);
  }
  return meta;
}

/** Validator of a schema that is part of this program and covered by its tests: compiled on first use. */
export function createLazyValidator(schema: JsonSchema): (value: unknown) => readonly Issue[] {
  let check: Check | null = null;
  return (value) => {
    check ??= compileSchema(schema, DRAFT_2020, createExpressions());
    return validateWith(check, check, value);
  };
}

type Check = ((value: unknown) => unknown) & { errors?: ErrorObject[] | null };

/** An instance remembers every `$id` it saw: with one for each schema, none can reach or outlive another. */
function compileSchema(schema: JsonSchema, dialect: Dialect, regExp: Expressions): Check {
  const code = { ...OPTIONS.code, regExp };
  return new (dialect())({ ...OPTIONS, code, meta: false, validateSchema: false }).compile(schema);
}

/** Compiles an expression of a schema, each once; throws as `compilePattern`. */
type Expressions = ((source: string) => Pattern) & { readonly code: string };
class TooManyExpressions extends Error {}

function createExpressions(): Expressions {
  const made = new Map<string, Pattern>();
  const expression = (source: string) => {
    const known = made.get(source);
    if (known !== undefined) return known;
    if (made.size === MAX_EXPRESSIONS) {
      throw new TooManyExpressions(`has more than ${MAX_EXPRESSIONS} different regular expressions`);
    }
    // ajv takes two for one where their `toString` is the same.
    const pattern = { ...compilePattern(source), toString: () => source };
    made.set(source, pattern);
    return pattern;
  };
  return Object.assign(expression, { code: 'expression' });
}

const UNKNOWN_DIALECT = 'must be that of JSON Schema 2020-12 or draft-07';

/** 2020-12 where none is named; null = one that is not taken. */
function findDialect($schema: unknown): Dialect | null {
  if ($schema === undefined) return DRAFT_2020;
  if (typeof $schema !== 'string') return null;
  return DIALECTS.get($schema.replace(/^https?:\/\//, '').replace(/#$/, '')) ?? null;
}

function findFormFault(schema: unknown): Issue | null {
  if (typeof schema !== 'object' || schema === null || Array.isArray(schema)) {
    return { path: '$', message: 'must be a JSON Schema object' };
  }
  const { type, $async } = schema as Record<string, unknown>;
  if (type !== 'object') return { path: 'type', message: 'must be "object" at the root' };
  if ($async !== undefined) return { path: '$async', message: 'is not supported' };
  const size = faultOfValue(schema, LIMITS);
  if (size !== null) return { path: '$', message: size };
  const bytes = Buffer.byteLength(JSON.stringify(schema));
  if (bytes <= MAX_SCHEMA_BYTES) return null;
  return { path: '$', message: `has ${bytes} bytes, at most ${MAX_SCHEMA_BYTES} are allowed` };
}

/** References and regular expressions that are not taken. */
function findTextFaults(node: unknown, path: string, compile: Expressions): Issue[] {
  if (Array.isArray(node)) return node.flatMap((item, i) => findTextFaults(item, `${path}[${i}]`, compile));
  if (typeof node !== 'object' || node === null) return [];
  return Object.entries(node).flatMap(([key, value]) => {
    const here = path === '' ? key : `${path}.${key}`;
    if (DATA_KEYWORDS.has(key)) return [];
    if ((key === '$ref' || key === '$dynamicRef') && typeof value === 'string' && !value.startsWith('#')) {
      return [{ path: here, message: 'must be a local reference (starting with "#")' }];
    }
    if (key === 'pattern' && typeof value === 'string') return findPatternFaults(value, here, compile);
    const faults: Issue[] = [];
    if (key === 'patternProperties' && typeof value === 'object' && value !== null)
      faults.push(...Object.keys(value).flatMap((name) => findPatternFaults(name, here, compile)));
    return [...faults, ...findTextFaults(value, here, compile)];
  });
}

function findPatternFaults(source: string, path: string, compile: Expressions): Issue[] {
  try {
    compile(source);
    return [];
  } catch (error) {
    if (error instanceof TooManyExpressions) throw error;
    return [{ path, message: readErrorMessage(error) }];
  }
}

/** @param run runs the check, in its own way */
function validateWith(run: (value: unknown) => unknown, check: Check, value: unknown): readonly Issue[] {
  try {
    if (run(value) === true) return [];
  } catch (error) {
    // A schema that refers to itself without consuming input never ends.
    return [
      {
        path: '$',
        message: describeCompileError(error, 'cannot be checked: the schema or the value is nested too deeply'),
      },
    ];
  }
  return sortIssues(toIssues(check.errors ?? []));
}

function describeCompileError(error: unknown, tooDeep: string): string {
  if (error instanceof RangeError) return tooDeep;
  if (error instanceof OutOfTime) return `${error.message} to check: make the schema simpler or the value smaller`;
  return readErrorMessage(error);
}

function toIssues(errors: readonly ErrorObject[]): Issue[] {
  return errors.map((error) => {
    const at = pointerToPath(error.instancePath);
    const { missingProperty, additionalProperty, unevaluatedProperty, allowedValues } = error.params;
    if (missingProperty !== undefined) return { path: cutPath(joinPath(at, missingProperty)), message: 'is required' };
    const unknown = additionalProperty ?? unevaluatedProperty;
    if (unknown !== undefined) return { path: cutPath(joinPath(at, unknown)), message: 'is not a known property' };
    const detail = Array.isArray(allowedValues) ? `: ${allowedValues.map((v) => JSON.stringify(v)).join(', ')}` : '';
    return { path: at === '' ? '$' : cutPath(at), message: `${error.message ?? error.keyword}${detail}` };
  });
}

/** Names in the value may be very long. */
function cutPath(path: string): string {
  return shortenText(path, MAX_PATH);
}

/** `/include/0/path` becomes `include[0].path`. */
function pointerToPath(pointer: string): string {
  let path = '';
  for (const part of pointer.split('/').slice(1))
    path = joinPath(path, part.replaceAll('~1', '/').replaceAll('~0', '~'));
  return path;
}

function joinPath(path: string, key: string): string {
  if (/^\d+$/.test(key)) return `${path}[${key}]`;
  if (path === '') return key;
  return `${path}.${key}`;
}

/** By path, each fault once, bounded: a wrong array of a million items must not answer with a million lines. */
function sortIssues(issues: readonly Issue[]): readonly Issue[] {
  const unique = [...new Map(issues.map((issue) => [`${issue.path}\n${issue.message}`, issue])).values()];
  unique.sort((a, b) => compareText(a.path, b.path));
  if (unique.length <= MAX_ISSUES) return unique;
  const more = { path: '$', message: `${unique.length - MAX_ISSUES} more problems` };
  return [more, ...unique.slice(0, MAX_ISSUES)];
}
