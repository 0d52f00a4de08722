// One compiler for every JSON Schema the server is given: tools, MCP servers, `output_schema` (01 §5, 09 §3).
import { Ajv2020, type ErrorObject, type Options } from 'ajv/dist/2020.js';
import type { JsonSchema } from '../domain/tool.ts';
import type { Issue } from '../kernel/errors.ts';
import type { SchemaCompiler } from '../ports/tool.ts';

/** Longest schema, as UTF-8 bytes of its JSON. */
export const MAX_SCHEMA_BYTES = 32_768;
const MAX_ISSUES = 100;
/** Their values are data: a member named `$ref` in there refers to nothing. */
const DATA_KEYWORDS = new Set(['const', 'enum', 'default', 'examples']);

const OPTIONS: Options = { allErrors: true, strict: false, validateFormats: false, logger: false };
// Compiling the schema of schemas takes longer than all the rest, so it waits for the first schema from outside.
let metaSchema: Ajv2020 | null = null;

/** Compiles 2020-12 schemas with an object root and local references; nothing is coerced or filled in. */
export const schemaCompiler: SchemaCompiler = {
  compile(schema) {
    const fault = faultOfForm(schema);
    if (fault !== null) return { ok: false, problems: [fault] };
    // A dialect named at the root is dropped: every schema is read as 2020-12, and ajv knows no other.
    const { $schema: _dialect, ...plain } = schema as Record<string, unknown>;
    try {
      const problems = referenceFaults(plain, '');
      metaSchema ??= new Ajv2020(OPTIONS);
      if (!metaSchema.validateSchema(plain)) problems.push(...toIssues(metaSchema.errors ?? []));
      if (problems.length > 0) return { ok: false, problems: sorted(problems) };
      const check = compiled(plain);
      return { ok: true, validate: (value) => validateWith(check, value) };
    } catch (error) {
      return { ok: false, problems: [{ path: '$', message: reason(error, 'is nested too deeply') }] };
    }
  },
};

/** Validator of a schema that is part of this program, which its tests have compiled: made when it is first used. */
export function validatorOnUse(schema: JsonSchema): (value: unknown) => readonly Issue[] {
  let check: Check | null = null;
  return (value) => {
    check ??= compiled(schema);
    return validateWith(check, value);
  };
}

type Check = ((value: unknown) => unknown) & { errors?: ErrorObject[] | null };

/** An instance remembers every `$id` it saw: with one for each schema, none can reach or outlive another. */
function compiled(schema: JsonSchema): Check {
  return new Ajv2020({ ...OPTIONS, meta: false, validateSchema: false }).compile(schema);
}

function faultOfForm(schema: unknown): Issue | null {
  if (typeof schema !== 'object' || schema === null || Array.isArray(schema)) {
    return { path: '$', message: 'must be a JSON Schema object' };
  }
  const { type, $async } = schema as Record<string, unknown>;
  if (type !== 'object') return { path: 'type', message: 'must be "object" at the root' };
  if ($async !== undefined) return { path: '$async', message: 'is not supported' };
  const bytes = Buffer.byteLength(JSON.stringify(schema));
  if (bytes <= MAX_SCHEMA_BYTES) return null;
  return { path: '$', message: `has ${bytes} bytes, at most ${MAX_SCHEMA_BYTES} are allowed` };
}

function referenceFaults(node: unknown, path: string): Issue[] {
  if (Array.isArray(node)) return node.flatMap((item, i) => referenceFaults(item, `${path}[${i}]`));
  if (typeof node !== 'object' || node === null) return [];
  return Object.entries(node).flatMap(([key, value]) => {
    const here = path === '' ? key : `${path}.${key}`;
    if (DATA_KEYWORDS.has(key)) return [];
    if ((key === '$ref' || key === '$dynamicRef') && typeof value === 'string' && !value.startsWith('#')) {
      return [{ path: here, message: 'must be a local reference (starting with "#")' }];
    }
    return referenceFaults(value, here);
  });
}

function validateWith(check: Check, value: unknown): readonly Issue[] {
  try {
    if (check(value) === true) return [];
  } catch (error) {
    // A schema that refers to itself without consuming input never ends.
    return [{ path: '$', message: reason(error, 'cannot be checked: the schema or the value is nested too deeply') }];
  }
  return sorted(toIssues(check.errors ?? []));
}

function reason(error: unknown, tooDeep: string): string {
  if (error instanceof RangeError) return tooDeep;
  return error instanceof Error ? error.message : String(error);
}

function toIssues(errors: readonly ErrorObject[]): Issue[] {
  return errors.map((error) => {
    const at = pathOf(error.instancePath);
    const { missingProperty, additionalProperty, unevaluatedProperty, allowedValues } = error.params;
    if (missingProperty !== undefined) return { path: joined(at, missingProperty), message: 'is required' };
    const unknown = additionalProperty ?? unevaluatedProperty;
    if (unknown !== undefined) return { path: joined(at, unknown), message: 'is not a known property' };
    const detail = Array.isArray(allowedValues) ? `: ${allowedValues.map((v) => JSON.stringify(v)).join(', ')}` : '';
    return { path: at === '' ? '$' : at, message: `${error.message ?? error.keyword}${detail}` };
  });
}

/** `/include/0/path` becomes `include[0].path`. */
function pathOf(pointer: string): string {
  let path = '';
  for (const part of pointer.split('/').slice(1)) path = joined(path, part.replaceAll('~1', '/').replaceAll('~0', '~'));
  return path;
}

function joined(path: string, key: string): string {
  if (/^\d+$/.test(key)) return `${path}[${key}]`;
  return path === '' ? key : `${path}.${key}`;
}

/** By path, each fault once, bounded: a wrong array of a million items must not answer with a million lines. */
function sorted(issues: readonly Issue[]): readonly Issue[] {
  const unique = [...new Map(issues.map((issue) => [`${issue.path}\n${issue.message}`, issue])).values()];
  unique.sort((a, b) => (a.path < b.path ? -1 : a.path > b.path ? 1 : 0));
  if (unique.length <= MAX_ISSUES) return unique;
  const more = { path: '$', message: `${unique.length - MAX_ISSUES} more problems` };
  return [more, ...unique.slice(0, MAX_ISSUES)];
}
