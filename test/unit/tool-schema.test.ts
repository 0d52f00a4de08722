// Schemas given to the server and the registry that compiles them (01 §5, 09 §3).
import vm from 'node:vm';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import type { ToolFactory } from '#core/ports/tool-port.ts';
import { StartupError } from '#protocol/errors.ts';
import { toolText } from '#protocol/tool.ts';
import { MAX_SCHEMA_BYTES, schemaCompiler } from '#tools/schema-compiler.ts';
import { createToolSet } from '#tools/tool-registry.ts';

function tool(name: string, input_schema: Record<string, unknown> = { type: 'object' }): ToolFactory {
  return () => ({
    definition: {
      name,
      description: `Does ${name}`,
      input_schema,
      side_effects: 'none',
      requires_workspace: false,
      path_fields: [],
      timeout_seconds: null,
    },
    execute: async () => toolText(name),
    cancel: async () => false,
  });
}

function problems(schema: unknown): readonly string[] {
  const compiled = schemaCompiler.compile(schema);
  return compiled.ok ? [] : compiled.problems.map((p) => `${p.path}: ${p.message}`);
}

function faults(schema: unknown, value: unknown): readonly string[] {
  const compiled = schemaCompiler.compile(schema);
  if (!compiled.ok) throw new Error(problems(schema).join('\n'));
  return compiled.validate(value).map((p) => `${p.path}: ${p.message}`);
}

