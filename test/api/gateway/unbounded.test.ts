// Requests that let their provider work by itself: the largest bill is reserved, or nothing is sent under a limit (22 §3).
import { expect, test } from 'vitest';
import { toPusd } from '#protocol/money.ts';
import { type GatewayOptions, type GatewayWorld, jsonOf, startGateway } from './world.ts';

const OPUS = 'claude-opus-4-7';
const HAIKU = 'claude-haiku-4-5';
const rates = (input: string, output: string) => ({ input_per_mtok_usd: input, output_per_mtok_usd: output });
const PRICES = JSON.stringify({
  pricing_version: 'tools',
  models: {
    'anthropic:claude-opus-4-7': rates('15', '75'),
    'anthropic:claude-haiku-4-5': { ...rates('1', '5'), fees: { web_search: '10' } },
    'openai:gpt-5': {
      ...rates('2.5', '10'),
      fees: { web_search_call: '10', code_interpreter_container: '30' },
      multipliers: { service_tier: { flex: '0.5', priority: '2' } },
    },
  },
});
const SEARCH = { type: 'web_search_20250305', name: 'web_search' };

const PATHS = { messages: '/v1/messages', chat: '/v1/chat/completions', responses: '/v1/responses' } as const;
type Wire = keyof typeof PATHS;
const BODIES: Readonly<Record<Wire, object>> = {
  messages: { model: HAIKU, max_tokens: 1000, messages: [{ role: 'user', content: 'hi' }] },
  chat: { model: 'gpt-5', max_completion_tokens: 1000, messages: [{ role: 'user', content: 'hi' }] },
  responses: { model: 'gpt-5', max_output_tokens: 1000, input: 'hi' },
};

function startPriced(answer: Parameters<typeof startGateway>[0] = () => ({}), options: GatewayOptions = {}) {
  const { config = {}, ...rest } = options;
  return startGateway(answer, {
    prices: [PRICES],
    config: { ...config, gateway: { min_output_tokens: 1, wait_seconds: 1, ...(config.gateway as object) } },
    ...rest,
  });
}

let count = 0;
const limited = (usd: string) => ({ 'x-metis-session': `s${count++}`, 'x-metis-budget-usd': usd });

/** What a call may cost, as its refusal under a tiny limit names it. */
async function readNeeded(world: GatewayWorld, wire: Wire, rest: object): Promise<bigint> {
  const refused = await world.post(PATHS[wire], { ...BODIES[wire], ...rest }, limited('0.000001'));
  const { message } = (await jsonOf(refused)).error;
  const amount = /may cost up to ([\d.]+) USD/.exec(message)?.[1];
  if (amount === undefined) throw new Error(message);
  return toPusd(amount);
}

// Promise 22.5: hosted tools are reserved by their uses, with their fees.
test('hosted tools are reserved by their uses, their samplings at the window, and their fees', async () => {
  const world = await startPriced();
  // A sampling of Haiku with one token of answer costs $0.2 and 5 millionths, a search $0.01.
  const messages = async (...tools: object[]) => Number(await readNeeded(world, 'messages', { tools })) / 1e12;
  expect(await messages({ ...SEARCH, max_uses: 2 })).toBeCloseTo(3 * 0.200005 + 0.02, 9);
  expect(await messages({ ...SEARCH, max_uses: 50 })).toBeCloseTo(10 * 0.200005 + 0.5, 9);
  const fetching = { type: 'web_fetch_20250910', name: 'web_fetch', max_uses: 3 };
  expect(await messages({ ...SEARCH, max_uses: 2 }, fetching)).toBeCloseTo(6 * 0.200005 + 0.02, 9);
  expect(await messages({ type: 'tool_search_tool_bm25', name: 'find' })).toBeCloseTo(10 * 0.200005, 9);
  // An advice of Opus with 5,000 tokens costs $3.375.
  const advisor = { type: 'advisor_20260301', name: 'advisor', model: OPUS, max_uses: 2, max_tokens: 5000 };
  expect(await messages(advisor)).toBeCloseTo(3 * 0.200005 + 2 * 3.375, 9);
  expect(await messages(advisor, { ...SEARCH, max_uses: 2 })).toBeCloseTo(5 * 0.200005 + 2 * 3.375 + 0.02, 9);

  // A window of GPT-5 costs $0.5, twice that where the account may ask for priority.
  const responses = async (rest: object) => Number(await readNeeded(world, 'responses', rest)) / 1e12;
  const tools = [{ type: 'web_search' }, { type: 'code_interpreter', container: { type: 'auto' } }];
  expect(await responses({ tools, max_tool_calls: 20, service_tier: 'default' })).toBeCloseTo(21 * 0.50001 + 0.6, 9);
  expect(await responses({ tools, max_tool_calls: 1, service_tier: 'flex' })).toBeCloseTo(2 * 0.50001 + 0.03, 9);
  expect(await responses({ tools, max_tool_calls: 1, service_tier: 'priority' })).toBeCloseTo(4 * 0.50001 + 0.03, 9);
  expect(await responses({ tools, max_tool_calls: 1 })).toBeCloseTo(4 * 0.50001 + 0.03, 9);
  expect(world.provider.received).toEqual([]);
});

