// `PUT /sessions/{id}/turns/{id}/score`: what is taken, and two people at once (12 §12.8).
import { expect, test } from 'vitest';
import { startServer } from '../support/http.ts';

const answers = { version: 1, strict: false, rules: [], fallback: { text: 'done' } };
async function scoredServer() {
  const server = await startServer({ scenario: answers, learning: {} });
  const session = await server.session({ initial_active_model: 'haiku' });
  const { id } = await server.run(session, 'fix the bug');
  await server.event('eval.completed', (e) => e.turn_id === id);
  const path = `/sessions/${session.id}/turns/${id}`;
  return { server, id, path, give: (body: unknown) => server.call('PUT', `${path}/score`, body) };
}

test('a score is a number from 0 to 1 or a word, and the turn shows it', async () => {
  const { server, id, path, give } = await scoredServer();
  expect((await server.call('GET', path)).body.user_score).toBeNull();
  for (const [score, counts] of [
    ['good', 1],
    ['bad', 0],
    [0.25, 0.25],
    [-0, 0],
  ]) {
    const { status, body } = await give({ score, comment: `  it counts ${counts} ` });
    expect([status, body]).toMatchObject([200, { turn_id: id, score: counts, comment: `it counts ${counts}` }]);
  }
  const { score, comment, scored_at } = (await give({ score: 0 })).body;
  expect((await server.call('GET', path)).body.user_score).toEqual({ score, comment, scored_at });
});

// Promise 12.24: one error that names the field.
test('anything else is one error that names the field, and changes nothing', async () => {
  const { server, path, give } = await scoredServer();
  const bad = [2, -0.1, 1e308, 'NaN', 'Infinity', 'excellent', '', null, true, [], {}, [1]];
  for (const score of bad) {
    const { status, body } = await give({ score });
    expect([score, status, body.error.details.issues]).toEqual([
      score,
      400,
      [
        {
          path: 'score',
          message: expect.stringMatching(/must be (at most 1|at least 0|a number from 0 to 1, "good" or "bad")$/),
        },
      ],
    ]);
  }
  for (const raw of ['{"score":NaN}', '{"score":Infinity}', '{"score":1e999}', '{"score":-1e999}', '{}', '[]', '1'])
    expect([raw, (await server.call('PUT', `${path}/score`, raw)).status]).toEqual([raw, 400]);
  const issues = async (body: unknown) =>
    (await give(body)).body.error.details.issues.map((one: { path: string }) => one.path);
  expect(await issues({ score: 1, comment: 'x'.repeat(1001) })).toEqual(['comment']);
  expect(await issues({ score: 1, coment: 'x' })).toEqual(['coment']);
  expect((await server.call('GET', path)).body.user_score).toBeNull();
  expect(server.events.filter((e) => e.type === 'eval.completed')).toHaveLength(1);
});

// Promise 12.24: forty people at once.
test('people who score one turn at once are all answered, and what stands is what counts', async () => {
  const { server, id, path, give } = await scoredServer();
  const values = Array.from({ length: 40 }, (_, n) => n / 40);
  const replies = await Promise.all(values.map((score) => give({ score })));
  expect(replies.map(({ status }) => status)).toEqual(values.map(() => 200));
  const stands = (await server.call('GET', path)).body.user_score.score;
  await server.event('pattern.recorded', (e) => e.turn_id === id && e.payload.success_score === stands);
  const { patterns } = (await server.call('GET', `/patterns?workspace_path=${encodeURIComponent(server.workspace)}`))
    .body;
  expect(patterns[0].outcomes).toMatchObject([{ sample_size: 1, success_score_count: 1, success_score_mean: stands }]);
});
