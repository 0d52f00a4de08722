// Input schemas in the shapes that MCP servers in use declare, each with inputs that it accepts and refuses.
import type { JsonSchema } from '#protocol/tool.ts';

type Input = Readonly<Record<string, unknown>>;

const object = (properties: Input, more: Input = {}) => ({ type: 'object', properties, ...more });
const text = { type: 'string' };
const count = { type: 'integer', minimum: 1 };
const DRAFT_07 = 'http://json-schema.org/draft-07/schema#';
const DRAFT_2020 = 'https://json-schema.org/draft/2020-12/schema';

export interface Shape {
  readonly schema: JsonSchema;
  /** In the names that a model is shown. */
  readonly takes: readonly Input[];
  readonly refuses: readonly Input[];
}

/** By the name of the tool. */
export const SHAPES: Readonly<Record<string, Shape>> = {
  // Wiki, hosted: a union of requests without a type at its root.
  'update-page': {
    schema: {
      anyOf: [
        object({ command: { const: 'rename' }, page: text, title: text }, { required: ['command', 'page', 'title'] }),
        object({ command: { const: 'move' }, page: text, parent: text }, { required: ['command', 'page', 'parent'] }),
      ],
    },
    takes: [{ command: 'rename', page: 'a', title: 'b' }],
    refuses: [{ command: 'rename', page: 'a' }],
  },
  // Issue tracker: one of two properties beside those that are always there.
  add_comment: {
    schema: object(
      { issue: count, body: text, reaction: { enum: ['+1', 'heart'] } },
      {
        required: ['issue'],
        anyOf: [{ required: ['body'] }, { required: ['reaction'] }],
        dependentSchemas: { body: {} },
      },
    ),
    takes: [{ issue: 1, body: 'x' }],
    refuses: [{ issue: 1 }],
  },
  // Calendar: an event with times or with days.
  create_event: {
    schema: object(
      { title: text },
      {
        $schema: DRAFT_07,
        additionalProperties: false,
        required: ['title'],
        oneOf: [
          object({ start: text, end: text }, { required: ['start', 'end'] }),
          object({ day: text }, { required: ['day'] }),
        ],
      },
    ),
    takes: [],
    refuses: [{ title: 'x' }],
  },
  // Tracing: base fields and a union, joined.
  score_config: {
    schema: {
      type: 'object',
      allOf: [
        object({ name: text, kind: text }, { required: ['name', 'kind'] }),
        {
          anyOf: [
            object({ kind: { const: 'number' }, limits: { type: 'object' } }, { required: ['kind'] }),
            object({ kind: { const: 'choice' }, choices: { type: 'array' } }, { required: ['kind', 'choices'] }),
          ],
        },
      ],
    },
    takes: [{ name: 'x', kind: 'number' }],
    refuses: [{ name: 'x', kind: 'choice' }],
  },
  // A generator that names its root: the object is behind a reference.
  run_query: {
    schema: {
      $schema: DRAFT_2020,
      type: 'object',
      $ref: '#/$defs/Query',
      $defs: { Query: object({ sql: text, page: { $ref: '#/$defs/Page' } }, { required: ['sql'] }), Page: count },
    },
    takes: [{ sql: 'x', page: 2 }],
    refuses: [{ sql: 'x', page: 0 }],
  },
  // Phone: a path of points, each a tuple, in the older dialect.
  drag: {
    schema: object(
      {
        points: { type: 'array', items: { type: 'array', items: [count, count], additionalItems: false, minItems: 2 } },
        tail: { type: 'array', items: [text], additionalItems: count },
      },
      { $schema: DRAFT_07 },
    ),
    takes: [{ points: [[1, 2]], tail: ['a', 1, 2] }],
    refuses: [{ points: [[1, 2, 3]] }, { tail: ['a', 'b'] }, { points: [[1]] }],
  },
  // The same tuple without a dialect.
  resize: {
    schema: object({ size: { type: 'array', items: [count, count], additionalItems: false } }),
    takes: [{ size: [1, 2] }],
    refuses: [{ size: [1, 2, 3] }],
  },
  // App store, drive: names of query parameters.
  list_apps: {
    schema: object(
      {
        'filter[name]': text,
        $top: count,
        '@type': text,
        'filter name': text,
        filter_name: text,
        ['x'.repeat(70)]: count,
      },
      { required: ['filter[name]'], dependentRequired: { $top: ['@type'] } },
    ),
    takes: [{ filter_name_: 'a', _top: 1, _type: 'b' }],
    refuses: [{ _top: 1, _type: 'b' }, { filter_name_: 5 }, { filter_name_: 'a', _top: 1 }],
  },
  // Browser: no arguments, said in as few words as there are.
  'close-page': { schema: { type: 'object' }, takes: [{}], refuses: [] },
  'list-regions': { schema: {}, takes: [{}], refuses: [] },
  // Queue: an array of anything, an array or a text, a record of texts.
  publish: {
    schema: object({
      configs: { type: 'array' },
      body: { type: ['string', 'array', 'null'] },
      headers: { type: 'object', propertyNames: text, additionalProperties: text },
      when: { type: ['object', 'null'], format: 'json', nullable: true },
      again: { type: ['boolean', 'string'] },
    }),
    takes: [{ configs: [1, 'a'], body: null, headers: { a: 'b' }, when: {} }],
    refuses: [{ headers: { a: 1 } }],
  },
  // What providers refuse beside unions.
  either: {
    schema: object({ a: text, b: text }, { not: { required: ['a', 'b'] } }),
    takes: [{ a: 'x' }],
    refuses: [{ a: 'x', b: 'y' }],
  },
};

/** Legal schemas that no provider can be offered, with the reason. */
export const IMPOSSIBLE: Readonly<Record<string, { readonly schema: JsonSchema; readonly reason: string }>> = {
  never: {
    schema: { type: 'object', anyOf: [false] },
    reason: 'no model can be offered its input schema, which accepts no object',
  },
  anchored: {
    schema: { type: 'object', $ref: '#args', $defs: { args: { $anchor: 'args', type: 'object' } } },
    reason: 'no model can be offered its input schema, which refers to "#args" at its root',
  },
  endless: {
    schema: {
      type: 'object',
      anyOf: [{ $ref: '#/$defs/a' }, { $ref: '#/$defs/a' }],
      $defs: { a: { properties: { more: text }, anyOf: [{ $ref: '#' }, { $ref: '#' }] } },
    },
    reason: 'no model can be offered its input schema, which combines more than 200 forms',
  },
  remote: {
    schema: { type: 'object', anyOf: [{ $ref: 'https://example.com/a.json' }] },
    reason: 'input_schema.anyOf[0].$ref: must be a local reference (starting with "#")',
  },
};