const nested = (levels: number): object =>
  levels === 0 ? { type: 'web_search' } : { type: 'namespace', name: 'n', tools: [nested(levels - 1)] };

const deep = (levels: number): object => (levels === 0 ? { type: 'text' } : { content: [deep(levels - 1)] });

// Promise 22.5: what is not bounded is refused, naming field and remedy.
test.each<readonly [what: string, wire: Wire, rest: object, says: RegExp]>([
  ['a search without uses', 'messages', { tools: [SEARCH] }, /^tools: .*set max_uses/],
  ['uses as a text', 'messages', { tools: [{ ...SEARCH, max_uses: '5' }] }, /^tools: .*set max_uses/],
  ['negative uses', 'messages', { tools: [{ ...SEARCH, max_uses: -1 }] }, /^tools: .*set max_uses/],
  ['1e99 uses', 'messages', { tools: [{ ...SEARCH, max_uses: 1e99 }] }, /^tools: .*set max_uses/],
  ['half a use', 'messages', { tools: [{ ...SEARCH, max_uses: 0.5 }] }, /^tools: .*set max_uses/],
  ['uses in a list', 'messages', { tools: [{ ...SEARCH, max_uses: [1] }] }, /^tools: .*set max_uses/],
  ['uses in another case', 'messages', { tools: [{ ...SEARCH, max_uses: 1, Max_Uses: 9 }] }, /write max_uses/],
  ['a type in another case', 'messages', { tools: [{ ...SEARCH, type: 'Web_Search_20250305' }] }, /not known here/],
  ['two types', 'messages', { tools: [{ name: 'f', input_schema: {}, Type: SEARCH.type }] }, /write type/],
  ['a type in a list', 'messages', { tools: [{ ...SEARCH, type: [SEARCH.type] }] }, /not known here/],
  [
    'an unknown type',
    'messages',
    { tools: [{ type: 'thing_20270101', name: 'thing' }] },
    /"thing_20270101" is not known/,
  ],
  ['tools as an object', 'messages', { tools: { 0: SEARCH } }, /^tools: .*send a list of tools/],
  ['a tool as a list', 'messages', { tools: [[SEARCH]] }, /^tools: .*send a list of tools/],
  ['Tools', 'messages', { Tools: [SEARCH] }, /^"Tools": .*write tools/],
  ['a letter that folds', 'messages', { toolſ: [SEARCH] }, /write tools/],
  ['a code tool', 'messages', { tools: [{ type: 'code_execution_20250825', name: 'c' }] }, /nothing bounds the uses/],
  ['MCP servers', 'messages', { mcp_servers: [{ type: 'url', url: 'https://x', name: 'x' }] }, /^mcp_servers: /],
  [
    'default fallbacks',
    'messages',
    { fallbacks: 'default' },
    /^fallbacks: .*the provider chooses the model; list models/,
  ],
  ['fallbacks as an object', 'messages', { fallbacks: { model: HAIKU } }, /^fallbacks: /],
  ['a thread', 'messages', { thread: { type: 'continue', previous_message_id: 'msg_1' } }, /^thread: /],
  [
    'a tool that a message defines',
    'messages',
    {
      messages: [
        {
          role: 'system',
          content: [{ type: 'tool_addition', tool: { type: 'tool_definition', definition: SEARCH } }],
        },
      ],
    },
    /^messages: .*set max_uses/,
  ],
  ['an advisor without uses', 'messages', { tools: [{ type: 'advisor_20260301', model: OPUS }] }, /set max_uses/],
  ['a fee that is not known', 'messages', { model: OPUS, tools: [{ ...SEARCH, max_uses: 1 }] }, /add fees\.web_search/],
  ['several agents', 'responses', { multi_agent: { enabled: true } }, /^multi_agent: .*without multi_agent/],
  ['a search without calls', 'responses', { tools: [{ type: 'web_search' }] }, /^tools: .*set max_tool_calls/],
  ['calls as a text', 'responses', { tools: [{ type: 'web_search' }], max_tool_calls: '3' }, /set max_tool_calls/],
  ['MCP', 'responses', { tools: [{ type: 'mcp', server_label: 'x' }], max_tool_calls: 3 }, /nothing bounds the uses/],
  ['a nested search', 'responses', { tools: [nested(3)] }, /set max_tool_calls/],
  ['a deeply nested search', 'responses', { tools: [nested(40)], max_tool_calls: 1 }, /^tools: .*in no form/],
  ['loaded tools', 'responses', { input: [{ type: 'tool_search_output', tools: [{ type: 'mcp' }] }] }, /^input: /],
  ['a stored prompt', 'responses', { prompt: { id: 'pmpt_1' } }, /^prompt: .*send the text/],
  ['web_search_options', 'chat', { web_search_options: {} }, /^web_search_options: /],
  ['plugins', 'chat', { plugins: [{ id: 'web' }] }, /^plugins: /],
  ['an online model', 'chat', { model: 'gpt-5:online' }, /^model: .*without :online/],
  ['a fallback that searches', 'chat', { models: ['gpt-5:online'] }, /^models: .*without :online/],
  [
    'tools of a namespace as an object',
    'responses',
    { tools: [{ type: 'namespace', tools: {} }] },
    /send a list of tools/,
  ],
  ['loaded tools as an object', 'responses', { input: [{ type: 'tool_search_output', tools: {} }] }, /^input: /],
  [
    'a block in another case',
    'messages',
    { messages: [{ role: 'user', content: [{ Tools: [SEARCH] }] }] },
    /write tools/,
  ],
  ['blocks within blocks', 'messages', { messages: [{ role: 'user', content: [deep(20)] }] }, /^messages: .*too deep/],
  ['a preset', 'chat', { preset: 'mine' }, /^preset: /],
  ['camel case', 'messages', { tools: [{ ...SEARCH, maxUses: 9, max_uses: 1 }] }, /^"maxUses": .*write max_uses/],
  ['hyphens', 'chat', { 'Max-Completion-Tokens': 90_000 }, /write max_completion_tokens/],
  [
    "OpenRouter's advisor, which has no count of its uses",
    'chat',
    { tools: [{ type: 'openrouter:advisor', parameters: { model: 'gpt-5', max_uses: 1 } }] },
    /^tools: .*nothing bounds the uses of "openrouter:advisor"/,
  ],
  [
    'a container with more memory',
    'responses',
    { tools: [{ type: 'code_interpreter', container: { type: 'auto', memory_limit: '64g' } }], max_tool_calls: 1 },
    /^tools: .*1 GB of memory; leave memory_limit out/,
  ],
  [
    'a shell with more memory',
    'responses',
    { tools: [{ type: 'shell', environment: { type: 'container_auto', memory_limit: '4g' } }], max_tool_calls: 1 },
    /^tools: .*leave memory_limit out/,
  ],
  [
    'memory in another case',
    'responses',
    { tools: [{ type: 'code_interpreter', container: { type: 'auto', memoryLimit: '4g' } }], max_tool_calls: 1 },
    /write memory_limit/,
  ],
  ['sound', 'chat', { modalities: ['text', 'audio'] }, /^modalities: .*the rates of text alone; ask for text/],
  ['forms as a text', 'chat', { modalities: 'image' }, /^modalities: /],
  ['a mode of reasoning', 'responses', { reasoning: { mode: 'pro' } }, /^reasoning: .*the mode "pro".*to standard/],
  [
    'a model that searches, without a fee',
    'chat',
    { model: 'gpt-5-search-api' },
    /^model: .*add fees\.web_search_call/,
  ],
])('what nothing bounds is refused under a limit, and nothing is sent: %s', async (_what, wire, rest, says) => {
  const entry = (id: string, wire: string, pricing: string) =>
    `  openai:${id}: { wire_name: '${wire}', pricing_id: '${pricing}', capabilities: { max_context_tokens: 200000, max_output_tokens: 8192 } }\n`;
  const online = `${entry('online', 'gpt-5:online', 'openai:gpt-5')}${entry('searches', 'gpt-5-search-api', 'anthropic:claude-haiku-4-5')}`;
  const world = await startPriced(() => ({}), { models: online });
  const refused = await world.post(PATHS[wire], { ...BODIES[wire], ...rest }, limited('999'));
  const { type, code, message } = (await jsonOf(refused)).error;
  expect([refused.status, refused.headers.get('x-should-retry')]).toEqual([wire === 'responses' ? 400 : 402, 'false']);
  if (wire === 'messages') expect(type).toBe('billing_error');
  else expect(code).toBe('unbounded_request');
  expect(message).toMatch(says);
  expect(message).toMatch(/not possible under the session limit of 999 USD: /);
  expect(world.provider.received).toEqual([]);
  const free = await world.post(PATHS[wire], { ...BODIES[wire], ...rest }, { 'x-metis-session': 'free' });
  expect(free.status).toBe(200);
});

