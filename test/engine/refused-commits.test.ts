// A journal that refuses: nothing stays open behind a turn that has ended, and one that could not end is ended later.
import { describe, expect, it } from 'vitest';
import { cancelTurn, resumeTurn } from '#core/engine/control-turn.ts';
import { recover, resumeAll } from '#core/engine/lifecycle.ts';
import { endSession } from '#core/engine/manage-session.ts';
import { submitDelegation } from '#core/engine/submit-work.ts';
import type { Batch } from '#core/ports/journal-writer.ts';
import { SubmitDelegationBody } from '#protocol/api/worker-bodies.ts';
import { defaultConfig } from '#protocol/config.ts';
import { StorageFault } from '#protocol/journal-batch.ts';
import { toolText } from '#protocol/tool.ts';
import { startEngine, type TestEngine } from '../support/engine.ts';
import { emits, failOnce, restart, turns, writes } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { busy, sound } from '../support/sound.ts';
import { resultsOf, textOf, turnOf } from '../support/stored.ts';
import { tool } from '../support/tools.ts';

const usage = { input_tokens: 1000, output_tokens: 100 };
const closing = (t: TestEngine) =>
  t.events.filter((e) => e.type === 'delegate.failed' || e.type === 'delegate.completed');
const endsDelegation = (batch: Batch) => writes(batch, 'delegation.end');

describe('a refused commit', () => {
  it("of a sibling's result, while a worker waits for money, leaves nothing of the worker behind the failed turn", async () => {
    const t = await startEngine({
      config: { turn: { max_llm_calls: 50, max_output_tokens: 100, timeout_seconds: null } },
      scenario: scenario(
        planner({
          tool_calls: [delegate('job'), call('read_file', { path: 'a.txt' })],
          usage: { input_tokens: 100, output_tokens: 20 },
        }),
        worker('job', {
          tool_calls: [call('list_files', {})],
          usage: { input_tokens: 56_500, output_tokens: 100 },
        }),
      ),
      files: { 'a.txt': 'a' },
    });
    const session = await t.session({ initial_active_model: 'sonnet', max_cost_usd: '0.06' });
    failOnce(
      t,
      (batch) =>
        emits(batch, 'tool.completed') && batch.emit.some((e) => 'session_id' in e && e.session_id === session.id),
    );
    const turn = await t.run(session, 'go');
    expect(turn).toMatchObject({ status: 'failed', error_code: 'internal_error' });
    expect(t.events.filter((e) => e.type === 'budget.exceeded').length).toBeGreaterThan(0);
    await sound(t, session.id, 'paused worker');
    expect((await t.engine.store.sessions.counts()).active_workers).toBe(0);
    expect(closing(t).map((e) => e.payload)).toMatchObject([{ error_message: 'worker_error: internal error' }]);
  });

  for (const times of [1, 2, 3])
    it(`of the end of a delegation, ${times} in a row, leaves no worker without its closing event`, async () => {
      const t = await startEngine({
        scenario: scenario(planner({ tool_calls: [delegate('job')] }, { text: 'end' }), worker('job', { text: 'x' })),
      });
      const session = await t.session();
      failOnce(t, endsDelegation, times);
      const turnId = await t.submit(session, 'go');
      await t.event('tool.called');
      await t.engine.locks.turn(turnId)?.done;
      // Where even the last try was refused the turn is still open, and ends with everything below it.
      expect((await t.engine.store.turns.open(session.id)) === null).toBe(times < 3);
      await endSession(t.engine, session.id);
      await sound(t, session.id, `${times}`);
      expect(closing(t)).toHaveLength(1);
      expect((await t.engine.store.sessions.counts()).active_workers).toBe(0);
    });

  it("of a worker's end, with its answer and after it, ends its turn before its delegation closes", async () => {
    const t = await startEngine({
      scenario: scenario(planner({ tool_calls: [delegate('job')] }, { text: 'end' }), worker('job', { text: 'x' })),
    });
    const session = await t.session();
    const endsWorker = (batch: Batch) =>
      (batch.writes ?? []).some((w) => w.kind === 'turn.end' && w.session_id !== session.id);
    failOnce(t, endsWorker, 2);
    const turn = await t.run(session, 'go');
    expect(turn).toMatchObject({ status: 'completed' });
    await sound(t, session.id, 'worker without its end');
    const ends = t.events
      .map((e) => e.type)
      .filter((type) => /^(turn\.cancelled|session\.ended|delegate\.failed)$/.test(type));
    expect(ends).toEqual(['turn.cancelled', 'session.ended', 'delegate.failed']);
  });

  it('of the outcome of a call, and of its closing, leaves no call open behind the turn', async () => {
    for (const times of [2, 3]) {
      const t = await startEngine({ scenario: scenario([{ match: {}, times: 'inf', respond: { text: 'x', usage } }]) });
      const session = await t.session();
      failOnce(t, (batch) => emits(batch, 'llm.call_completed') || emits(batch, 'llm.call_failed'), times);
      const turnId = await t.submit(session, 'go');
      await t.engine.locks.turn(turnId)?.done;
      if (times === 2) await sound(t, session.id, '2');
      expect((await t.run(session, 'again')).status).toBe('completed');
      await endSession(t.engine, session.id);
      await sound(t, session.id, `${times}`);
    }
  });

  it('of the end of an approval leaves none open that nobody waits for', async () => {
    const t = await startEngine({
      config: { tool_confirmation: { timeout_seconds: 0.01 } },
      scenario: scenario(planner({ tool_calls: [call('write_file', { path: 'a', content: 'x' })] }, { text: 'end' })),
    });
    const session = await t.session();
    failOnce(t, (batch) => writes(batch, 'confirmation.resolve'));
    expect(await t.run(session, 'go')).toMatchObject({ status: 'completed', output: 'end' });
    expect(await t.engine.store.confirmations.allOpen()).toEqual([]);
    expect(t.events.filter((e) => e.type === 'tool.confirmation_resolved')).toHaveLength(1);
    await sound(t, session.id, 'prompt');
  });

  for (const times of [1, 2, 3])
    it(`at whatever moment, ${times} in a row, leaves a tree that ends whole`, async () => {
      for (let n = times; n <= 48; n += 7) {
        const t = await startEngine({ scenario: busy });
        const session = await t.session();
        let seen = 0;
        let running = true;
        failOnce(t, () => running && ++seen > n, times);
        const turnId = await t.submit(session, 'go').catch(() => null);
        if (turnId !== null) await t.engine.locks.turn(turnId)?.done;
        running = false;
        const whole = (await t.engine.store.turns.open(session.id)) === null;
        if (turnId !== null && whole) await sound(t, session.id, `${n}`);
        await endSession(t.engine, session.id);
        if (turnId !== null) await sound(t, session.id, `${n}, ended`);
        expect((await t.engine.store.sessions.counts()).active_workers, `${n}`).toBe(0);
        await t.close();
      }
    });
});

