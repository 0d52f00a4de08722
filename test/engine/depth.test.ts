// Delegation below a worker: how deep, how many, with which tools, and whose bill it is (04 §10, §11).
import { describe, expect, it } from 'vitest';
import type { ToolResultBlock } from '#protocol/message.ts';
import { type Parsed, startServer } from '../support/http.ts';
import { delegate, planner, scenario } from '../support/scenario.ts';

const usage = { input_tokens: 1000, output_tokens: 100 };
/** A worker on sonnet that hands `inner` on, for each task. */
const middle = (...tasks: readonly string[]) =>
  tasks.flatMap((task) => [
    {
      match: { role: 'worker', user_contains: task, model: '*sonnet*', call: 1 },
      respond: { tool_calls: [delegate(`${task}-inner`, { allowed_tools: ['read_file', 'grep'] })], usage },
    },
    {
      match: { role: 'worker', user_contains: task, model: '*sonnet*', call: 2 },
      respond: { text: 'handed on', usage },
    },
  ]);
const inner = [{ match: { role: 'worker', model: '*haiku*' }, times: 'inf', respond: { text: 'inner done', usage } }];
const balanced = (task: string, rest: object = {}) => delegate(task, { tier: 'balanced', ...rest });

describe('delegate_depth: 2', () => {
  // Promise 04.16: below the configured depth a worker delegates, its worker does not, tools only get fewer, one root row bills all.
  it('lets a worker delegate and its worker not; tools only get fewer; the root row holds the whole bill', async () => {
    const t = await startServer({
      config: { delegation: { delegate_depth: 2 } },
      scenario: scenario(
        planner(
          { tool_calls: [balanced('outer', { allowed_tools: ['read_file', 'list_files', 'delegate'] })], usage },
          { text: 'end', usage },
        ),
        middle('outer'),
        inner,
      ),
    });
    const session = await t.session();
    expect((await t.run(session, 'go')).status).toBe('completed');
    const tools = new Map(t.adapter.requests.map((r) => [r.model.id, r.tools.map((tool) => tool.name)]));
    expect(tools.get('anthropic:claude-sonnet-4-6')).toEqual([
      '_request_context',
      'delegate',
      'list_files',
      'read_file',
      'workers',
    ]);
    expect(tools.get('anthropic:claude-haiku-4-5')).toEqual(['_request_context', 'read_file']);

    // 2 calls of opus at 15/75, 2 of sonnet at 3/15, 1 of haiku at 1/5 dollars per million tokens.
    const { body } = await t.call('GET', '/analytics/cost?group_by=root_session');
    expect(body.data).toMatchObject([{ root_session_id: session.id, cost_usd: '0.0555', call_count: 5 }]);
    const spent = t.db.db.prepare('SELECT sum(cost_pusd) AS n FROM llm_calls').get() as { n: number };
    expect(spent.n).toBe(55_500_000_000);
    const views = (await t.call('GET', '/sessions?include_workers=true')).body.sessions;
    expect(views.map((s: Parsed) => [s.delegation_depth, s.root_session_id]).sort()).toEqual([
      [0, session.id],
      [1, session.id],
      [2, session.id],
    ]);
  });

  // Promise 04.16: a turn's delegations are counted over its whole tree.
  it('counts the delegations of a whole turn: the fourth of three gets no session', async () => {
    const t = await startServer({
      config: { delegation: { delegate_depth: 2, max_workers_per_turn: 3 } },
      scenario: scenario(
        planner({ tool_calls: [balanced('left'), balanced('right')] }, { text: 'end' }),
        middle('left', 'right'),
        inner,
      ),
    });
    const session = await t.session();
    expect((await t.run(session, 'go')).status).toBe('completed');
    expect(t.rows()).toMatchObject({ sessions: 4, delegations: 4 });
    const failed = t.events.filter((e) => e.type === 'delegate.failed');
    expect(failed.map((e) => e.payload)).toEqual([
      expect.objectContaining({
        worker_session_id: null,
        error_message: 'worker_error: too many delegations in this turn',
      }),
    ]);
    const caller = failed[0]!.session_id;
    expect(caller).not.toBe(session.id);
    const answer = (await t.engine.store.messages.history(caller as never)).find((m) => m.role === 'tool')!;
    expect((answer.content[0] as ToolResultBlock).is_error).toBe(true);
    expect(t.events.filter((e) => e.type === 'delegate.completed')).toHaveLength(3);
  });
});