describe('the schema compiler', () => {
  it('refuses a remote reference and names its path', () => {
    const schema = { type: 'object', properties: { a: { $ref: 'https://example.com/a.json' } } };
    expect(problems(schema)).toEqual(['properties.a.$ref: must be a local reference (starting with "#")']);
  });

  it('takes a `$ref` inside data for what it is', () => {
    expect(problems({ type: 'object', default: { $ref: 'https://example.com/' } })).toEqual([]);
  });

  it.each([
    [{ type: 'array' }, 'type: must be "object" at the root'],
    [{}, 'type: must be "object" at the root'],
    ['object', '$: must be a JSON Schema object'],
    [[], '$: must be a JSON Schema object'],
    [{ type: 'object', $async: true }, '$async: is not supported'],
  ])('refuses the root %j', (schema, problem) => {
    expect(problems(schema)).toEqual([problem]);
  });

  it('refuses more than 32 KiB and accepts exactly that much', () => {
    const empty = Buffer.byteLength(JSON.stringify({ type: 'object', description: '' }));
    const sized = (bytes: number) => ({ type: 'object', description: 'x'.repeat(bytes - empty) });
    expect(problems(sized(MAX_SCHEMA_BYTES))).toEqual([]);
    expect(problems(sized(MAX_SCHEMA_BYTES + 1))).toEqual(['$: has 32769 bytes, at most 32768 are allowed']);
  });

  it('reports a keyword of the wrong type with its path', () => {
    expect(problems({ type: 'object', properties: { n: { minimum: 'a' } } })).toContain(
      'properties.n.minimum: must be number',
    );
  });

  it('reports a pattern that does not compile', () => {
    expect(problems({ type: 'object', properties: { s: { pattern: '(' } } })).toHaveLength(1);
  });

  // Promise 01.6: anyOf, $defs and local references are accepted and enforced.
  it('enforces anyOf, oneOf, $defs and local references', () => {
    const schema = {
      type: 'object',
      $defs: { id: { type: 'string', minLength: 2 } },
      properties: {
        a: { anyOf: [{ type: 'integer' }, { $ref: '#/$defs/id' }] },
        b: { oneOf: [{ const: 1 }, { const: 2 }] },
      },
    };
    expect(faults(schema, { a: 'ok', b: 1 })).toEqual([]);
    expect(faults(schema, { a: 'x' })).not.toEqual([]);
    expect(faults(schema, { b: 3 })).not.toEqual([]);
  });

  it('gives one issue per fault, sorted by path, the root as $', () => {
    const schema = {
      type: 'object',
      additionalProperties: false,
      required: ['path'],
      properties: {
        path: { type: 'string' },
        mode: { enum: ['a', 'b'] },
        list: { type: 'array', items: { type: 'object', required: ['x'] } },
      },
    };
    expect(faults(schema, { zoo: 1, mode: 'c', list: [{ x: 1 }, {}] })).toEqual([
      'list[1].x: is required',
      'mode: must be equal to one of the allowed values: "a", "b"',
      'path: is required',
      'zoo: is not a known property',
    ]);
    expect(faults(schema, 'text')).toEqual(['$: must be object']);
  });

  it('neither coerces nor fills in', () => {
    const schema = { type: 'object', properties: { n: { type: 'integer', default: 3 }, f: { format: 'email' } } };
    const value = { f: 'not an address' };
    expect(faults(schema, value)).toEqual([]);
    expect(value).toEqual({ f: 'not an address' });
    expect(faults(schema, { n: '3' })).toEqual(['n: must be integer']);
  });

  it('answers a schema that refers to itself for ever with an issue', () => {
    expect(faults({ type: 'object', $ref: '#' }, {})).toEqual([
      '$: cannot be checked: the schema or the value is nested too deeply',
    ]);
  });

  describe('is not held up by', () => {
    const nested = (depth: number) => {
      let schema: Record<string, unknown> = { type: 'string' };
      for (let i = 0; i < depth; i++) schema = { not: schema };
      return { type: 'object', not: schema };
    };
    const timed = <T>(work: () => T): T => {
      const from = performance.now();
      const result = work();
      // Without a bound each of these takes minutes at least.
      expect(performance.now() - from).toBeLessThan(5000);
      return result;
    };

    it('a schema nested without end', () => {
      expect(timed(() => problems(nested(100_000)))).toEqual(['$: is nested deeper than 64 levels']);
      expect(problems(nested(62))).toEqual([]);
    });

    it('a schema of many small parts', () => {
      const properties = Object.fromEntries(Array.from({ length: 6000 }, (_, i) => [i, 1]));
      expect(problems({ type: 'object', default: properties })).toEqual(['$: has more than 5000 values']);
    });

    it('an expression that a backtracking engine never finishes', () => {
      const schema = {
        type: 'object',
        properties: { s: { pattern: '^(a+)+$' } },
        patternProperties: { '^(b+)+$': {} },
      };
      const text = (letter: string) => `${letter.repeat(5000)}!`;
      expect(timed(() => faults(schema, { s: text('a'), [text('b')]: 1 }))).toEqual([
        's: must match pattern "^(a+)+$"',
      ]);
    });

    it.each([
      [{ properties: { s: { pattern: '(?=a)' } } }, 'properties.s.pattern: '],
      [{ properties: { s: { items: [{ pattern: '(a)\\1' }] } } }, 'properties.s.items[0].pattern: '],
      [{ patternProperties: { '(?!x)': {} } }, 'patternProperties: '],
    ])('an expression that no engine matches in linear time: %j', (part, place) => {
      expect(problems({ type: 'object', ...part })).toContainEqual(expect.stringContaining(place));
    });

    it('more expressions than it takes, of which the first too many ends it', () => {
      const named = (count: number) => ({
        type: 'object',
        patternProperties: Object.fromEntries(Array.from({ length: count }, (_, i) => [`^k${i}`, { pattern: '^x' }])),
      });
      expect(timed(() => faults(named(99), { k98: 'y' }))).toEqual(['k98: must match pattern "^x"']);
      expect(timed(() => problems(named(900)))).toEqual(['$: has more than 100 different regular expressions']);
    });

    it('references that double at every step', () => {
      const $defs: Record<string, unknown> = { a0: { type: 'object' } };
      for (let i = 1; i <= 40; i++)
        $defs[`a${i}`] = { allOf: [{ $ref: `#/$defs/a${i - 1}` }, { $ref: `#/$defs/a${i - 1}` }] };
      const schema = { type: 'object', $defs, $ref: '#/$defs/a40' };
      expect(timed(() => faults(schema, {}))).toEqual([
        expect.stringMatching(/^\$: takes longer than 100 ms to check/),
      ]);
    });

    it('names as long as a value may be, which are cut where a fault names them', () => {
      const long = 'k'.repeat(4_000_000);
      const schema = { type: 'object', properties: { a: {} }, additionalProperties: { type: 'integer' } };
      const cut = `${'k'.repeat(200)}...`;
      expect(timed(() => faults(schema, { [long]: 'x' }))).toEqual([`${cut}: must be integer`]);
      expect(timed(() => faults({ ...schema, additionalProperties: false }, { [long]: 1 }))).toEqual([
        `${cut}: is not a known property`,
      ]);
      expect(faults(schema, { 'a\nb': 'x' })).toEqual(['a b: must be integer']);
    });

    it('a schema whose form takes long to check', () => {
      problems({ type: 'object' });
      const from = process.cpuUsage();
      expect(problems({ type: 'object', allOf: Array(4900).fill(1) }).length).toBeGreaterThan(0);
      // A hundred for the check, and what it takes to notice.
      expect(process.cpuUsage(from).user / 1000).toBeLessThan(400);
    });

    it('a long list whose items must differ', () => {
      const schema = { type: 'object', properties: { list: { uniqueItems: true } } };
      const list = Array.from({ length: 60_000 }, (_, i) => ({ i }));
      expect(timed(() => faults(schema, { list }))).toEqual([expect.stringMatching(/^\$: takes longer than 100 ms/)]);
    });
  });

  it('holds every value against its own expression, however many a schema has', () => {
    const schema = {
      type: 'object',
      properties: { a: { pattern: '^a$' }, b: { pattern: '^b$' } },
      patternProperties: { '^x': { type: 'integer' }, '^y': { type: 'string' } },
    };
    expect(faults(schema, { a: 'a', b: 'b', x: 1, y: 'y' })).toEqual([]);
    expect(faults(schema, { a: 'b', b: 'a', x: 'x', y: 1 })).toEqual([
      'a: must match pattern "^a$"',
      'b: must match pattern "^b$"',
      'x: must be integer',
      'y: must be string',
    ]);
    // The schemas of schemas have expressions too.
    expect(problems({ type: 'object', $anchor: '1 2' })).toEqual([
      expect.stringContaining('$anchor: must match pattern'),
    ]);
  });

  it('takes a schema again that it has just taken, however busy the machine is by then', () => {
    const schema = (name: string) => ({ type: 'object', properties: { [name]: { type: 'string' } } });
    expect(problems(schema('first'))).toEqual([]);
    const machine = vi.spyOn(vm.Script.prototype, 'runInContext').mockImplementation(() => {
      throw Object.assign(new Error(), { code: 'ERR_SCRIPT_EXECUTION_TIMEOUT' });
    });
    const clock = vi
      .spyOn(process, 'cpuUsage')
      .mockImplementation(() => ({ user: clock.mock.calls.length * 1e6, system: 0 }));
    onTestFinished(() => void vi.restoreAllMocks());
    expect(problems(schema('first'))).toEqual([]);
    expect(problems(schema('second'))).toEqual([expect.stringContaining('takes longer than 100 ms')]);
    machine.mockRestore();
    clock.mockRestore();
    // What took too long once is tried again.
    expect(problems(schema('second'))).toEqual([]);
    expect(faults(schema('first'), { first: 1 })).toEqual(['first: must be string']);
  });

  it('forgets validators that were not used for long', () => {
    const used = { type: 'object', description: 'used' };
    const compiled = schemaCompiler.compile(used);
    const same = () => {
      const now = schemaCompiler.compile(used);
      return compiled.ok && now.ok && now.validate === compiled.validate;
    };
    const fill = (letter: string) => problems({ type: 'object', description: letter.repeat(30_000) });
    for (const letter of 'abcdefg') fill(letter);
    expect(same()).toBe(true);
    for (const letter of 'hijklmnopq') fill(letter);
    expect(same()).toBe(false);
  });

  it('bounds the number of issues', () => {
    const schema = { type: 'object', properties: { list: { type: 'array', items: { type: 'string' } } } };
    const lines = faults(schema, { list: Array.from({ length: 1000 }, (_, i) => i) });
    expect(lines).toHaveLength(101);
    expect(lines[0]).toBe('$: 900 more problems');
  });

  it('compiles two schemas that claim one $id', () => {
    const schema = (type: string) => ({ type: 'object', $id: 'https://x.example/s', properties: { a: { type } } });
    expect(faults(schema('string'), { a: 1 })).toEqual(['a: must be string']);
    expect(faults(schema('number'), { a: 1 })).toEqual([]);
  });

  it('accepts a schema that contains itself, and enforces it', () => {
    expect(faults({ type: 'object', properties: { child: { $ref: '#' } } }, { child: { child: 3 } })).toEqual([
      'child.child: must be object',
    ]);
  });

  it('reads a schema in the dialect that it names: 2020-12 or draft-07, and no other', () => {
    const pair = { type: 'array', items: [{ type: 'string' }, { type: 'integer' }] };
    const old = { type: 'object', properties: { pair }, dependencies: { a: ['b'] } };
    for (const $schema of ['http://json-schema.org/draft-07/schema#', 'https://json-schema.org/draft-07/schema']) {
      expect(faults({ $schema, ...old }, { pair: ['x', 1] })).toEqual([]);
      expect(faults({ $schema, ...old }, { pair: [1, 1] })).toEqual(['pair[0]: must be string']);
      expect(faults({ $schema, ...old }, { a: 1 })).toHaveLength(1);
    }
    const $schema = 'https://json-schema.org/draft/2020-12/schema';
    expect(problems({ $schema, ...old })).not.toEqual([]);
    const tuple = { $schema, type: 'object', properties: { pair: { prefixItems: pair.items } } };
    expect(faults(tuple, { pair: [1, 1] })).toEqual(['pair[0]: must be string']);
    for (const other of ['http://json-schema.org/draft-04/schema#', 'https://example.com/mine', 5]) {
      const refused = problems({ $schema: other, type: 'object' });
      expect(refused).toEqual(['$schema: must be that of JSON Schema 2020-12 or draft-07']);
    }
  });
});

