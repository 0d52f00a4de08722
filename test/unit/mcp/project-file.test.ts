// A workspace's `.mcp.json`: what is taken from it, what is left out, and that each fault is one sentence (09 §11).
import { expect, it } from 'vitest';
import { readProjectServers } from '#core/policy/mcp/project-file.ts';
import { McpServerNameSchema } from '#protocol/mcp.ts';

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
      'brave-search': { transport: 'stdio', command: 'npx', args: ['-y', 'brave'], env: { KEY: '1' } },
      remote: { transport: 'http', url: 'https://example.com/mcp', headers: { Authorization: 'Bearer x' } },
      bare: { transport: 'http', url: 'https://example.com/mcp' },
    },
    warnings: [],
  });
});

// Promise 09.26: A project file may name the transports as other programs do.
it('a server that is disabled there is none; the transports bear the names that other programs give them', () => {
  const url = `$\u007bBASE:-https://x}/mcp`;
  const { servers, warnings } = read({
    mcpServers: {
      off: { command: 'x', disabled: true },
      alsoOff: { command: 'x', enabled: false },
      on: { command: 'x', disabled: false },
      a: { type: 'sse', url },
      b: { type: 'streamable-http', url },
      c: { type: 'streamableHttp', url },
    },
  });
  expect(servers).toEqual({
    on: { transport: 'stdio', command: 'x' },
    a: { transport: 'sse', url },
    b: { transport: 'http', url },
    c: { transport: 'http', url },
  });
  expect(warnings).toEqual([]);
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
  [{ mcpServers: { a: { type: 'ws', url: 'https://x' } } }, /^mcpServers\.a\.type: must be "stdio", "http"/],
  [{ mcpServers: { a: { type: 'toString', url: 'https://x' } } }, /^mcpServers\.a\.type: must be "stdio", "http"/],
  [{ mcpServers: { a: { command: 'x', disabled: 'true' } } }, /^mcpServers\.a\.disabled: must be true or false/],
  [{ mcpServers: { a: { command: 'x', enabled: 'no' } } }, /^mcpServers\.a\.enabled: must be true or false/],
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
  expect(servers).toEqual({ 'a-b': { transport: 'stdio', command: 'x' } });
  expect(warnings).toEqual(['mcpServers.a.b: another server is called a-b already']);
});

it('a name of the prototype is a name like any other', () => {
  const { servers, warnings } = read('{"mcpServers":{"__proto__":{"command":"x"},"constructor":{"command":"y"}}}');
  expect(servers).toEqual({ constructor: { transport: 'stdio', command: 'y' } });
  expect(warnings).toHaveLength(1);
});

it.each([
  ['Brave Search', 'Brave_Search'],
  ['context7', 'context7'],
  ['chrome-devtools', 'chrome-devtools'],
  ['a - b', 'a_b'],
  ['git-', 'git'],
])('a server called %s is %s', (written, name) => {
  expect(Object.keys(read({ mcpServers: { [written]: { command: 'x' } } }).servers)).toEqual([name]);
});

it.each(['git_', 'git-', 'a__b', 'a--b', 'a-_b', '1a', '', 'x'.repeat(33)])(
  'a rule for the tools of one server covers no other: %s is no name',
  (name) => {
    expect(McpServerNameSchema.safeParse(name).success).toBe(false);
  },
);
