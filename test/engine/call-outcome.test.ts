// Between the end of a stream and the settlement of its call: every announced call has exactly one outcome.
import { describe, expect, it } from 'vitest';
import { cancelTurn } from '#core/engine/control-turn.ts';
import type { ProviderAdapter } from '#core/ports/provider.ts';
import { startEngine, type TestEngine } from '../support/engine.ts';
import { emits, failOnce } from '../support/moments.ts';
import { call, planner, scenario } from '../support/scenario.ts';

const usage = { input_tokens: 1000, output_tokens: 100 };
const outcomes = (t: TestEngine) =>
  t.events.filter((e) => e.type === 'llm.call_completed' || e.type === 'llm.call_failed').map((e) => e.type);

describe('an announced call', () => {
  it('whose outcome the journal refuses is closed all the same, before its turn fails', async () => {
    const t = await startEngine({ scenario: scenario(planner({ text: 'lost', usage })) });
    const session = await t.session();
    failOnce(t, (batch) => emits(batch, 'llm.call_completed'));
    expect(await t.run(session, 'go')).toMatchObject({ status: 'failed', error_code: 'internal_error' });
    expect(outcomes(t)).toHaveLength(1);
    expect(await t.engine.store.events.openCalls()).toEqual([]);
    expect(t.typesOf(session.id).at(-1)).toBe('turn.failed');
  });

  for (const said of ['text', 'tools'] as const)
    it(`whose turn is cancelled behind the last byte of its answer (${said}) is paid for, and the turn is cancelled`, async () => {
      const respond = said === 'text' ? { text: 'whole' } : { text: 'whole', tool_calls: [call('list_files', {})] };
      const t = await startEngine({
        scenario: scenario(planner({ ...respond, usage })),
      });
      const scripted = t.engine.providers.get('scripted')!;
      (t.engine.providers as Map<string, ProviderAdapter>).set('scripted', {
        ...scripted,
        async stream(request, signal, deliver) {
          await scripted.stream(request, signal, deliver);
          await cancelTurn(t.engine, request.caller.session_id, request.caller.turn_id, null);
        },
      });
      const session = await t.session();
      const turn = await t.run(session, 'go');
      expect(turn).toMatchObject({ status: 'cancelled', total_cost_usd: '0.0225', llm_call_count: 1 });
      expect(outcomes(t)).toEqual(['llm.call_completed']);
      expect(t.events.filter((e) => e.type === 'tool.called')).toEqual([]);
      const history = await t.engine.store.messages.history(session.id);
      expect(history.map((m) => m.role)).toEqual(
        said === 'text' ? ['user', 'assistant'] : ['user', 'assistant', 'tool'],
      );
      expect(t.typesOf(session.id).at(-1)).toBe('turn.cancelled');
    });
});
