// A script in place of a model: it teaches nothing about models, and its session is marked (08 §5, 12 §12.3).
import { expect, it } from 'vitest';
import { startEngine, type TestEngine } from '../support/engine.ts';

const answers = { version: 1, strict: false, rules: [], fallback: { text: 'done', usage: { input_tokens: 1000 } } };
const CAPABILITIES = 'capabilities: { max_context_tokens: 100000, max_output_tokens: 4096 }';
const REGISTRY = `adapters: { scripted: { type: scripted } }
models:
  scripted:fast: { tier: fast, ${CAPABILITIES} }
  x:real: { adapter: scripted, tier: balanced, ${CAPABILITIES} }
`;
const learned = (t: TestEngine) =>
  t.db.db.prepare<[], string>('SELECT primary_model FROM pattern_outcomes').pluck().all();

async function runTurn(t: TestEngine, model: string) {
  const session = await t.session({ initial_active_model: model });
  const { id } = await t.run(session, 'fix the bug');
  // The verdict of a turn is the last that the learning loop makes of it.
  await t.event('eval.completed', (e) => e.turn_id === id && e.payload.subject_kind === 'turn');
  return t.engine.store.sessions.view(session.id);
}

it('a simulated turn is judged and teaches nothing, and a real one beside it does', async () => {
  const t = await startEngine({ scenario: answers, learning: {}, registry: REGISTRY });
  expect(await runTurn(t, 'scripted:fast')).toMatchObject({ has_simulated_calls: true });
  expect(await runTurn(t, 'x:real')).toMatchObject({ has_simulated_calls: false });
  expect(learned(t)).toEqual(['x:real']);
});
