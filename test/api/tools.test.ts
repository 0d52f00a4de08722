// `GET /tools`: what a workspace has, and what of its MCP servers is left out (09 §11.3).
import { expect, test } from 'vitest';
import { startServer } from '../support/http.ts';
import { planner, scenario } from '../support/scenario.ts';
import { FIXTURE, fixture } from '../tool/mcp/world.ts';

// Promise 09.18: What is left out is named over HTTP.
test('names the tools of a workspace, and those that are left out with the reason', async () => {
  const schemas = { fine: { type: 'object' }, never: { type: 'object', anyOf: [false] } };
  const t = await startServer({
    scenario: scenario(planner({ text: 'done' })),
    config: {
      mcp_servers: {
        mixed: fixture('schemas', { args: [FIXTURE, 'schemas', JSON.stringify(schemas)], allow_workers: false }),
        gone: fixture('exits'),
      },
    },
  });
  const ask = async () => (await t.call('GET', `/tools?workspace_path=${encodeURIComponent(t.workspace)}`)).body;
  expect((await ask()).problems).toEqual([]);
  await t.run(await t.session(), 'go');
  const { tools, problems } = await ask();
  expect(tools).toContainEqual({
    name: 'mcp__mixed__fine',
    description: 'fine',
    side_effects: 'execute',
    planners_only: true,
  });
  expect(tools.find(({ name }: { name: string }) => name === 'read_file')).toMatchObject({ planners_only: false });
  expect(problems).toEqual([
    {
      mcp_server: 'mixed',
      message: 'has a tool "never" that is left out: no model can be offered its input schema, which accepts no object',
    },
    { mcp_server: 'gone', message: 'ended with exit status 1' },
  ]);
  expect(await t.call('GET', '/tools?workspace_path=/nowhere')).toMatchObject({ status: 404 });
});
