// How the tools of an MCP server are called and described here (09 §11.2).
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { listedTools } from '#core/policy/mcp/listed-tools.ts';
import { isSameTool, mcpToolName, namesTool } from '#core/policy/tools/tool-names.ts';
import { McpServerNameSchema } from '#protocol/mcp.ts';

const config = { transport: 'stdio' as const, command: 'x' };
const entry = (name: string, more = {}) => ({ name, inputSchema: { type: 'object' }, ...more });

describe('names', () => {
  it.each([
    ['read_file', 'mcp__fs__read_file'],
    ['Read-File.v2', 'mcp__fs__Read-File_v2'],
    ['resolve-library-id', 'mcp__fs__resolve-library-id'],
    ['läsen', 'mcp__fs__l_sen'],
    ['x'.repeat(55), `mcp__fs__${'x'.repeat(55)}`],
    ['x'.repeat(56), `mcp__fs__${'x'.repeat(46)}_04c26261`],
  ])('%s', (original, name) => {
    expect(mcpToolName('fs', original)).toBe(name);
  });

  it('every name of every server is one that providers take, and its own name means it', () => {
    fc.assert(
      fc.property(fc.stringMatching(/^[A-Za-z][A-Za-z0-9_-]{0,31}$/), fc.string({ minLength: 1 }), (server, tool) => {
        fc.pre(McpServerNameSchema.safeParse(server).success);
        const name = mcpToolName(server, tool);
        expect(name).toMatch(/^[A-Za-z0-9_-]{1,64}$/);
        expect(isSameTool(`mcp__${server}__${tool}`, name)).toBe(true);
        expect(namesTool(`mcp__${server}__*`, name)).toBe(true);
      }),
    );
  });

  it.each([
    ['mcp__context7__resolve-library-id', true],
    ['mcp__context7__resolve_library_id', true],
    ['mcp__Context7__Resolve-Library-Id', true],
    ['mcp__context7__resolve*', true],
    ['mcp__context7__*', true],
    ['mcp__context__*', false],
    ['mcp__context7__resolve-library', false],
    ['resolve-library-id', false],
  ])('%s means mcp__context7__resolve-library-id: %s', (entry, yes) => {
    expect(namesTool(entry, 'mcp__context7__resolve-library-id')).toBe(yes);
  });

  it('names of other tools are told apart by case and character', () => {
    expect(isSameTool('Shell', 'shell')).toBe(false);
    expect(namesTool('read-*', 'read_file')).toBe(false);
  });

  it('of two that rules do not tell apart, the first in byte order is used, whatever the order of the list', () => {
    for (const names of [
      ['a-b', 'a.b'],
      ['a.b', 'a-b'],
    ]) {
      const { tools, warnings } = listedTools(
        's',
        config,
        names.map((name) => entry(name)),
      );
      expect(tools.map(({ original }) => original)).toEqual(['a-b']);
      expect(warnings).toEqual([
        'has the tools "a-b" and "a.b", whose names no rule can distinguish; the second is left out',
      ]);
    }
  });
});

it('a description is plain text of at most 1,024 characters', () => {
  const { tools } = listedTools('s', config, [
    entry('a', { description: `\u0000one\u001b[31m\ntwo\u007f${'😀'.repeat(2000)}` }),
    entry('b', { description: 5 }),
  ]);
  expect(tools[0]?.definition.description).toBe(`one[31m\ntwo${'😀'.repeat(1024 - 11)}`);
  expect(tools[1]?.definition.description).toBe('b');
});

it('the class is that of the transport unless the configuration says another; what the server says is ignored', () => {
  const annotated = entry('a', { annotations: { readOnlyHint: true } });
  const classOf = (given: Parameters<typeof listedTools>[1]) =>
    listedTools('s', given, [annotated]).tools[0]?.definition.side_effects;
  expect(classOf(config)).toBe('execute');
  expect(classOf({ transport: 'http', url: 'https://x' })).toBe('network');
  expect(classOf({ ...config, side_effects: 'read' })).toBe('read');
  expect(classOf({ ...config, side_effects: 'read', tools: { a: { side_effects: 'none' } } })).toBe('none');
});

it('tools that need too much room are cut off by name', () => {
  const wide = { type: 'object', description: 'x'.repeat(100_000) };
  const { tools, warnings } = listedTools(
    's',
    config,
    [1, 2, 3, 4, 5, 6].map((n) => ({ name: `t${n}`, inputSchema: wide })),
  );
  expect(tools).toHaveLength(5);
  expect(warnings).toEqual(['describes its tools in more than 524288 bytes; the first 5 by name are used']);
});

it('entries that are no tools are left out, one sentence each', () => {
  const { tools, warnings } = listedTools('s', config, [
    null,
    [],
    'x',
    {},
    entry(''),
    entry('x'.repeat(300)),
    { name: 'a' },
    { name: 'b', inputSchema: [] },
    entry('fine'),
  ]);
  expect(tools.map(({ original }) => original)).toEqual(['fine']);
  expect(warnings).toEqual([
    ...Array(5).fill('lists a tool without a name'),
    'lists a tool with a name of 300 characters',
    'has a tool "a" without an input schema',
    'has a tool "b" without an input schema',
  ]);
});