// Promise 22.5: keys that stand twice, and keys in escapes, pass no cap.
test('keys that stand twice and keys in escapes are bounded or refused', async () => {
  const world = await startPriced();
  const send = async (usd: string, tool: string) => {
    const body = `{"model":"${HAIKU}","max_tokens":1,"messages":[{"role":"user","content":"hi"}],"tools":[${tool}]}`;
    const answer = await world.post('/v1/messages', body, limited(usd));
    return [answer.status, answer.status === 200 ? '' : (await jsonOf(answer)).error.message] as const;
  };
  const twice = '{"type":"web_search_20250305","name":"s","max_uses":1,"max_uses":1000}';
  expect(await send('999', twice)).toEqual([402, expect.stringMatching(/a key twice; send each key once/)]);
  const typed = '{"type":"custom","type":"web_search_20250305","name":"s","max_uses":1}';
  expect(await send('999', typed)).toEqual([402, expect.stringMatching(/a key twice/)]);
  const escaped = '{"t\\u0079pe":"web_search\\u005f20250305","name":"s","max_\\u0075ses":2}';
  expect(await send('0.6', escaped)).toEqual([402, expect.stringMatching(/limit of 0.6 USD is reached/)]);
  // An escape may hide a word that makes the prompt dearer to cache: three windows at that rate.
  expect((await send('1.3', escaped))[0]).toBe(200);
  const huge = '{"type":"web_search_20250305","name":"s","max_uses":9007199254740991}';
  expect(await send('999', huge)).toEqual([402, expect.stringMatching(/may cost up to 90071992547411/)]);
});

