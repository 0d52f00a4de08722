// A workspace's `.mcp.json`: what is taken from it, what is left out, and that each fault is one sentence (09 §11).
import { expect, it } from 'vitest';
import { McpServerNameSchema } from '../../../src/domain/mcp.ts';
import { readProjectServers } from '../../../src/policy/mcp/project-file.ts';

const read = (value: unknown) => {
  const { servers, warnings } = readProjectServers(typeof value === 'string' ? value : JSON.stringify(value));
  return { servers: Object.fromEntries(servers), warnings };
};

it('reads what other programs wrote there', () => {
  expect(
    read({
      mcpServers: {
        'brave-search': { command: 'npx', args: ['-y', 'brave'], env: { KEY: '1' } },
        remote: { type: 'http', url: 'https://example.com/mcp', headers: { Authorization: 'Bearer x' } },
        bare: { url: 'https://example.com/mcp' },
      },
    }),
  ).toEqual({
    servers: {
      brave_search: { transport: 'stdio', command: 'npx', args: ['-y', 'brave'], env: { KEY: '1' } },
      remote: { transport: 'http', url: 'https://example.com/mcp', headers: { Authorization: 'Bearer x' } },
      bare: { transport: 'http', url: 'https://example.com/mcp' },
    },
    warnings: [],
  });
});

it('a workspace does not say how far its tools are trusted', () => {
  const { servers, warnings } = read({
    mcpServers: { a: { command: 'x', side_effects: 'none', allow_workers: true } },
  });
  expect(servers).toEqual({ a: { transport: 'stdio', command: 'x' } });
  expect(warnings).toEqual(['mcpServers.a: side_effects, allow_workers is not read from a project file']);
});

it.each([
  ['{', /^is not valid JSON: /],
  ['[]', /^mcpServers: must be an object of servers by name$/],
  [{ mcpServers: [] }, /^mcpServers: must be an object of servers by name$/],
  [{ mcpServers: { a: 5 } }, /^mcpServers\.a: must be an object$/],
  [{ mcpServers: { a: { type: 'sse', url: 'https://x' } } }, /^mcpServers\.a\.type: must be "stdio" or "http"/],
  [{ mcpServers: { a: {} } }, /^mcpServers\.a\.command: is required; the server is not used$/],
  [{ mcpServers: { a: { command: 5 } } }, /^mcpServers\.a\.command: must be a string; the server is not used$/],
  [{ mcpServers: { a: { command: 'x', url: 'https://x' } } }, /^mcpServers\.a\.url: is not for transport "stdio"/],
  [{ mcpServers: { a: { type: 'http', url: 'file:///etc' } } }, /^mcpServers\.a\.url: must be an http or https URL/],
  [{ mcpServers: { '9': { command: 'x' } } }, /^mcpServers\.9: the name cannot be used/],
  [{ mcpServers: { ['x'.repeat(5000)]: { command: 'x' } } }, /^mcpServers\.x{100}\.\.\.: the name cannot be used/],
  ['['.repeat(1000), /^is nested deeper than 100 levels at line 1$/],
  [`"${'x'.repeat(300_000)}"`, /^has more than 262144 bytes$/],
])('%#: one sentence, and no server', (given, sentence) => {
  const { servers, warnings } = read(given);
  expect(servers).toEqual({});
  expect(warnings).toEqual([expect.stringMatching(sentence)]);
});

it('two names that become one: the first has it', () => {
  const { servers, warnings } = read({ mcpServers: { 'a-b': { command: 'x' }, 'a.b': { command: 'y' } } });
  expect(servers).toEqual({ a_b: { transport: 'stdio', command: 'x' } });
  expect(warnings).toEqual(['mcpServers.a.b: another server is called a_b already']);
});

it('a name of the prototype is a name like any other', () => {
  const { servers, warnings } = read('{"mcpServers":{"__proto__":{"command":"x"},"constructor":{"command":"y"}}}');
  expect(servers).toEqual({ constructor: { transport: 'stdio', command: 'y' } });
  expect(warnings).toHaveLength(1);
});

it('a rule for the tools of one server covers no other: a name does not end with _', () => {
  expect(Object.keys(read({ mcpServers: { 'git-': { command: 'x' } } }).servers)).toEqual(['git']);
  expect(McpServerNameSchema.safeParse('git_').success).toBe(false);
});
