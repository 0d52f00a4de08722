// Forks of a session, and comparisons of two sessions (21 §4).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { compareSessions, forkSession, purgeSession } from '#core/engine/fork-session.ts';
import { endSession } from '#core/engine/manage-session.ts';
import { applyKeptChanges, listKeptWorktrees } from '#core/engine/manage-worktrees.ts';
import { type ForkBody, ForkBodySchema } from '#protocol/api/fork-bodies.ts';
import type { MessageId } from '#protocol/ids.ts';
import { joinText, type StoredMessage } from '#protocol/message.ts';
import type { Session } from '#protocol/session.ts';
import { startEngine, type TestEngine } from '../support/engine.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { tool } from '../support/tools.ts';
import { FREE_TOOLS, startInRepository, write } from '../support/worktrees.ts';

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

const tokens = (input_tokens: number, output_tokens: number, over: object = {}) => ({
  usage: { input_tokens, output_tokens, ...over },
});
/** Two turns of the original; what a fork says is asked for by its words. */
const RULES = scenario(
  planner(
    { text: 'looking', tool_calls: [call('peek', {})], ...tokens(900, 20) },
    { thinking: 'hm', text: 'it is in a.ts', ...tokens(1000, 100, { reasoning_tokens: 40 }) },
  ),
  [
    { match: { user_contains: 'second' }, respond: { text: 'two', ...tokens(2000, 10) } },
    {
      match: { user_contains: 'again', model: 'anthropic:claude-haiku-4-5' },
      times: 'inf',
      respond: { text: 'yes', ...tokens(7, 3, { cache_creation_input_tokens: 1060 }) },
    },
    {
      match: { user_contains: 'again' },
      times: 'inf',
      respond: { text: 'sure', ...tokens(7, 3, { cached_input_tokens: 1100 }) },
    },
  ],
);

const start = () => startEngine({ tools: [tool('peek')], scenario: RULES });
const fork = (t: TestEngine, session: Pick<Session, 'id'>, body: Partial<ForkBody> & object) =>
  forkSession(t.engine, session.id, ForkBodySchema.parse({ workspace: 'current', ...body }));
const history = (t: TestEngine, session: Session) => t.engine.store.messages.history(session.id);
const money = (t: TestEngine) => t.db.db.prepare('SELECT count(*) AS n FROM ledger_calls').get() as { n: number };
const refusal = (work: Promise<unknown>) =>
  work.then(
    () => null,
    (error: { code: string; details?: object }) => ({ code: error.code, ...error.details }),
  );

/** A session of two turns: the last answer of the first, and all messages. */
async function original(t: TestEngine) {
  const session = await t.session({ initial_active_model: 'sonnet' });
  await t.run(session, 'go');
  await t.run(session, 'the second');
  const messages = await history(t, session);
  return { session, messages, answer: messages[3]! };
}
const withoutThinking = ({ content }: StoredMessage) => content.filter(({ type }) => type !== 'thinking');

