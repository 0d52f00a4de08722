// Forks and comparisons over HTTP, on both databases, with the requests as a provider reads them (21 §4).
import fs from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { fromPusd, sumPusd, toPusd } from '#protocol/money.ts';
import { describeOnBoth } from '../support/both-databases.ts';
import type { FakeCall, FakeMessage } from '../support/fake-provider.ts';
import type { Parsed } from '../support/http.ts';
import { type RealServer, startStrictFake } from '../support/real-server.ts';
import { registryAt } from '../support/registry-at.ts';

const OPUS = 'anthropic:claude-opus-4-7';
const HAIKU = 'anthropic:claude-haiku-4-5';
/** Prompt and answer of the call behind the fork point, which are the beginning of the fork's first call. */
const PREFIX_TOKENS = 1000 + 100;

function say({ user, system, results, model }: FakeCall): FakeMessage {
  if (system.includes('look around')) return { text: 'seen', usage: { input: 300, output: 5 } };
  if (user === 'go' && results.length === 0)
    return {
      text: 'looking',
      tool_calls: [{ name: 'read_file', input: { path: 'a.ts' } }],
      usage: { input: 900, output: 20 },
    };
  if (user === 'go')
    return {
      thinking: { text: 'hm', signature: 'sig' },
      text: 'it is in a.ts',
      usage: { input: 1000, output: 100 },
    };
  if (user === 'the second' && results.length === 0)
    return {
      tool_calls: [{ name: 'delegate', input: { tier: 'fast', task: 'look around' } }],
      usage: { input: 2000, output: 10 },
    };
  if (user === 'the second') return { text: 'two', usage: { input: 2100, output: 4 } };
  // What another model has not cached it writes anew.
  const cache = model.includes('haiku') ? { creation: PREFIX_TOKENS } : { cached: PREFIX_TOKENS };
  return { text: 'sure', usage: { input: 7, output: 3, ...cache } };
}

const sumUsd = (...amounts: string[]) => fromPusd(sumPusd(amounts.map((usd) => toPusd(usd as never))));
const readCost = async (server: RealServer, session: string): Promise<string> =>
  (await server.call('GET', `/analytics/cost?from=all&parent_session=${session}`)).body.totals.cost_usd;
const readMessages = async (server: RealServer, session: string): Promise<Parsed[]> =>
  (await server.call('GET', `/sessions/${session}/messages?limit=100`)).body.messages;

describeOnBoth('forks', (open) => {
  async function serve() {
    const world = await open();
    const workspace = world.workspace('app');
    fs.writeFileSync(path.join(workspace, 'a.ts'), 'export const limit = 10;\n');
    const fake = await startStrictFake(say);
    const server = await world.start({ registry: registryAt(fake) });
    const origin = await server.session(workspace, OPUS);
    await server.turn(origin, 'go');
    await server.turn(origin, 'the second');
    const messages = await readMessages(server, origin);
    const fork = (body: object, session = origin) =>
      server.call('POST', `/sessions/${session}/fork`, { workspace: 'current', ...body });
    return { server, fake, origin, messages, answer: messages[3], fork };
  }

  // Promise 21.6: over HTTP and on both databases a fork on another model sends the prefix without thinking, pays nothing for it twice, and goes on without its original.
  test('one on another model begins with the prefix, pays its first call alone, and outlives its original', async () => {
    const { server, fake, origin, messages, answer, fork } = await serve();
    const before = await readCost(server, origin);
    const planned = await fork({ at_message_id: answer.id, model: 'haiku', dry_run: true });
    expect(planned).toMatchObject({ status: 200, body: { session: null, model: HAIKU, prefix_messages: 4 } });
    const made = await fork({ at_message_id: answer.id, model: 'haiku' });
    expect(made.status).toBe(201);
    const { id, cost_so_far_usd, forked_from } = made.body.session;
    expect(made.headers.get('location')).toBe(`/sessions/${id}`);
    expect([cost_so_far_usd, forked_from]).toEqual(['0', { session_id: origin, message_id: answer.id }]);
    expect(await readMessages(server, id)).toEqual([]);
    expect(await readCost(server, origin)).toBe(before);

    await server.turn(id, 'again');
    const sent = fake.calls.at(-1)!;
    expect(sent.text).not.toContain('thinking');
    const texts = (sent.body.messages as { role: string; content: { type: string; text?: string }[] }[]).map(
      ({ role, content }) => [role, ...content.map(({ type, text }) => text ?? type)],
    );
    expect(texts).toEqual([
      ['user', 'go'],
      ['assistant', 'looking', 'tool_use'],
      ['user', 'tool_result'],
      ['assistant', 'it is in a.ts'],
      ['user', 'again'],
    ]);
    // 1.25 dollars a million for what is cached anew, 1 for the message, 5 for the answer.
    const first_call_usd = fromPusd(BigInt(PREFIX_TOKENS) * 1_250_000n);
    expect([planned.body.first_call_usd, made.body.first_call_usd]).toEqual([first_call_usd, first_call_usd]);
    expect(await readCost(server, id)).toBe(sumUsd(first_call_usd, fromPusd(7n * 1_000_000n + 3n * 5_000_000n)));

    for (const [message, details] of [
      [messages[1], { nearest_before: null, nearest_after: answer.id }],
      [messages[5], { nearest_before: answer.id, nearest_after: messages[7].id }],
    ]) {
      const refused = await fork({ at_message_id: message.id });
      expect([refused.status, refused.body.error]).toMatchObject([409, { code: 'invalid_fork_point', details }]);
    }

    expect((await server.call('DELETE', `/sessions/${origin}?purge=true`)).status).toBe(200);
    await server.turn(id, 'again');
    expect((fake.calls.at(-1)!.body.messages as object[]).length).toBe(7);
    const { body } = await server.call('GET', `/sessions/${id}/messages?prefix=true`);
    expect(body.messages.map((message: Parsed) => message.id)).toEqual(
      messages.slice(0, 4).map((message) => message.id),
    );
    expect(await readCost(server, origin)).toBe(before);
  });

  // Promise 21.7: over HTTP and on both databases compare counts the prefix once, and its sums equal `/analytics/cost`.
  test('a comparison counts what both share once, and its sums are those of the cost report', async () => {
    const { server, origin, messages, answer, fork } = await serve();
    const { body } = await fork({ at_turn_id: answer.turn_id, message: 'again' });
    const { id } = body.session;
    await server.event('turn.completed', (event) => event.turn_id === body.turn_id);
    const compared = (await server.call('GET', `/sessions/${origin}/compare?with=${id}`)).body;
    expect(compared.shared).toMatchObject({ messages: 4, calls: 2 });
    expect(sumUsd(compared.shared.cost_usd, compared.a.cost_usd)).toBe(await readCost(server, origin));
    expect(compared.b.cost_usd).toBe(await readCost(server, id));
    expect(compared.a).toMatchObject({ calls: 3, tool_calls: 1, workers: 1, output_tokens: 19, final_text: 'two' });
    expect(compared.b).toMatchObject({ calls: 1, tool_calls: 0, workers: 0, input_tokens: 7, final_text: 'sure' });
    expect(compared.first_difference).toMatchObject({
      index: 0,
      a: { message_id: messages[4].id, role: 'user', text: 'the second' },
      b: { role: 'user', text: 'again' },
    });
  });
});
