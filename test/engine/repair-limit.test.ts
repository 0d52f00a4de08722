// A worker that has used up its tokens is not asked to repair its answer (04 §10, §12).
import { expect, it } from 'vitest';
import { startEngine } from '../support/engine.ts';
import { delegate, planner, scenario } from '../support/scenario.ts';

it('an answer that breaks its schema is not repaired with tokens that are spent', async () => {
  const output_schema = { type: 'object', properties: { a: { type: 'integer' } }, required: ['a'] };
  for (const [max_tokens, turns] of [
    [1000, 1],
    [5000, 2],
  ] as const) {
    const t = await startEngine({
      scenario: scenario(planner({ tool_calls: [delegate('job', { output_schema, max_tokens })] }, { text: 'end' }), [
        {
          match: { role: 'worker' },
          times: 'inf',
          respond: { text: 'no JSON', usage: { input_tokens: 10, output_tokens: max_tokens === 1000 ? 1000 : 900 } },
        },
      ]),
      config: { delegation: { schema_repair_attempts: 1 } },
    });
    const session = await t.session();
    expect((await t.run(session, 'go')).output).toBe('end');
    const began = t.events.filter((e) => e.type === 'turn.started' && e.session_id !== session.id);
    expect(began, `max_tokens ${max_tokens}`).toHaveLength(turns);
    expect(t.events.filter((e) => e.type === 'delegate.failed')).toHaveLength(1);
  }
});