describe('recovery', () => {
  it('reports the end of the delegation and of the approval that it closes, although their turn ended before', async () => {
    const options = {
      config: { recovery: { on_start: 'hold' as const } },
      scenario: scenario(
        planner({ tool_calls: [delegate('job')] }),
        worker('job', { tool_calls: [call('write_file', { path: 'a', content: 'x' })] }),
      ),
    };
    const first = await startEngine(options);
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('tool.confirmation_requested');
    // As a version that ended a turn before its parts would have left it.
    first.db.db.exec(`UPDATE turns SET status = 'failed', error_code = 'internal_error', ended_at = 1`);
    const t = await restart(first, options);
    expect(closing(t)).toMatchObject([{ type: 'delegate.failed', turn_id: turnId, session_id: session.id }]);
    expect(t.events.filter((e) => e.type === 'tool.confirmation_resolved')).toHaveLength(1);
    expect((await t.engine.store.sessions.counts()).active_workers).toBe(0);
    await expect(resumeTurn(t.engine, session.id, turnId)).rejects.toMatchObject({ code: 'turn_not_interrupted' });
    const again = await restart(t, options);
    expect(again.events).toEqual([]);
  });
});

describe('a journal that refuses one batch', () => {
  it('while a refused delegation is stored leaves no running record', async () => {
    const t = await startEngine({
      scenario: scenario(planner({ tool_calls: [delegate('job')] }, { text: 'end' })),
      config: { delegation: { ...defaultConfig('/tmp').delegation, max_workers_per_turn: 0 } },
    });
    const session = await t.session();
    failOnce(t, (b) => writes(b, 'delegation.end'));
    await t.run(session, 'go');
    expect(await t.engine.store.delegations.allOpen()).toEqual([]);
  });

  it('of the journal in the middle of a batch still ends the turn, with the results there are', async () => {
    const t = await startEngine({
      tools: [tool('good'), tool('late', { execute: () => turns(20).then(() => toolText('late')) })],
      scenario: scenario(planner({ tool_calls: [call('good', {}), call('late', {})] }, { text: 'end' })),
    });
    const session = await t.session();
    let settles = 0;
    failOnce(t, (b) => writes(b, 'tool_call.settle') && ++settles > 1, 1);
    const turnId = await t.submit(session, 'go');
    await t.ended(turnId);
    expect(await turnOf(t, session.id, turnId)).toMatchObject({ status: 'failed', error_code: 'internal_error' });
    expect((await resultsOf(t, session.id)).map(textOf)).toEqual(['ok', 'Tool call not executed: the turn failed.']);
  });
});

