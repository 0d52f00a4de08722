// Calls that end otherwise than well, and agents below agents that have ended (19 §2.2, §2.3, §2.6).
import { expect, test } from 'vitest';
import type { SessionId } from '#protocol/ids.ts';
import { until } from '../../support/until.ts';
import { type GatewayWorld, jsonOf, startGateway } from './world.ts';

const OPUS = 'claude-opus-4-7';
const event = (data: object) => `data: ${JSON.stringify(data)}\n\n`;

const UNFINISHED = {
  '/v1/messages': [
    event({ type: 'message_start', message: { model: OPUS, usage: { input_tokens: 10, output_tokens: 1 } } }),
    event({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'x'.repeat(40) } }),
  ],
  '/v1/chat/completions': [event({ choices: [{ index: 0, delta: { content: 'x'.repeat(40) } }] })],
  '/v1/responses': [event({ type: 'response.output_text.delta', delta: 'x'.repeat(40) })],
};
const REQUESTS = {
  '/v1/messages': { model: OPUS, max_tokens: 100, messages: [] },
  '/v1/chat/completions': { model: 'gpt-5', messages: [] },
  '/v1/responses': { model: 'gpt-5', input: 'hi' },
};

// Promise 19.2: a stream that ends unfinished is booked as cut off.
test.each(Object.entries(UNFINISHED))(
  'a stream that ends in order before its answer does is booked as cut off, by estimate: %s',
  async (path, raw) => {
    const world = await startGateway(() => ({ raw }));
    const response = await world.post(path, { ...REQUESTS[path as keyof typeof REQUESTS], stream: true });
    expect(await response.text()).toBe(raw.join(''));
    const { payload } = await world.server.event('llm.call_completed');
    expect(payload).toMatchObject({
      stop_reason: 'cancelled',
      error_class: 'network',
      output_tokens: 10,
      usage_estimated: true,
    });
  },
);

test('a call that a shutdown cuts before its answer is 503, with a time to come again, and is booked', async () => {
  const world = await startGateway(() => ({ before: new Promise(() => {}) }));
  const asked = world.post('/v1/messages', { model: OPUS, max_tokens: 100, messages: [] });
  await world.server.event('llm.call_started');
  const closed = world.server.close();
  const answer = await asked;
  expect([answer.status, answer.headers.get('retry-after')]).toEqual([503, '5']);
  expect((await jsonOf(answer)).error).toMatchObject({
    type: 'api_error',
    message: expect.stringContaining('going down'),
  });
  await closed;
  const { payload } = await world.server.event('llm.call_failed');
  expect(payload).toMatchObject({ error_class: 'cancelled' });
});

/** A call of this agent. */
async function call(world: GatewayWorld, agent: string | null, parent: string | null = null): Promise<void> {
  const headers = {
    'x-metis-session': 's',
    ...(agent === null ? {} : { 'x-metis-agent': agent }),
    ...(parent === null ? {} : { 'x-metis-parent-agent': parent }),
  };
  const response = await world.post('/v1/messages', { model: OPUS, max_tokens: 10, messages: [] }, headers);
  expect([response.status, await response.text()]).toEqual([200, expect.any(String)]);
}

function created(world: GatewayWorld) {
  return world.server.events.filter(({ type }) => type === 'session.created');
}

// Promise 19.4: an ended or too deep parent agent is passed over for the root.
test('an agent below one that has ended belongs to the main agent', async () => {
  const world = await startGateway();
  await call(world, null);
  await call(world, 'above');
  const [root, above] = created(world).map(({ session_id }) => session_id);
  // As a server that dies while it ends a tree leaves it: the sub-agents end first.
  const { journal, clock } = world.server.engine;
  const end = {
    kind: 'session.end',
    session_id: above as SessionId,
    disposition: 'completed',
    at: clock.now(),
  } as const;
  await journal.commit({ writes: [end], emit: [] });
  await call(world, 'below', 'above');
  expect(created(world)[2]!.payload).toMatchObject({ parent_session_id: root, delegation_depth: 1 });
});

test('an agent deeper than 64 levels belongs to the main agent', async () => {
  const world = await startGateway();
  await call(world, null);
  for (let depth = 1; depth <= 65; depth++) await call(world, `a${depth}`, depth === 1 ? null : `a${depth - 1}`);
  const root = created(world)[0]!.session_id;
  const depths = created(world).map(({ payload }) => payload.delegation_depth);
  expect(depths).toEqual([...Array.from({ length: 65 }, (_, i) => i), 1]);
  expect(created(world).at(-1)!.payload.parent_session_id).toBe(root);
});

test('a call that is over leaves nothing in memory but what is bounded', async () => {
  const config = { budgets: { daily_usd: '5' } };
  const world = await startGateway(() => ({ usage: { input: 1, output: 1 } }), { config });
  await Promise.all([call(world, 'a'), call(world, 'b'), call(world, 'b')]);
  const { gateway, budget } = world.server.engine;
  await until(() => gateway.arrived === 0);
  expect([gateway.calls.size, gateway.openings.size, gateway.waiting.length]).toEqual([0, 0, 0]);
  expect([budget.reserved.size, budget.waiters.size, budget.paused.size]).toEqual([0, 0, 0]);
});
