// Counts of a provider that are wrong in every form, and answers that break off before them: what is held, and what is booked (14 §2, 08 §4.1).
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { LlmCallCompleted } from '#protocol/event/turn-events.ts';
import { toPusd } from '#protocol/money.ts';
import type { Session } from '#protocol/session.ts';
import { tempFolder } from '../../support/engine.ts';
import { priceFileA } from '../../support/prices.ts';
import { type GatewayWorld, startGateway } from './world.ts';

/** JSON texts of a count, most of them sound: also what JSON cannot hold. */
const COUNT = fc.oneof(
  { weight: 40, arbitrary: fc.integer({ min: 0, max: 3000 }).map(String) },
  {
    weight: 1,
    arbitrary: fc.constantFrom(
      '-1',
      '1.5',
      '1e400',
      '-0',
      '1e3',
      '9007199254740993',
      '"7"',
      'null',
      'true',
      '[]',
      '{}',
    ),
  },
);
/** The members of an object of counts, as JSON; a key may come twice, and one may be missing. */
const counted = (names: readonly string[]) =>
  fc
    .record({
      counts: fc.array(COUNT, { minLength: names.length, maxLength: names.length }),
      missing: fc.constantFrom(null, null, null, null, ...names),
      twice: fc.constantFrom(null, null, null, null, ...names),
    })
    .map(({ counts, missing, twice }) => {
      const pairs = names.map((name, i) => [name, counts[i]] as const).filter(([name]) => name !== missing);
      const all = twice === null ? pairs : [...pairs, [twice, counts[0]] as const];
      return all.map(([name, count]) => `"${name}":${count}`);
    });
const objectOf = (members: readonly string[]) => `{${members.filter((member) => member !== '').join(',')}}`;

const MESSAGES_COUNTS = ['output_tokens', 'input_tokens', 'cache_read_input_tokens', 'cache_creation_input_tokens'];
const iteration = fc
  .tuple(
    fc.constantFrom('message', 'message', 'compaction', 'advisor_message', 'fallback_message', '', '__proto__'),
    fc.constantFrom('null', '"claude-haiku-4-5"', '"claude-opus-4-7"', '"__proto__"', '"who"', '7'),
    counted(MESSAGES_COUNTS),
  )
  .map(([type, model, counts]) => objectOf([`"type":"${type}"`, `"model":${model}`, ...counts]));
const messagesUsage = fc
  .record({
    counts: counted(MESSAGES_COUNTS),
    iterations: fc.oneof(fc.constant(null), fc.array(iteration, { maxLength: 4 }), COUNT),
    tools: fc.option(fc.tuple(COUNT, COUNT), { nil: null }),
    terms: fc.constantFrom('', '', '"service_tier":"priority"', '"service_tier":"__proto__"', '"speed":7'),
  })
  .map(({ counts, iterations, tools, terms }) =>
    objectOf([
      ...counts,
      iterations === null ? '' : `"iterations":${Array.isArray(iterations) ? `[${iterations}]` : iterations}`,
      tools === null ? '' : `"server_tool_use":{"web_search_requests":${tools[0]},"x_requests":${tools[1]}}`,
      terms,
    ]),
  );
const openaiUsage = (input: string, output: string) =>
  fc.tuple(counted([input, output]), COUNT, COUNT, COUNT).map(([counts, cached, written, reasoning]) => {
    const prompt = `{"cached_tokens":${cached},"cache_write_tokens":${written}}`;
    return objectOf([
      ...counts,
      `"input_tokens_details":${prompt},"prompt_tokens_details":${prompt}`,
      `"output_tokens_details":{"reasoning_tokens":${reasoning}}`,
    ]);
  });
const USAGES: Readonly<Record<WireName, fc.Arbitrary<string>>> = {
  messages: messagesUsage,
  chat: openaiUsage('prompt_tokens', 'completion_tokens'),
  responses: openaiUsage('input_tokens', 'output_tokens'),
};
const usageText = (wire: WireName) =>
  fc.oneof({ weight: 12, arbitrary: USAGES[wire] }, { weight: 1, arbitrary: COUNT });

