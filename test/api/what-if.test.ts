// The other bill over HTTP, of turns that an engine has run (21 §2).
import fs from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { WhatIfReportSchema } from '#protocol/analytics.ts';
import { startServer, type TestServer } from '../support/http.ts';
import { delegate, planner, scenario, worker } from '../support/scenario.ts';

const OPUS = 'anthropic:claude-opus-4-7';
const HAIKU = 'anthropic:claude-haiku-4-5';
const GPT = 'openai:gpt-5';
const RULES = `
default: opus
rules:
  - { name: short, when: { message_contains_any: [hello] }, use: sonnet }
`;

async function serve(): Promise<TestServer> {
  const server = await startServer({
    scenario: scenario(
      [{ match: { user_contains: 'Say hello' }, times: 'inf', respond: { text: 'hello' } }],
      planner({ tool_calls: [delegate('count the files')] }, { text: 'There are three.' }),
      worker('count the files', {
        text: 'three',
        usage: { input_tokens: 1000, cached_input_tokens: 5000, output_tokens: 10 },
      }),
    ),
  });
  fs.mkdirSync(path.join(server.workspace, '.metis'), { recursive: true });
  fs.writeFileSync(path.join(server.workspace, '.metis/routing.yaml'), RULES);
  await server.run(await server.session({ initial_active_model: null }), 'Count the files, please.');
  await server.run(await server.session({ initial_active_model: null }), 'Say hello.');
  return server;
}

// Promise 21.2: The file in force changes nothing of turns that ran; a map of models and one of tiers reprice them.
test('turns, a worker among them, under the file in force, another one, other tiers and other models', async () => {
  const server = await serve();
  const { totals } = (await server.call('GET', '/analytics/cost?from=all')).body;
  const ask = async (body: object) => {
    const answer = await server.call('POST', '/analytics/what-if', { from: 'all', ...body });
    expect(answer.status, JSON.stringify(answer.body)).toBe(200);
    return WhatIfReportSchema.parse(answer.body);
  };
  const same = await ask({ routing: RULES, workspace_path: server.workspace });
  expect(same).toMatchObject({
    actual_usd: totals.cost_usd,
    hypothetical_usd: { low: totals.cost_usd, high: totals.cost_usd },
    decisions: { same: 3, changed: 0, undecided: 0 },
    warnings: [],
  });
  const other = await ask({ routing: RULES.replace('use: sonnet', 'use: haiku') });
  expect(other.changed).toMatchObject([{ to_model: HAIKU, rule_name: 'short', decisions: 1 }]);
  const tiers = await ask({ tiers: { fast: 'gpt', balanced: 'opus', deep: 'opus' } });
  expect(tiers.changed).toMatchObject([
    { from_model: HAIKU, to_model: GPT, decisions: 1, low_usd: '0.00385', high_usd: '0.0151' },
  ]);
  const models = await ask({ models: { opus: 'haiku' }, group_by: 'model' });
  expect(models.changed).toMatchObject([{ from_model: OPUS, to_model: HAIKU, decisions: 1 }]);
  expect(models.groups.map(({ key }) => key)).toEqual([HAIKU, OPUS, 'anthropic:claude-sonnet-4-6']);
});

test('a faulty question is refused by the names of its fields, and stores nothing', async () => {
  const server = await serve();
  const before = server.rows();
  for (const [body, path] of [
    [{}, ''],
    [{ routing: 'rules: [{ use: opus, when: { foo: 1 } }]' }, 'routing'],
    [{ tiers: { fast: 'nope', balanced: 'opus', deep: 'opus' } }, 'tiers.fast'],
    [{ models: { opus: 'nope' } }, 'models.opus'],
    [{ models: { nope: 'opus' } }, 'models.nope'],
    [{ models: { opus: 'haiku', [OPUS]: 'haiku' } }, `models.${OPUS}`],
    [{ models: { opus: 'haiku' }, from: 'yesterday' }, 'from'],
    [{ models: { opus: 'haiku' }, group_by: 'hour' }, 'group_by'],
  ] as const) {
    const answer = await server.call('POST', '/analytics/what-if', body);
    expect([answer.status, answer.body.error.details.issues[0].path], JSON.stringify(answer.body)).toEqual([400, path]);
  }
  expect(server.rows()).toEqual(before);
});