// Promise 22.5: with gateway.unbounded: allow such a call leaves and holds a window.
test('gateway.unbounded: allow sends what nothing bounds, and holds the window of the most expensive model named', async () => {
  const world = await startPriced(() => ({ usage: { input: 10, output: 10 } }), {
    config: { gateway: { unbounded: 'allow' } },
  });
  const tools = [{ type: 'advisor_20260301', name: 'advisor', model: OPUS }];
  const send = (usd: string) => world.post('/v1/messages', { ...BODIES.messages, max_tokens: 10, tools }, limited(usd));
  // A window of Opus costs $3.
  expect((await send('2.9')).status).toBe(402);
  expect((await send('3.1')).status).toBe(200);
  expect(world.provider.received).toHaveLength(1);
  const { payload, session_id } = await world.server.event('llm.call_completed');
  expect(payload.bound).toBe('none');
  const readBounds = async (id: string) =>
    (await world.server.client.listCalls(id)).calls.map(({ bound, cost_usd }) => [bound, cost_usd]);
  expect(await readBounds(session_id)).toEqual([['none', '0.00006']]);

  // A bounded call has no mark, and neither has one that no limit covers.
  for (const [session, headers, rest] of [
    ['bounded', { 'x-metis-budget-usd': '1' }, { max_tokens: 10 }],
    ['free', {}, { max_tokens: 10, tools }],
  ] as const) {
    const body = { ...BODIES.messages, ...rest };
    await (await world.post('/v1/messages', body, { 'x-metis-session': session, ...headers })).text();
    const { sessions } = await world.server.client.listSessions({ door: 'gateway' });
    expect(await readBounds(sessions.find(({ client_ref }) => client_ref === session)!.id)).toEqual([
      [null, '0.00006'],
    ]);
  }
});