type WireName = 'messages' | 'chat' | 'responses';
const PATHS: Readonly<Record<WireName, string>> = {
  messages: '/v1/messages',
  chat: '/v1/chat/completions',
  responses: '/v1/responses',
};
const event = (json: string) => `data: ${json}\n\n`;

/** The pieces of an answer with these texts of usage, as a stream or whole. */
const ANSWERS: Readonly<Record<WireName, (usage: string, early: string, model: string, stream: boolean) => string[]>> =
  {
    messages(usage, early, model, stream) {
      if (!stream)
        return [
          `{"type":"message","id":"m","model":${model},"content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","usage":${usage}}`,
        ];
      return [
        event(
          `{"type":"message_start","message":{"type":"message","id":"m","model":${model},"content":[],"usage":${early}}}`,
        ),
        event('{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"he"}}'),
        event('{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"llo"}}'),
        event(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":${usage}}`),
        event('{"type":"message_stop"}'),
      ];
    },
    chat(usage, _, model, stream) {
      const choice = (part: string) =>
        `{"id":"c","model":${model},"choices":[{"index":0,"${part}":{"content":"hello"},"finish_reason":"stop"}],"usage":${usage}}`;
      if (!stream) return [choice('message')];
      return [
        event(`{"id":"c","model":${model},"choices":[{"index":0,"delta":{"content":"he"}}]}`),
        event(choice('delta')),
        'data: [DONE]\n\n',
      ];
    },
    responses(usage, _, model, stream) {
      const response = `{"id":"r","status":"completed","model":${model},"output":[{"type":"message","content":[{"type":"output_text","text":"hello"}]}],"usage":${usage}}`;
      if (!stream) return [response];
      return [
        event(`{"type":"response.created","response":{"id":"r","status":"in_progress","model":${model}}}`),
        event('{"type":"response.output_text.delta","delta":"hello"}'),
        event(`{"type":"response.completed","response":${response}}`),
      ];
    },
  };

const hostileCall = fc.constantFrom<WireName>('messages', 'chat', 'responses').chain((wire) =>
  fc.record({
    wire: fc.constant(wire),
    stream: fc.boolean(),
    usage: usageText(wire),
    early: usageText(wire),
    model: fc.constantFrom('null', '"claude-haiku-4-5"', '"claude-opus-4-7"', '"gpt-5-mini"', '"__proto__"', '7'),
    /** Pieces after which the connection breaks; 9 = none. */
    broken: fc.constantFrom(0, 1, 2, 9, 9, 9, 9, 9),
  }),
);
type Booked = LlmCallCompleted;
type HostileCall = typeof hostileCall extends fc.Arbitrary<infer T> ? T : never;

const CAP = '2';
const RUNS = 40;

function pricesWithFees(): string {
  const table = JSON.parse(priceFileA());
  for (const entry of Object.values<object>(table.models))
    Object.assign(entry, { fees: { web_search: '10' }, multipliers: { service_tier: { priority: '1.5' } } });
  return JSON.stringify(table);
}

function send(world: GatewayWorld, call: HostileCall, index: number, session: string): Promise<unknown> {
  const model = call.wire === 'messages' ? 'claude-opus-4-7' : 'gpt-5';
  const marked = { content: `call ${index}`, role: 'user' };
  const body = call.wire === 'responses' ? { input: [marked] } : { messages: [marked] };
  const bound = { messages: 'max_tokens', chat: 'max_completion_tokens', responses: 'max_output_tokens' }[call.wire];
  return world
    .post(
      PATHS[call.wire],
      { model, ...body, stream: call.stream, [bound]: 1000 },
      { 'x-metis-session': session, 'x-metis-budget-usd': CAP },
    )
    .then((answer) => answer.text())
    .catch(() => 'broken off');
}

/** Each call of a session has one end, no money is held, and its cost is the sum of its parts. */
function expectExactSums(world: GatewayWorld, session: Session): void {
  const events = world.server.events.filter((one) => one.session_id === session.id);
  const count = (type: string) => events.filter((one) => one.type === type).length;
  expect(count('llm.call_completed') + count('llm.call_failed')).toBe(count('llm.call_started'));
  const completed = events.flatMap((one) => (one.type === 'llm.call_completed' ? [one.payload as Booked] : []));
  const sum = completed.reduce((all, { cost_usd }) => all + toPusd(cost_usd), 0n);
  expect(session.budget).toMatchObject({ reserved_usd: '0', max_cost_usd: CAP });
  expect(toPusd(session.cost_so_far_usd)).toBe(sum);
  for (const { cost_usd, cost_breakdown: parts, rounds } of completed) {
    expect(toPusd(parts!.tokens) + toPusd(parts!.fees) + toPusd(parts!.surcharge)).toBe(toPusd(cost_usd));
    expect(toPusd(cost_usd)).toBeGreaterThanOrEqual(0n);
    const inRounds = rounds.reduce((all, round) => all + toPusd(round.cost_usd), 0n);
    if (rounds.length > 0) expect(inRounds).toBe(toPusd(parts!.tokens) + toPusd(parts!.surcharge));
  }
  expect(world.server.log.filter(({ level }) => level === 'error')).toEqual([]);
}

// Promise 22.13: whatever a provider reports of its usage, each call has one end, holds no money behind it, and the sums are exact.
test('whatever counts a provider reports, each call has one end, no money stays held, and the sums are exact', {
  timeout: 120_000,
}, async () => {
  let running: readonly HostileCall[] = [];
  const world = await startGateway(
    ({ bytes }) => {
      const marked = /call (\d+)/.exec(bytes.toString());
      if (marked === null) return {};
      const call = running[Number(marked[1])]!;
      const pieces = ANSWERS[call.wire](call.usage, call.early, call.model, call.stream);
      if (call.broken === 9) return { raw: pieces };
      return {
        raw: [...pieces.slice(0, call.broken), '', '', ''].slice(0, Math.max(3, call.broken + 1)),
        breaks: true,
      };
    },
    // A call that waits for money in vain would wait for long.
    { prices: [pricesWithFees()], config: { gateway: { wait_seconds: 3600 } } },
  );
  let session = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(hostileCall, { minLength: 1, maxLength: 4 }), async (calls) => {
      running = calls;
      // Its success ends the run of failures, after which the provider would count as down.
      for (const [wire, model] of [
        ['messages', 'claude-opus-4-7'],
        ['chat', 'gpt-5'],
      ] as const)
        expect(
          (
            await world.post(
              PATHS[wire],
              { model, max_tokens: 9, messages: [{ role: 'user', content: 'hi' }] },
              { 'x-metis-session': 'sound' },
            )
          ).status,
        ).toBe(200);
      session += 1;
      await Promise.all(calls.map((call, i) => send(world, call, i, `s${session}`)));
      const [root] = (await world.server.client.listSessions({ door: 'gateway' })).sessions;
      expect(root!.client_ref ?? '').toContain(`s${session}`);
      expectExactSums(world, root!);
    }),
    { numRuns: RUNS },
  );
});