describe('a fork', () => {
  // Promise 21.6: the first request of a fork with another model is the prefix without thinking and the new message, the prefix is paid once, and first_call_usd is its part of the first call.
  it('begins with the messages up to its point and costs nothing before its own calls', async () => {
    const t = await start();
    const { session, messages, answer } = await original(t);
    const before = money(t).n;
    const planned = await fork(t, session, { at_message_id: answer.id, model: 'haiku', dry_run: true });
    expect(planned).toMatchObject({ session: null, model: 'anthropic:claude-haiku-4-5', prefix_messages: 4 });
    expect((await t.engine.store.sessions.counts()).active_sessions).toBe(1);

    const made = await fork(t, session, { at_message_id: answer.id, model: 'haiku' });
    const copy = made.session!;
    expect(copy).toMatchObject({
      forked_from: { session_id: session.id, message_id: answer.id },
      cost_so_far_usd: '0',
      is_worker: false,
      turn_count: 0,
    });
    expect(money(t).n).toBe(before);
    expect(await history(t, copy)).toEqual([]);

    await t.run(copy, 'again');
    const request = t.adapter.requests.at(-1)!;
    expect(request.messages.slice(0, 4).map(({ role, content }) => ({ role, content }))).toEqual(
      messages.slice(0, 4).map((message) => ({ role: message.role, content: withoutThinking(message) })),
    );
    expect(request.messages.slice(4).map(({ content }) => joinText(content))).toEqual(['again']);
    expect(messages[3]!.content.map(({ type }) => type)).toEqual(['thinking', 'text']);

    // 1.25 a million for what is cached anew, 1 for the message, 5 for the answer.
    expect(made.first_call_usd).toBe('0.001325');
    expect(planned.first_call_usd).toBe(made.first_call_usd);
    const [first] = (await t.engine.store.calls.list(copy.id, { after: null, limit: 10 })).rows;
    const rest = 7n * 1n + 3n * 5n;
    expect(first!.cost_usd).toBe(`0.${(1325n + rest).toString().padStart(6, '0')}`);
    expect(money(t).n).toBe(before + 1);
  });

  it('with the same model keeps the thinking, and a warm cache makes its first call cheap', async () => {
    const t = await start();
    const { session, answer } = await original(t);
    const { first_call_usd, session: copy } = await fork(t, session, { at_turn_id: answer.turn_id });
    await t.run(copy!, 'again');
    expect(t.adapter.requests.at(-1)!.messages[3]!.content.map(({ type }) => type)).toEqual(['thinking', 'text']);
    expect(first_call_usd).toBe('0.00033');
    const other = await fork(t, session, { at_message_id: answer.id, workspace: 'none', dry_run: true });
    expect(other.first_call_usd).toBe('0.004125');
  });

  // Promise 21.6: a fork inside a tool step is refused with the nearest valid ids.
  it('is refused inside a tool step, with the nearest points', async () => {
    const t = await start();
    const { session, messages, answer } = await original(t);
    const nearest = { code: 'invalid_fork_point', nearest_before: null, nearest_after: answer.id };
    expect(await refusal(fork(t, session, { at_message_id: messages[1]!.id }))).toEqual(nearest);
    expect(await refusal(fork(t, session, { at_message_id: messages[2]!.id }))).toEqual(nearest);
    expect(await refusal(fork(t, session, { at_message_id: messages[4]!.id }))).toEqual({
      code: 'invalid_fork_point',
      nearest_before: answer.id,
      nearest_after: messages[5]!.id,
    });
    const unknown = '01ARZ3NDEKTSV4RRFFQ69G5FAV' as MessageId;
    expect(await refusal(fork(t, session, { at_message_id: unknown }))).toMatchObject({ code: 'not_found' });
  });

  // Promise 21.6: the original purged, its forks go on with the whole prefix.
  it('goes on when the original, and the fork that it was made of, are purged', async () => {
    const t = await start();
    const { session, answer, messages } = await original(t);
    const one = (await fork(t, session, { at_message_id: messages[5]!.id })).session!;
    await t.run(one, 'again');
    const own = (await history(t, one)).at(-1)!;
    const two = (await fork(t, one, { at_message_id: own.id })).session!;
    const early = (await fork(t, one, { at_message_id: answer.id })).session!;
    expect(early.forked_from).toEqual({ session_id: session.id, message_id: answer.id });
    const texts = async (id: Session) => {
      await t.run(id, 'again');
      return t.adapter.requests.at(-1)!.messages.map(({ content }) => joinText(content));
    };
    const prefix = ['go', 'looking', '', 'it is in a.ts', 'the second', 'two'];
    await endSession(t.engine, session.id);
    await purgeSession(t.engine, session.id);
    expect(await texts(one)).toEqual([...prefix, 'again', 'sure', 'again']);
    expect(await texts(early)).toEqual([...prefix.slice(0, 4), 'again']);
    await endSession(t.engine, one.id);
    await purgeSession(t.engine, one.id);
    expect(await texts(two)).toEqual([...prefix, 'again', 'sure', 'again']);
    // A fork of a fork whose original is gone.
    const three = (await fork(t, two, { at_message_id: answer.id })).session!;
    expect(three.forked_from).toEqual({ session_id: two.id, message_id: answer.id });
    expect(await texts(three)).toEqual([...prefix.slice(0, 4), 'again']);
    await purgeSession(t.engine, two.id);
    expect(await texts(three)).toEqual([...prefix.slice(0, 4), 'again', 'sure', 'again']);
    expect(t.db.db.pragma('foreign_key_check')).toEqual([]);
  });

  it('without a workspace has no tool that needs one, nor have its workers', async () => {
    const t = await startEngine({
      tools: [tool('peek')],
      scenario: scenario(
        [{ match: { role: 'planner', turn: 1 }, respond: { text: 'ready' } }],
        [{ match: { role: 'planner', turn: 2, call: 1 }, respond: { tool_calls: [delegate('look around')] } }],
        worker('look around', { text: 'nothing here' }),
        [{ match: { role: 'planner', turn: 2, call: 2 }, respond: { text: 'done' } }],
      ),
    });
    const session = await t.session();
    await t.run(session, 'go');
    const [first] = t.adapter.requests;
    expect(first!.tools.map(({ name }) => name)).toContain('read_file');
    const answer = (await history(t, session)).at(-1)!;
    const { session: copy, workspace_note } = await fork(t, session, { at_message_id: answer.id, workspace: 'none' });
    expect(copy).toMatchObject({ has_workspace: false, workspace_path: session.workspace_path });
    expect(workspace_note).toBe('without the tools that need a workspace');
    await t.run(copy!, 'again');
    const [own, ofWorker] = t.adapter.requests.slice(1);
    for (const name of ['read_file', 'shell', 'grep']) {
      expect(own!.tools.map((one) => one.name)).not.toContain(name);
      expect(ofWorker!.tools.map((one) => one.name)).not.toContain(name);
    }
    expect(own!.tools.map((one) => one.name)).toContain('delegate');
  });

  it('in a worktree works on a copy of the workspace, whose changes are kept at its end and can be applied', async () => {
    const t = await startInRepository(
      { 'a.txt': 'one\n' },
      {
        config: FREE_TOOLS,
        scenario: scenario(
          [{ match: { turn: 1 }, respond: { text: 'ready' } }],
          [{ match: { turn: 2, call: 1 }, respond: { tool_calls: [write('b.txt', 'new\n')] } }],
          [{ match: { turn: 2, call: 2 }, respond: { text: 'written' } }],
        ),
      },
    );
    const session = await t.session();
    await t.run(session, 'go');
    const answer = (await history(t, session)).at(-1)!;
    const made = await fork(t, session, { at_message_id: answer.id, workspace: 'worktree', message: 'write it' });
    const { id } = made.session!;
    expect(made.workspace_note).toContain('not as they were');
    expect((await t.ended(made.turn_id!)).status).toBe('completed');
    expect(fs.existsSync(path.join(t.workspace, 'b.txt'))).toBe(false);
    expect(await refusal(applyKeptChanges(t.engine, id))).toMatchObject({ code: 'turn_in_flight' });
    await endSession(t.engine, id);
    expect(await listKeptWorktrees(t.engine)).toMatchObject([{ worker_session_id: id, open: false, applied: false }]);
    expect(await applyKeptChanges(t.engine, id)).toMatchObject({ applied: true, conflicts: [] });
    expect(fs.readFileSync(path.join(t.workspace, 'b.txt'), 'utf8')).toBe('new\n');
  });

  it('leaves nothing where its message cannot be taken, and is not made of a gateway session or a worker', async () => {
    const t = await start();
    const { session, answer } = await original(t);
    const body = { at_message_id: answer.id, message: '@nothing go' };
    expect(await refusal(fork(t, session, body))).toMatchObject({ code: 'unknown_alias' });
    expect((await t.engine.store.sessions.counts()).active_sessions).toBe(1);
    t.db.db.prepare("UPDATE sessions SET door = 'gateway' WHERE id = ?").run(session.id);
    t.db.caches.sessions.drop(session.id);
    expect(await refusal(fork(t, session, { at_message_id: answer.id }))).toEqual({ code: 'session_is_gateway' });
  });
});

