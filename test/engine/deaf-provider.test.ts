import { describe, expect, it } from 'vitest';
import { cancelTurn } from '#core/engine/control-turn.ts';
import type { ProviderAdapter } from '#core/ports/provider.ts';
import type { CanonicalRequest } from '#protocol/model-call.ts';
import { startEngine, type TestEngine } from '../support/engine.ts';
import { manualClock } from '../support/manual-clock.ts';
import { turns } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { until } from '../support/until.ts';

/** The requests that `match` picks are answered as if nobody had cancelled them. */
function deafen(t: TestEngine, match: (request: CanonicalRequest) => boolean): void {
  const providers = t.engine.providers as Map<string, ProviderAdapter>;
  const hearing = providers.get('scripted')!;
  providers.set('scripted', {
    ...hearing,
    stream: (request, signal, deliver) =>
      hearing.stream(request, match(request) ? new AbortController().signal : signal, deliver),
  });
}

describe('a worker that will not stop', () => {
  it('ends before its planner, and nothing follows', async () => {
    const clock = manualClock();
    const t = await startEngine({
      clock,
      scenario: scenario(planner({ tool_calls: [delegate('job')] }), worker('job', { hang: true })),
    });
    deafen(t, ({ caller }) => caller.is_worker);
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await t.event('llm.call_started', (e) => e.actor === 'worker');
    await until(() => t.adapter.requests.some((r) => r.caller.is_worker));
    await cancelTurn(t.engine, session.id, turnId, null);
    clock.advance(30_000);
    await t.ended(turnId);
    await turns(50);
    const from = t.events.findIndex((e) => e.type === 'llm.call_failed');
    expect(t.events.slice(from).map((e) => `${e.actor === 'worker' ? 'W' : 'P'} ${e.type}`)).toEqual([
      'W llm.call_failed',
      'W turn.cancelled',
      'W session.ended',
      'P delegate.failed',
      'P tool.failed',
      'P turn.cancelled',
    ]);
  });
});

describe('a stream that does not hear its cancellation', () => {
  for (const open of ['text', 'tool'] as const)
    it(`is closed from what it had said (${open}), and what it says later is lost`, async () => {
      const clock = manualClock();
      const t = await startEngine({
        clock,
        scenario: scenario([
          {
            match: { turn: 1 },
            respond: {
              text: open === 'text' ? 'one two three four' : 'ab',
              tool_calls: open === 'text' ? [] : [call('write_file', { path: 'a', content: 'long enough' })],
              chunk_chars: 4,
              chunk_delay_ms: 10,
            },
          },
          { match: { turn: 2 }, respond: { text: 'next' } },
        ]),
      });
      deafen(t, ({ caller }) => caller.turn_index === 1);
      const session = await t.session();
      const turnId = await t.submit(session, 'go');
      const heard = () => t.deltas.filter((d) => d.delta.type === 'text.delta' || d.delta.type.startsWith('tool.use'));
      while (heard().length < 3) {
        clock.next(10);
        await new Promise(setImmediate);
      }
      await cancelTurn(t.engine, session.id, turnId, null);
      const before = t.deltas.length;
      clock.advance(30_000);
      const turn = await t.ended(turnId);
      expect(turn).toMatchObject({ status: 'cancelled', llm_call_count: 1 });
      expect(turn.total_cost_usd).not.toBe('0');
      const types = t.typesOf(session.id);
      expect(types.slice(-2)).toEqual(['llm.call_completed', 'turn.cancelled']);
      const partial = (await t.engine.store.messages.history(session.id)).at(-1)!;
      expect([partial.role, partial.metadata.status]).toEqual(['assistant', 'cancelled']);
      expect(partial.metadata.usage).toMatchObject({ usage_estimated: true });
      for (let i = 0; i < 5; i++) {
        clock.advance(1000);
        await new Promise(setImmediate);
      }
      const late = t.deltas.slice(before).map((d) => d.delta.type);
      expect(late.filter((type) => type === 'message.complete')).toHaveLength(1);
      expect(late.at(-1)).toBe('message.complete');
      expect(t.events.at(-1)!.type).toBe('turn.cancelled');
      expect((await t.run(session, 'again')).output).toBe('next');
    });
});
