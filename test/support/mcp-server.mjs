// An MCP server of the tests, over stdio and by hand: it does what a good one does, and what a bad one might.
// The first argument is its manner, `good` or one of the bad ones below.
import fs from 'node:fs';
import readline from 'node:readline';

const manner = process.argv[2] ?? 'good';
const object = (properties = {}, more = {}) => ({ type: 'object', properties, ...more });
const tools = new Map();
const offer = (name, inputSchema, run, more = {}) => tools.set(name, { name, inputSchema, run, ...more });
const text = (value) => ({ content: [{ type: 'text', text: String(value) }] });
const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
const asked = new Map();
const cancelled = new Set();
let nextId = 1;

offer(
  'echo',
  object({ say: { oneOf: [{ type: 'string' }, { type: 'integer' }] } }, { required: ['say'] }),
  ({ say }) => text(say),
  {
    description: 'Says\u0007 it again.',
  },
);
offer('env', object(), () => text(JSON.stringify(process.env)));
offer('pid', object(), () => text(process.pid));
offer('Crash Now', object(), () => process.exit(3));
offer('hang', object(), () => new Promise(() => {}));
offer('cancelled', object(), () => text([...cancelled].length));
offer('big', object({ bytes: { type: 'integer' } }), ({ bytes }) => text('x'.repeat(bytes)));
offer('refuse', object(), () => {
  throw new Error('that is not\nwanted');
});
offer('fails', object(), () => ({ ...text('no such thing'), isError: true }));
offer('structured', object(), () => ({ content: [], structuredContent: { a: 1 } }));
offer('blocks', object(), () => ({
  content: [
    {
      type: 'image',
      data: 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
      mimeType: 'image/png',
    },
    { type: 'image', data: 'bm90IGFuIGltYWdl', mimeType: 'image/png' },
    { type: 'audio', data: 'AAAA', mimeType: 'audio/wav' },
    { type: 'resource', resource: { uri: 'file:///a', text: 'inside' } },
    { type: 'resource_link', name: 'b', uri: 'file:///b' },
    { type: 'hologram' },
    7,
  ],
}));
offer('wrong', object(), () => ({ content: 'not a list' }));
offer('roots', object(), async () => {
  const id = `s${nextId++}`;
  const answer = new Promise((resolve) => asked.set(id, resolve));
  send({ id, method: 'roots/list' });
  return text(JSON.stringify((await answer).roots));
});
offer('learn', object({ name: { type: 'string' } }), ({ name }) => {
  offer(name, object(), () => text(`I am ${name}`));
  send({ method: 'notifications/tools/list_changed' });
  return text('learned');
});
offer('progress', object({ at_once: { type: 'boolean' } }), async ({ at_once }, progressToken) => {
  // With the answer in one piece.
  if (at_once) {
    process.stdout.cork();
    setImmediate(() => process.stdout.uncork());
  }
  for (const progress of [1, 2, 3]) {
    send({ method: 'notifications/progress', params: { progressToken, progress, total: 3 } });
    if (!at_once) await new Promise((resolve) => setTimeout(resolve, 10));
  }
  return text('done');
});
if (manner === 'good') {
  offer('remote', { type: 'object', properties: { a: { $ref: 'https://example.com/a.json' } } }, () => text('never'));
  offer('looks ahead', object({ a: { type: 'string', pattern: '^(?=x)' } }), () => text('never'));
  offer('task', object(), () => text('never'), { execution: { taskSupport: 'required' } });
  tools.set('nameless', { inputSchema: object() });
}
if (manner === 'schemas') {
  // The second argument is JSON: input schemas by the name of their tool.
  tools.clear();
  for (const [name, schema] of Object.entries(JSON.parse(process.argv[3])))
    offer(name, schema, (input) => text(JSON.stringify(input)));
}
if (manner === 'nags') {
  // Asks without end and reads no answer.
  offer('nag', object(), () => {
    process.stdin.pause();
    const more = () => {
      let full = false;
      while (!full) full = !process.stdout.write(`{"jsonrpc":"2.0","id":"n${nextId++}","method":"ping"}\n`);
      process.stdout.once('drain', more);
    };
    more();
  });
}
if (manner === 'many' || manner === 'pages') {
  for (let i = 0; i < 5000; i++) offer(`tool_${i}`, object(), () => text(i));
}
if (manner === 'exits') process.exit(1);
// The first time it ends at once, later it says nothing.
if (manner === 'exits, then mute' && !fs.existsSync('was-here')) {
  fs.writeFileSync('was-here', '');
  process.exit(1);
}
process.stderr.write('ready\n');
if (manner === 'chatty') for (let i = 0; i < 4000; i++) process.stderr.write(`${'noise '.repeat(8)}${i}\n`);

const answers = {
  initialize: ({ protocolVersion }) => ({
    protocolVersion,
    capabilities: { tools: { listChanged: true } },
    serverInfo: { name: 'fixture', version: '1' },
  }),
  ping: () => ({}),
  'tools/list': ({ cursor } = {}) => {
    const all = [...tools.values()].map(({ run: _, ...tool }) => tool);
    if (manner !== 'pages') return { tools: all };
    const from = Number(cursor ?? 0);
    return { tools: all.slice(from, from + 10), nextCursor: String(from + 10) };
  },
  'tools/call': ({ name, arguments: input, _meta }) => {
    const tool = tools.get(name);
    if (!tool) throw new Error(`there is no ${name}`);
    return tool.run(input ?? {}, _meta?.progressToken);
  },
};

readline.createInterface({ input: process.stdin }).on('line', async (line) => {
  if (manner.endsWith('mute')) return;
  if (manner === 'garbage') return void process.stdout.write('<html>hello</html>\n');
  if (manner === 'deep') return void process.stdout.write(`${'['.repeat(100_000)}\n`);
  const { id, method, params, result } = JSON.parse(line);
  if (method === 'notifications/cancelled') cancelled.add(params.requestId);
  if (method === undefined) return void asked.get(id)?.(result);
  if (id === undefined) return;
  try {
    if (!(method in answers)) throw new Error(`no ${method}`);
    send({ id, result: await answers[method](params) });
  } catch (error) {
    send({ id, error: { code: -32000, message: error.message } });
  }
});
