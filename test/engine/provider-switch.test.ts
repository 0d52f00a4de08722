// A session that changes its provider across a restart: the other one gets a history it accepts (01 §4.3, 11.4).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { tempFolder } from '../support/engine.ts';
import type { FakeAnswer, FakeCall } from '../support/fake-provider.ts';
import type { Parsed } from '../support/http.ts';
import { type RealServer, startReal, startStrictFake } from '../support/real-server.ts';
import { registryAt } from '../support/registry-at.ts';

interface Block {
  readonly type: string;
  readonly id?: string;
  readonly tool_use_id?: string;
  readonly [field: string]: unknown;
}
interface WireMessage {
  readonly role: string;
  readonly content: Block[] | string | null;
  readonly tool_calls?: readonly { readonly id: string }[];
  readonly tool_call_id?: string;
}

const THINKING = { text: 'two files, so two reads', signature: 'c2lnbmVk' };

/** Each turn looks at two files at once, on Anthropic with a thought before it, and then answers. */
function answer(call: FakeCall): FakeAnswer {
  if (call.results.length > 0) return { text: `both read: ${call.user}` };
  const read = (file: string) => ({ name: 'read_file', input: { path: file } });
  return {
    ...(call.wire === 'anthropic' ? { thinking: THINKING } : {}),
    text: 'Looking.',
    tool_calls: [read('a.txt'), read('missing.txt')],
  };
}

async function world() {
  const folder = tempFolder();
  const workspace = path.join(folder, 'workspace');
  fs.mkdirSync(workspace);
  fs.writeFileSync(path.join(workspace, 'a.txt'), 'alpha\n');
  const fake = await startStrictFake(answer);
  const start = () => startReal({ folder: path.join(folder, 'data'), registry: registryAt(fake) });
  return { workspace, fake, start };
}
const messages = (call: FakeCall) => call.body.messages as WireMessage[];
const blocks = (call: FakeCall) => messages(call).flatMap((m) => (Array.isArray(m.content) ? m.content : []));
const dropped = (server: RealServer) => server.log.filter((line) => line.msg === 'canonical.block_dropped');

/** Ids of calls and of results, in order, whatever the wire. */
function pairs(call: FakeCall): { readonly calls: string[]; readonly results: string[] } {
  if (call.wire === 'anthropic')
    return {
      calls: blocks(call).flatMap((b) => (b.type === 'tool_use' ? [String(b.id)] : [])),
      results: blocks(call).flatMap((b) => (b.type === 'tool_result' ? [String(b.tool_use_id)] : [])),
    };
  return {
    calls: messages(call).flatMap((m) => (m.tool_calls ?? []).map(({ id }) => id)),
    results: messages(call).flatMap((m) => (m.tool_call_id === undefined ? [] : [m.tool_call_id])),
  };
}

describe.each([
  ['anthropic', 'opus', 'openai', 'gpt'],
  ['openai', 'gpt', 'anthropic', 'opus'],
] as const)('begun on %s (%s), continued on %s after a restart', (from, fromModel, to, toModel) => {
  // Promise 01.8: another provider gets it without the thinking, with one warning and no event.
  // Promise 01.9: after a restart the other provider's request pairs every call with its result.
  // Promise 11.14: a failed result is marked in the language of each wire.
  // Promise 11.15: a session begun on one adapter goes on with the other after a restart, ids matching.
  test('every call has its result under the same id, and what the other cannot read is left out with a warning', async () => {
    const { workspace, fake, start } = await world();
    const first = await start();
    const session = await first.session(workspace, fromModel);
    expect((await first.turn(session, 'one')).status).toBe('completed');
    await first.close();
    const before = pairs(fake.calls[1]!);
    expect(before.calls).toHaveLength(2);

    const second = await start();
    expect((await second.call('PATCH', `/sessions/${session}`, { active_model: toModel })).status).toBe(200);
    expect(await second.turn(session, 'two')).toMatchObject({ status: 'completed', output: 'both read: two' });
    const [, , switched, last] = fake.calls as FakeCall[];
    expect([fake.calls[0]!.wire, switched!.wire]).toEqual([from, to]);
    expect(pairs(switched!)).toEqual(before);
    const after = pairs(last!);
    expect(after.results).toEqual(after.calls);
    expect(after.calls.slice(0, 2)).toEqual(before.calls);
    expect(new Set(after.calls).size).toBe(4);
    for (const id of after.calls) expect(id).toMatch(/^tu_[0-9A-Z]{26}$/);

    // The failed read is marked in the language of each wire.
    const marked =
      to === 'anthropic'
        ? blocks(switched!).filter((b) => b.type === 'tool_result' && b.is_error === true).length
        : messages(switched!).filter((m) => m.role === 'tool' && String(m.content).startsWith('[tool error] ')).length;
    expect(marked).toBe(1);

    expect(first.log.filter((line) => line.msg === 'canonical.block_dropped')).toEqual([]);
    expect(
      dropped(second).map(({ level, block_type, session_id, adapter }) => [level, block_type, session_id, adapter]),
    ).toEqual(from === 'anthropic' ? [['warn', 'thinking', session, 'openai']] : []);
    expect(switched!.text.includes(THINKING.text)).toBe(false);
    const { body } = await second.call('GET', `/sessions/${session}/events?limit=200`);
    const ofTurn = body.events.slice(body.events.findLastIndex((e: Parsed) => e.type === 'turn.started'));
    const types = ofTurn.map((e: Parsed) => e.type).filter((type: string) => !/^(eval|pattern)\./.test(type));
    expect(new Set(types)).toEqual(
      new Set([
        'turn.started',
        'route.decided',
        'llm.call_started',
        'llm.call_completed',
        'tool.called',
        'tool.completed',
        'tool.failed',
        'turn.completed',
      ]),
    );
  });
});

// Promise 01.8: an answer with thinking and two calls goes back to its own provider as it came, but for the ids of its calls.
test('back on its own provider after a restart an answer is sent as it came, but for the ids of its calls', async () => {
  const { workspace, fake, start } = await world();
  const first = await start();
  const session = await first.session(workspace, 'opus');
  await first.turn(session, 'one');
  await first.close();
  const second = await start();
  await second.turn(session, 'two');
  const sent = messages(fake.calls[2]!).find((m) => m.role === 'assistant')!.content as Block[];
  const calls = pairs(fake.calls[2]!).calls;
  expect(sent).toEqual([
    { type: 'thinking', thinking: THINKING.text, signature: THINKING.signature },
    { type: 'text', text: 'Looking.' },
    { type: 'tool_use', id: calls[0], name: 'read_file', input: { path: 'a.txt' } },
    { type: 'tool_use', id: calls[1], name: 'read_file', input: { path: 'missing.txt' } },
  ]);
  expect(dropped(second)).toEqual([]);
});
