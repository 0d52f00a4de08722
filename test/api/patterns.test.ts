// `GET /patterns`: what was learned in a workspace (12 §12.7).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { type Parsed, startServer, type TestServer } from '../support/http.ts';

const usage = { input_tokens: 1000, output_tokens: 100 };
const answers = { version: 1, strict: false, rules: [], fallback: { text: 'done', usage } };
const list = (server: TestServer, workspace: string, query = '') =>
  server.call('GET', `/patterns?workspace_path=${encodeURIComponent(workspace)}${query}`);

async function learnedTurn(server: TestServer, text: string, model: string) {
  const { id } = await server.run(await server.session({ initial_active_model: model }), text);
  await server.event('eval.completed', (e) => e.turn_id === id);
}

describe('patterns', () => {
  // Promise 12.16: two models, one shape: one entry, two outcomes; elsewhere nothing.
  test('one shape on two models is one entry with two outcomes, another workspace is empty', async () => {
    const server = await startServer({ scenario: answers, learning: {} });
    for (const model of ['sonnet', 'haiku', 'haiku']) await learnedTurn(server, 'fix the bug', model);
    const { status, body } = await list(server, server.workspace);
    expect(status).toBe(200);
    const outcome = {
      effort: null,
      is_worker: false,
      success_score_mean: 1,
      verified_score_mean: null,
      verified_score_count: 0,
      avg_latency_ms: expect.any(Number),
      last_updated_at: expect.any(String),
    };
    expect(body).toEqual({
      patterns: [
        {
          fingerprint_id: expect.any(String),
          intent_tags: ['debug'],
          file_extensions: [],
          tool_names: [],
          estimated_input_tokens_bucket: expect.any(Number),
          has_images: false,
          outcomes: [
            {
              ...outcome,
              model: 'anthropic:claude-haiku-4-5',
              tier: 'fast',
              sample_size: 2,
              success_score_count: 2,
              avg_cost_usd: '0.0015',
            },
            {
              ...outcome,
              model: 'anthropic:claude-sonnet-4-6',
              tier: 'balanced',
              sample_size: 1,
              success_score_count: 1,
              avg_cost_usd: '0.0045',
            },
          ],
        },
      ],
      next_cursor: null,
    });
    const other = path.join(server.folder, 'other');
    fs.mkdirSync(other);
    expect((await list(server, other)).body).toEqual({ patterns: [], next_cursor: null });
  });

  test('are paged, the newest shape first', async () => {
    const server = await startServer({ scenario: answers, learning: {} });
    for (const text of ['fix the bug', 'write docs', 'commit']) await learnedTurn(server, text, 'haiku');
    const tags = (body: Parsed) => body.patterns.map((one: Parsed) => one.intent_tags[0]);
    const first = (await list(server, server.workspace, '&limit=2')).body;
    expect(tags(first)).toEqual(['commit', 'doc']);
    const second = (await list(server, server.workspace, `&limit=2&cursor=${first.next_cursor}`)).body;
    expect([tags(second), second.next_cursor]).toEqual([['debug'], null]);
  });

  test('without a score have none, and an unknown or missing workspace is told', async () => {
    const server = await startServer({ scenario: answers, learning: {}, config: { eval: { disabled: true } } });
    const { id } = await server.run(await server.session({ initial_active_model: 'haiku' }), 'fix the bug');
    await server.event('pattern.recorded', (e) => e.turn_id === id);
    const { body } = await list(server, server.workspace);
    expect(body.patterns[0].outcomes[0]).toMatchObject({
      sample_size: 1,
      success_score_mean: null,
      success_score_count: 0,
    });
    expect(await list(server, '/nowhere/at/all')).toMatchObject({
      status: 404,
      body: { error: { code: 'not_found' } },
    });
    expect(await server.call('GET', '/patterns')).toMatchObject({
      status: 400,
      body: { error: { code: 'validation_error' } },
    });
  });
});