describe('the tool registry', () => {
  // Promise 01.6: A tool whose schema has a remote reference, a wrong root or 33 KiB is refused with tool and path.
  // Promise 09.1: A tool with a remote reference, a root that is not an object or a duplicate name is refused by name, and none is registered.
  it('throws one error that names tool and path for a remote reference, a bad root and 33 KiB', () => {
    const bad = [
      tool('remote', { type: 'object', properties: { a: { $ref: 'http://x/' } } }),
      tool('rootless', { type: 'array' }),
      tool('huge', { type: 'object', description: 'x'.repeat(33 * 1024) }),
      tool('fine'),
    ];
    const error = catchError(() => createToolSet(bad));
    expect(error).toBeInstanceOf(StartupError);
    expect((error as StartupError).problems).toEqual([
      'tool "remote": input_schema.properties.a.$ref: must be a local reference (starting with "#")',
      'tool "rootless": input_schema.type: must be "object" at the root',
      expect.stringContaining('tool "huge": input_schema.$: has '),
    ]);
  });

  // Promise 09.1: A duplicate tool name is refused by name.
  it('refuses a duplicate and a malformed name', () => {
    const error = catchError(() => createToolSet([tool('twice'), tool('twice'), tool('No-Good')]));
    expect((error as StartupError).problems).toEqual([
      'tool "twice": name: is registered twice',
      expect.stringContaining('tool "No-Good": name: must match'),
    ]);
  });

  it('lists definitions by name in byte order and knows no others', () => {
    const registry = createToolSet([tool('b'), tool('_request_context'), tool('a_b'), tool('a')]);
    expect(registry.definitions().map((d) => d.name)).toEqual(['_request_context', 'a', 'a_b', 'b']);
    expect(registry.definition('a')?.description).toBe('Does a');
    expect(registry.definition('constructor')).toBeNull();
  });

  // Promise 09.1: A schema with oneOf is registered and enforced.
  it('registers and enforces a schema with oneOf', () => {
    const schema = { type: 'object', properties: { x: { oneOf: [{ type: 'string' }, { type: 'integer' }] } } };
    const registry = createToolSet([tool('pick', schema)]);
    expect(registry.validate('pick', { x: 1 })).toEqual([]);
    expect(registry.validate('pick', { x: true }).map((i) => i.path)).toContain('x');
  });

  it('makes a fresh tool for every call', () => {
    const registry = createToolSet([tool('a')]);
    expect(registry.create('a')).not.toBe(registry.create('a'));
  });
});

function catchError(fn: () => unknown): unknown {
  try {
    fn();
  } catch (error) {
    return error;
  }
  throw new Error('nothing was thrown');
}