test('the same holds for the calls of our own sessions', { timeout: 120_000 }, async () => {
  let running: HostileCall | null = null;
  const world = await startGateway(
    () => {
      if (running === null) return {};
      const pieces = ANSWERS[running.wire](running.usage, running.early, running.model, true);
      if (running.broken === 9) return { raw: pieces };
      // Behind its first words, so that the call is not tried again.
      return { raw: [pieces.slice(0, 3).join(''), '', ''], breaks: true };
    },
    { prices: [pricesWithFees()] },
  );
  const sound = await world.server.session(tempFolder(), null);
  await fc.assert(
    fc.asyncProperty(
      hostileCall.filter(({ wire }) => wire !== 'responses'),
      async (call) => {
        const model = call.wire === 'messages' ? 'anthropic:claude-opus-4-7' : 'openai:gpt-5';
        running = null;
        await world.server.call('PATCH', `/sessions/${sound}`, { active_model: model });
        expect((await world.server.turn(sound, 'hi')).status).toBe('completed');
        running = call;
        const session = await world.server.session(tempFolder(), model, { max_cost_usd: CAP, on_reached: 'stop' });
        await world.server.turn(session, 'hi');
        expectExactSums(world, await world.server.client.getSession(session));
      },
    ),
    { numRuns: RUNS },
  );
});
