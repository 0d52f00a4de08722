// What a worker may call, and paths that come in an array (09 §2, §4 step 4).
import { expect, it } from 'vitest';
import type { ToolFactory } from '#core/ports/tool-port.ts';
import { toolText } from '#protocol/tool.ts';
import { startEngine } from '../support/engine.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { resultsOf, textOf } from '../support/stored.ts';
import { tool } from '../support/tools.ts';

// Promise 09.14: A worker has what it was allowed and nothing else, and what was dropped is told.
it('a worker has what it was allowed and nothing else, and what was dropped is told', async () => {
  const t = await startEngine({
    files: { 'a.txt': 'a' },
    scenario: scenario(
      planner({ tool_calls: [delegate('job', { allowed_tools: ['read_file', 'delegate'] })] }, { text: 'ok' }),
      worker(
        'job',
        { tool_calls: [call('shell', { command: 'touch x' }), call('memory_add', { file: 'MEMORY.md', entry: 'x' })] },
        { text: 'done' },
      ),
    ),
  });
  await t.run(await t.session(), 'go');
  const failed = t.events.filter((e) => e.type === 'tool.failed').map((e) => e.payload);
  expect(failed).toEqual(Array(2).fill(expect.objectContaining({ error_class: 'not_found' })));
  const started = t.events.find((e) => e.type === 'delegate.started');
  expect(started?.payload).toMatchObject({ dropped_tools: ['delegate'] });
  expect(t.adapter.requests[1]?.tools.map((offered) => offered.name)).toEqual(['_request_context', 'read_file']);
});

// Promise 09.4: One path of an array that may not be used refuses the whole call.
it('one path of an array that may not be used refuses the whole call before it runs', async () => {
  let ran = 0;
  const many: ToolFactory = () => {
    const made = tool('many')();
    const paths = { type: 'object', properties: { paths: { type: 'array', items: { type: 'string' } } } };
    return {
      ...made,
      definition: { ...made.definition, input_schema: paths, requires_workspace: true, path_fields: ['paths'] },
      execute: async () => {
        ran += 1;
        return toolText('ok');
      },
    };
  };
  const t = await startEngine({
    tools: [many],
    scenario: scenario(
      planner(
        {
          tool_calls: [
            call('many', { paths: ['a', '../outside'] }),
            call('many', { paths: ['a', '.metis/trust.yaml'] }),
            call('many', { paths: ['a', 'b'] }),
          ],
        },
        { text: 'ok' },
      ),
    ),
  });
  const session = await t.session();
  await t.run(session, 'go');
  expect((await resultsOf(t, session.id)).map(textOf)).toEqual([
    "Path '../outside' escapes workspace boundary",
    "Path '.metis/trust.yaml' is protected",
    'ok',
  ]);
  expect(ran).toBe(1);
});