const MODELS = `  openai:long: { wire_name: long, pricing_id: 'openai:gpt-5', capabilities: { max_context_tokens: 200000, max_output_tokens: 100000 } }
  openai:finder: { wire_name: gpt-5-search-api, pricing_id: 'openai:gpt-5', capabilities: { max_context_tokens: 200000, max_output_tokens: 8192 } }
`;

// Promise 22.5: what the request lets be generated beyond its own bound is reserved.
test('predictions, several candidates, longer fallbacks and searches of a model are reserved', async () => {
  const world = await startPriced(() => ({}), { models: MODELS });
  const chat = async (rest: object) =>
    Number(await readNeeded(world, 'chat', { service_tier: 'default', ...rest })) / 1e12;
  const plain = await chat({});
  // GPT-5: $2.5 and $10 a million. The body and the answer grow by the prediction.
  const content = 'x'.repeat(10_000);
  const prediction = { type: 'content', content };
  const bytes = JSON.stringify(prediction).length;
  expect(await chat({ prediction })).toBeCloseTo(plain + bytes * 12.5e-6 + ',"prediction":'.length * 2.5e-6, 9);
  expect(await chat({ best_of: 5 })).toBeCloseTo(plain + 4 * 10e-6 + ',"best_of":5'.length * 2.5e-6, 9);
  // A search costs $0.01.
  expect(await chat({ model: 'gpt-5-search-api' })).toBeCloseTo(plain + 0.01 + 11 * 2.5e-6, 9);
  expect(await chat({ model: 'gpt-5-search-api', best_of: 3 })).toBeGreaterThan(plain + 0.03);

  // Without a bound in the body, or with one in a form of its own, a fallback may answer as long as it can.
  const free = { ...BODIES.chat, max_completion_tokens: undefined, service_tier: 'default' };
  const roomy = await startPriced(() => ({}), {
    models: MODELS,
    config: { gateway: { min_output_tokens: 1_000_000 } },
  });
  const all = async (body: object) => Number(await readNeeded(roomy, 'chat', body)) / 1e12;
  expect(await all({ ...free, models: ['long'] })).toBeGreaterThan((8192 + 100_000) * 10e-6);
  expect(await all({ ...free, max_completion_tokens: 10, models: ['long'] })).toBeLessThan(0.05);
  expect(
    await all({ ...free, max_completion_tokens: 10, fallbacks: [{ model: 'long', max_tokens: '9' }] }),
  ).toBeGreaterThan(100_000 * 10e-6);
  // A threshold, a speed and a tier in a form of their own may mean any.
  const priority = 1.9 * plain;
  expect(await chat({ service_tier: ['flex'] })).toBeGreaterThan(priority);
  expect(
    await chat({ service_tier: 'flex', fallbacks: [{ model: 'gpt-5', service_tier: 'priority' }] }),
  ).toBeGreaterThan(2 * priority);
  const compacts = async (trigger: unknown) =>
    Number(
      await readNeeded(world, 'messages', { context_management: { edits: [{ type: 'compact_20260112', trigger }] } }),
    );
  const never = await compacts({ type: 'input_tokens', value: 60_000 });
  expect(await compacts({ type: 'input_tokens', value: '1' })).toBeGreaterThan(10 * never);
  expect(await compacts(1)).toBeGreaterThan(10 * never);
  expect(world.provider.received.concat(roomy.provider.received)).toEqual([]);
});

// Promise 22.5: candidates in no form of a count are refused.
test('a number of candidates that is no count is refused, under a limit or none', async () => {
  const world = await startPriced();
  for (const best_of of ['5', 0, -1, 1.5, [2]]) {
    const answer = await world.post(PATHS.chat, { ...BODIES.chat, best_of });
    expect([best_of, answer.status]).toEqual([best_of, 400]);
    expect((await jsonOf(answer)).error.message).toContain('best_of: must be a whole number from 1');
  }
  expect(world.provider.received).toEqual([]);
});
