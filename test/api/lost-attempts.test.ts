// Attempts that break off after their counts were reported and are repeated: each is billed, and none passes a cap (11.8, 08 §12).
import path from 'node:path';
import { expect, test } from 'vitest';
import { fromPusd, toPusd } from '#protocol/money.ts';
import { tempFolder } from '../support/engine.ts';
import type { FakeMessage } from '../support/fake-provider.ts';
import type { Parsed } from '../support/http.ts';
import { type RealServer, startReal, startStrictFake } from '../support/real-server.ts';
import { registryAt } from '../support/registry-at.ts';

const HAIKU = 'anthropic:claude-haiku-4-5';
/** Of Haiku, 1 and 5 dollars a million tokens. */
const price = (input: number, output: number) => fromPusd(BigInt(input) * 1_000_000n + BigInt(output) * 5_000_000n);
/** A cap has at most six digits behind the point. */
const toCap = (usd: string) => fromPusd(((toPusd(usd) + 999_999n) / 1_000_000n) * 1_000_000n);
/** Its counts are reported; then the connection is cut, before any text. */
const cut = (input: number): FakeMessage => ({ text: 'x', usage: { input, output: 1 }, after: 1, ending: 'reset' });
const whole: FakeMessage = { text: 'done', usage: { input: 1000, output: 50 } };

/** A server whose provider gives these answers in order, the last one for ever. */
async function serve(...answers: FakeMessage[]) {
  const folder = tempFolder();
  const fake = await startStrictFake(({ number }) => answers[Math.min(number, answers.length) - 1]!);
  const server = await startReal({ folder: path.join(folder, 'data'), registry: registryAt(fake) });
  return { fake, server, folder };
}

async function readCalls(server: RealServer, session: string): Promise<Parsed[]> {
  return (await server.call('GET', `/sessions/${session}/calls`)).body.calls;
}

// Promise 11.24: attempts that were billed and repeated are rounds of their call, to the last digit.
test('each attempt that was billed is a round of its call, and the sums are theirs', async () => {
  const { fake, server, folder } = await serve(cut(1000), cut(1001), whole);
  const session = await server.session(folder, HAIKU);
  const turn = await server.turn(session, 'go');
  expect(turn).toMatchObject({ status: 'completed', output: 'done', llm_call_count: 1 });
  expect(fake.calls).toHaveLength(3);
  const [call, ...others] = await readCalls(server, session);
  expect(others).toEqual([]);
  expect(call).toMatchObject({ input_tokens: 3001, usage_estimated: true });
  const { rounds } = call;
  expect(rounds.map((round: Parsed) => [round.kind, round.input_tokens, round.billed])).toEqual([
    ['lost_attempt', 1000, true],
    ['lost_attempt', 1001, true],
    ['message', 1000, true],
  ]);
  const expected = price(3001, call.output_tokens);
  expect(call.output_tokens).toBeGreaterThanOrEqual(50);
  expect(call.cost_usd).toBe(expected);
  expect(fromPusd(rounds.reduce((sum: bigint, round: Parsed) => sum + toPusd(round.cost_usd), 0n))).toBe(expected);
  expect(turn.total_cost_usd).toBe(expected);
  const report = (await server.call('GET', '/analytics/cost?group_by=parent_session&from=all')).body;
  expect(report.data).toMatchObject([{ cost_usd: expected, input_tokens: 3001, call_count: 1 }]);
});

// Promise 11.24: the same where no attempt brings an answer.
test('a call without an answer costs what all of its attempts have cost', async () => {
  const { fake, server, folder } = await serve(cut(1000), cut(1001), cut(1002));
  const session = await server.session(folder, HAIKU);
  expect(await server.turn(session, 'go')).toMatchObject({ status: 'failed' });
  expect(fake.calls).toHaveLength(3);
  const [call] = await readCalls(server, session);
  expect(call).toMatchObject({ input_tokens: 3003, cancelled: true });
  expect(call.cost_usd).toBe(price(3003, call.output_tokens));
});

// Promise 11.24: what an attempt has spent is held under the cap beside the most that the next one can cost.
test('an attempt that was billed is repeated only where the cap has room for both', async () => {
  const tight = await serve(cut(1000), whole);
  const probe = await tight.server.session(tight.folder, HAIKU);
  const ceiling: string = (await tight.server.call('POST', `/sessions/${probe}/estimate`, { content: 'go' })).body
    .cost_ceiling_usd;
  const limits = (max_cost_usd: string) => ({ max_cost_usd, on_reached: 'stop' });
  const refused = await tight.server.session(tight.folder, HAIKU, limits(toCap(ceiling)));
  const turn = await tight.server.turn(refused, 'go');
  expect(turn).toMatchObject({ status: 'failed' });
  expect(tight.fake.calls).toHaveLength(1);
  const failed = await tight.server.event('turn.failed');
  expect(failed.payload.error_message).toContain('a limit leaves no money to try again');
  const [call] = await readCalls(tight.server, refused);
  expect(call.cost_usd).toBe(price(1000, call.output_tokens));

  const wide = await serve(cut(1000), whole);
  const session = await wide.server.session(
    wide.folder,
    HAIKU,
    limits(toCap(fromPusd(toPusd(ceiling) + toPusd(price(1000, 10))))),
  );
  expect(await wide.server.turn(session, 'go')).toMatchObject({ status: 'completed', output: 'done' });
  expect(wide.fake.calls).toHaveLength(2);
  // What was held is free again: the next call fits as the first one did.
  expect((await wide.server.call('GET', `/sessions/${session}`)).body).toMatchObject({
    budget: { reserved_usd: '0' },
  });
});
