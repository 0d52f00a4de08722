// Following up with a worker of a definition: by its own tool, and over the API (20 §3, 13 §6).
import { describe, expect, it } from 'vitest';
import { joinText } from '#protocol/message.ts';
import { type Parsed, startServer, type TestServer } from '../../support/http.ts';
import { call, planner, scenario } from '../../support/scenario.ts';

const config = { workers: { planner_allow_workers: ['evaluator', 'other'] } as never };
const files = {
  'workers/evaluator.yaml': 'description: Judges.\ninstructions: You judge.\nmodel: sonnet\nisolation: shared\n',
  'workers/other.yaml': 'description: Other.\ninstructions: You do else.\nmodel: sonnet\n',
};
const worker = (text: string, respond: object) => ({ match: { role: 'worker', user_contains: text }, respond });
const start = (...rules: object[]) => startServer({ config, files, scenario: scenario(rules) });
const requestsOf = (t: TestServer, id: string) => t.adapter.requests.filter((r) => r.caller.session_id === id);
const submit = (t: TestServer, session: { readonly id: string }, body: object) =>
  t.call('POST', `/sessions/${session.id}/delegations`, body, { prefer: 'wait=60' });
async function ended(t: TestServer, session: { readonly id: string }, body: object): Promise<Parsed> {
  const { body: receipt, status } = await submit(t, session, body);
  expect(status).toBeLessThan(300);
  await t.event('delegate.completed', (e) => e.payload.worker_session_id === receipt.worker_session_id);
  return receipt;
}

describe('a named worker that is continued', () => {
  // Promise 20.7: `continue` of a named worker by its own tool: its messages byte for byte, then the new task.
  it('goes on by its own tool with its definition, prompt and messages', async () => {
    const t = await start(
      worker('deck one', { text: 'four stars' }),
      worker('and the second', { text: 'two stars' }),
      ...planner({ tool_calls: [call('evaluator', { input: 'deck one' })] }, { text: 'done' }),
    );
    const session = await t.session();
    await t.run(session, 'go');
    const first = (await t.event('delegate.completed')).payload.worker_session_id as string;
    const { worker_session_id: second } = await ended(t, session, {
      worker: 'evaluator',
      input: 'and the second',
      continue: first,
    });
    const [before, after] = [requestsOf(t, first)[0]!, requestsOf(t, second)[0]!];
    expect(after.messages.map(({ content }) => joinText(content))).toEqual([
      'deck one',
      'four stars',
      '## Task\nand the second',
    ]);
    expect([after.system_prompt, after.tools, after.model.id]).toEqual([
      before.system_prompt,
      before.tools,
      before.model.id,
    ]);
    const view = (await t.call('GET', `/sessions/${second}`)).body;
    expect(view).toMatchObject({ continues_session_id: first, worker_name: 'evaluator', title: 'and the second' });
  });

  it('takes what `delegate` takes, and nothing else', async () => {
    const t = await start(worker('deck one', { text: 'x '.repeat(3000) }), worker('else', { text: 'done' }));
    const session = await t.session();
    const { worker_session_id: first } = await ended(t, session, { worker: 'evaluator', input: 'deck one' });
    const refused = async (body: object) => (await submit(t, session, { input: 'x', ...body })).body.error;
    expect((await refused({ worker: 'other', continue: first })).details.issues).toEqual([
      {
        path: 'continue',
        message: `${first} is no worker 'other'; continue it with the tool that started it, or with delegate`,
      },
    ]);
    expect((await refused({ worker: 'evaluator', history: 'summary' })).details.issues).toEqual([
      { path: 'history', message: 'needs `continue`: the id of a worker' },
    ]);
    expect((await refused({ worker: 'evaluator', isolation: 'worktree' })).details.issues).toEqual([
      { path: 'isolation', message: 'is "shared" by the definition of the worker' },
    ]);
    expect((await refused({ worker: 'evaluator', apply: 'never' })).details.issues).toEqual([
      { path: 'apply', message: 'needs isolation "worktree"' },
    ]);
    expect((await refused({ worker: 'evaluator', effort: 'low' })).details.issues).toMatchObject([{ path: 'effort' }]);
  });

  it('is offered with these fields to models', async () => {
    const t = await start({ match: {}, respond: { text: 'done' } });
    await t.run(await t.session(), 'go');
    const tools = new Map(t.adapter.requests[0]!.tools.map(({ name, input_schema }) => [name, input_schema]));
    for (const name of ['delegate', 'evaluator'])
      expect(Object.keys(tools.get(name)!.properties as object)).toEqual(
        expect.arrayContaining(['continue', 'history', 'isolation', 'apply']),
      );
  });
});