describe('a turn whose end could not be stored', () => {
  /** The roots that were given up so far. */
  const givenUp = (t: TestEngine) => {
    const roots: string[] = [];
    Object.assign(t.engine.trees, { release: (root: string) => void roots.push(root) });
    return roots;
  };
  const broken = async () => {
    throw new StorageFault('the database cannot be reached', null);
  };

  // Promise 16.22: a turn or delegation that cannot be ended or resumed gives up its tree.
  it('gives up its tree, whatever the fault', async () => {
    const t = await startEngine({ scenario: scenario([{ match: {}, respond: { text: 'lost', delay_ms: 10 } }]) });
    const roots = givenUp(t);
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await t.event('llm.call_started');
    t.engine.journal.commit = async () => {
      throw new Error('disk full');
    };
    await t.engine.locks.turn(turnId)?.done;
    expect(roots).toEqual([session.id]);
  });

  it('gives up its tree where it is a delegation from outside', async () => {
    const t = await startEngine({ scenario: scenario([{ match: {}, respond: { text: 'lost', delay_ms: 10 } }]) });
    const roots = givenUp(t);
    const session = await t.session();
    const body = SubmitDelegationBody.parse({ tier: 'fast', task: 'job' });
    const { tool_use_id } = await submitDelegation(t.engine, session.id, body);
    await t.event('llm.call_started');
    t.engine.journal.commit = broken;
    await t.engine.outside.get(tool_use_id)?.done;
    expect(roots).toEqual([session.id]);
  });

  it('gives up its tree where the turn cannot be resumed for a fault of the database', async () => {
    const options = { scenario: scenario([{ match: {}, times: 'inf', respond: { text: 'late', delay_ms: 20 } }]) };
    const first = await startEngine(options);
    const session = await first.session();
    await first.submit(session, 'go');
    await first.event('llm.call_started');
    first.abandon();
    const t = await startEngine({ ...options, folder: first.folder });
    const roots = givenUp(t);
    await recover(t.engine, session.id);
    const { commit } = t.engine.journal;
    t.engine.journal.commit = broken;
    await resumeAll(t.engine, session.id);
    expect(roots).toEqual([session.id]);
    t.engine.journal.commit = commit;
  });
});

describe('a journal that comes back', () => {
  for (const way of ['a message', 'a cancel', 'an end'] as const)
    it(`lets ${way} close the turn that could not be ended without it`, async () => {
      const t = await startEngine({
        scenario: scenario([
          { match: { turn: 1 }, respond: { text: 'lost', delay_ms: 10 } },
          { match: { turn: 2 }, respond: { text: 'fresh' } },
        ]),
      });
      const session = await t.session();
      const turnId = await t.submit(session, 'go');
      await t.event('llm.call_started');
      const { journal } = t.engine;
      const { commit } = journal;
      journal.commit = async () => {
        throw new Error('disk full');
      };
      await t.engine.locks.turn(turnId)?.done;
      journal.commit = commit;
      if (way === 'a message') expect((await t.run(session, 'again')).output).toBe('fresh');
      else if (way === 'a cancel') await cancelTurn(t.engine, session.id, turnId, null);
      else await endSession(t.engine, session.id);
      expect((await turnOf(t, session.id, turnId)).status).toBe('cancelled');
      const of = (type: string) => t.events.filter((e) => e.turn_id === turnId && e.type === type);
      expect(of('llm.call_failed')).toHaveLength(1);
      expect(of('turn.cancelled')).toHaveLength(1);
    });
});
