// Schemas as MCP servers in use declare them: providers accept what models are offered of them, calls are as declared (09 §11.3).
import { expect, it } from 'vitest';
import { mcpToolName } from '#core/policy/tools/tool-names.ts';
import { silentLogger } from '#core/ports/logger.ts';
import { createAnthropicEncoder } from '#models/wire/anthropic-request.ts';
import { createOpenAiEncoder } from '#models/wire/openai-request.ts';
import type { WireTool } from '#protocol/model-call.ts';
import { bodyText, request, user } from '../../provider/support.ts';
import { IMPOSSIBLE, SHAPES } from '../../support/mcp-shapes.ts';
import { schemaViolations } from '../../support/tool-schema-rules.ts';
import { violations } from '../../support/wire-rules.ts';
import { FIXTURE, fixture, mcpWorld } from './world.ts';

const WIRES = {
  anthropic: { wire: 'anthropic', encode: createAnthropicEncoder({}, silentLogger) },
  openai: { wire: 'openai', encode: createOpenAiEncoder('openai', {}, silentLogger) },
  openrouter: { wire: 'openai', encode: createOpenAiEncoder('openrouter', {}, silentLogger) },
} as const;
const schemasOf = (shapes: Readonly<Record<string, { readonly schema: unknown }>>) =>
  JSON.stringify(Object.fromEntries(Object.entries(shapes).map(([name, { schema }]) => [name, schema])));
const serving = (shapes: Readonly<Record<string, { readonly schema: unknown }>>) =>
  mcpWorld({ s: fixture('schemas', { args: [FIXTURE, 'schemas', schemasOf(shapes)] }) });

const offered = async (shapes: Readonly<Record<string, { readonly schema: unknown }>>) => {
  const world = serving(shapes);
  const tools = await world.tools();
  const schema = (name: string) =>
    tools.find(({ definition }) => definition.name === mcpToolName('s', name))?.definition.input_schema;
  return { world, tools, schema };
};

// Promise 09.18: Schemas in the shapes that servers in use declare pass the rules of every wire.
it('every wire accepts every schema in one request', async () => {
  const { world, tools } = await offered(SHAPES);
  expect(world.warnings()).toEqual([]);
  expect(tools).toHaveLength(Object.keys(SHAPES).length);
  const wireTools: WireTool[] = tools.map(({ definition: { name, description, input_schema } }) => ({
    name,
    description,
    input_schema,
  }));
  for (const { wire, encode } of Object.values(WIRES)) {
    const sent = bodyText(encode({ ...request({ messages: [user('go')] }), tools: wireTools }));
    expect(violations({ wire, body: JSON.parse(sent), text: sent } as never)).toEqual([]);
  }
});

it('the rules of the providers refuse each of the schemas as it is declared', () => {
  const refused = Object.entries(SHAPES).filter(([, { schema }]) =>
    (['anthropic', 'openai'] as const).some((wire) => schemaViolations(wire, schema).length > 0),
  );
  expect(refused.map(([name]) => name)).toEqual(Object.keys(SHAPES));
});

// Promise 09.18: They are enforced as declared, and calls have the server's own names.
it('a call is checked against the declared schema and reaches the server under its own names', async () => {
  const { world } = await offered(SHAPES);
  for (const [name, { takes, refuses }] of Object.entries(SHAPES)) {
    const tool = mcpToolName('s', name);
    for (const input of takes)
      expect(Object.values(JSON.parse(await world.call(tool, input)))).toEqual(Object.values(input));
    for (const input of refuses)
      await expect(world.call(tool, input), `${name} ${JSON.stringify(input)}`).rejects.toThrow();
  }
  const sent = await world.call(mcpToolName('s', 'list_apps'), { filter_name_: 'a', filter_name_d: 1 });
  expect(JSON.parse(sent)).toEqual({ 'filter[name]': 'a', filter_name_d: 1 });
  await expect(world.call(mcpToolName('s', 'list_apps'), { filter_name_: 5 })).rejects.toThrow(
    'filter_name_: must be string',
  );
});

it('a union is one object that names all properties; its description says which go together', async () => {
  const { schema } = await offered(SHAPES);
  expect(schema('update-page')).toEqual({
    type: 'object',
    description:
      'At least one of these combinations of properties is required: ' +
      '(1) command = "rename", page, title; (2) command = "move", page, parent.',
    properties: {
      command: { enum: ['rename', 'move'] },
      page: { type: 'string' },
      title: { type: 'string' },
      parent: { type: 'string' },
    },
    required: ['command', 'page'],
  });
  expect(schema('add_comment')).toMatchObject({ required: ['issue'], dependentSchemas: { body: {} } });
  expect(schema('create_event')).toMatchObject({ required: ['title'], additionalProperties: false });
  expect(Object.keys(schema('score_config')?.properties as object)).toEqual(['name', 'kind', 'limits', 'choices']);
});

it('a tuple keeps its length and the types of its places', async () => {
  const { schema } = await offered(SHAPES);
  const place = { type: 'integer', minimum: 1 };
  expect(schema('drag')).toMatchObject({
    properties: {
      points: { items: { prefixItems: [place, place], items: {}, minItems: 2, maxItems: 2 } },
      tail: { prefixItems: [{ type: 'string' }], items: place },
    },
  });
});

// Promise 09.18: A schema without a form for providers leaves its tool out.
it('a schema that no provider takes in any form leaves its tool out, with one warning', async () => {
  const { world, tools } = await offered({ ...IMPOSSIBLE, fine: { schema: { type: 'object' } } });
  expect(tools.map(({ definition }) => definition.name)).toEqual(['mcp__s__fine']);
  const [line] = world.lines.filter(({ level }) => level === 'warn');
  expect(line?.fields.problems).toEqual(
    Object.entries(IMPOSSIBLE)
      .map(([name, { reason }]) => `has a tool "${name}" that is left out: ${reason}`)
      .sort(),
  );
});