describe('a comparison', () => {
  // Promise 21.7: compare counts the prefix once, finds the first step that differs, and its sums equal the ledger.
  it('counts what both share once, and what each did behind it', async () => {
    const t = await startEngine({
      tools: [tool('peek')],
      scenario: scenario(
        RULES.rules.slice(0, 2) as never[],
        [
          {
            match: { role: 'planner', user_contains: 'the second', call: 1 },
            respond: { tool_calls: [delegate('look around')], ...tokens(2000, 10) },
          },
        ],
        worker('look around', { text: 'seen', ...tokens(300, 5) }),
        [
          { match: { role: 'planner', user_contains: 'the second' }, respond: { text: 'two', ...tokens(2100, 4) } },
          { match: { user_contains: 'again' }, respond: { text: 'sure', ...tokens(7, 3) } },
        ],
      ),
    });
    const { session, messages, answer } = await original(t);
    const copy = (await fork(t, session, { at_message_id: answer.id })).session!;
    await t.run(copy, 'again');
    const found = await compareSessions(t.engine, session.id, copy.id);
    const { spend } = t.engine.store;
    const inPusd = (usd: string) => BigInt(Math.round(Number(usd) * 1e12));
    expect(found.shared).toMatchObject({ messages: 4, calls: 2 });
    expect(inPusd(found.shared.cost_usd) + inPusd(found.a.cost_usd)).toBe(await spend.sumTree(session.id));
    expect(inPusd(found.b.cost_usd)).toBe(await spend.sumTree(copy.id));
    expect(found.a).toMatchObject({ calls: 3, tool_calls: 1, workers: 1, output_tokens: 19, final_text: 'two' });
    expect(found.b).toMatchObject({ calls: 1, tool_calls: 0, workers: 0, input_tokens: 7, final_text: 'sure' });
    expect(found.first_difference).toEqual({
      index: 0,
      a: { message_id: messages[4]!.id, role: 'user', text: 'the second' },
      b: { message_id: expect.any(String), role: 'user', text: 'again' },
    });
    const around = await compareSessions(t.engine, copy.id, session.id);
    expect([around.shared, around.b, around.a]).toEqual([found.shared, found.a, found.b]);
    const other = await t.session();
    expect((await compareSessions(t.engine, other.id, copy.id)).shared).toEqual({
      messages: 0,
      calls: 0,
      cost_usd: '0',
    });
  });
});
