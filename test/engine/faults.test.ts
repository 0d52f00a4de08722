// What the world around the engine does wrong: clocks that jump, disks that fill, providers that never answer.
import { describe, expect, it } from 'vitest';
import { recover, resumeAll } from '#core/engine/lifecycle.ts';
import { type Clock, systemClock } from '#protocol/clock.ts';
import { startEngine } from '../support/engine.ts';
import { manualClock } from '../support/manual-clock.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';

const HOUR = 3_600_000;

describe('a clock that is set back', () => {
  it('neither reorders events nor gives a turn a negative length, also over a restart', async () => {
    let back = 0;
    const clock: Clock = { ...systemClock, now: () => systemClock.now() - back };
    const said = scenario(
      planner({ tool_calls: [delegate('the job')], delay_ms: 5 }, { text: 'done' }),
      worker('the job', { tool_calls: [call('list_files', {})] }, { text: 'worked' }),
    );
    const first = await startEngine({ scenario: said, clock });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('llm.call_started');
    back = HOUR;
    await first.event('delegate.started');
    first.abandon();
    back = 2 * HOUR;

    const second = await startEngine({ scenario: said, clock, folder: first.folder });
    await recover(second.engine);
    await resumeAll(second.engine);
    const turn = await second.ended(turnId);
    expect(turn).toMatchObject({ status: 'completed', output: 'done' });
    expect(turn.wall_time_seconds).toBeGreaterThanOrEqual(0);
    const ids = [...first.events, ...second.events].map((event) => event.id);
    expect(ids).toEqual([...ids].sort());
    expect(new Set(ids).size).toBe(ids.length);
    const [delegation] = (
      await second.engine.store.delegations.list(session.id, { recursive: false, after: null, limit: 1 })
    ).rows;
    expect(delegation).toMatchObject({ status: 'completed' });
    expect(delegation!.usage_summary.wall_time_seconds).toBeGreaterThanOrEqual(0);
  });
});

describe('a clock that is set back during an outage', () => {
  it('does not prolong it', async () => {
    const manual = manualClock();
    let back = 0;
    const clock: Clock = { ...manual, now: () => manual.now() - back };
    const t = await startEngine({
      clock,
      scenario: scenario([
        { match: { user_contains: 'fail' }, times: 'inf', respond: { error: { error_class: 'other' } } },
        { match: { user_contains: 'work' }, times: 'inf', respond: { text: 'back' } },
      ]),
    });
    const session = await t.session();
    for (let i = 0; i < 5; i++) await t.run(session, 'fail');
    expect(t.events.filter((e) => e.type === 'routing.provider_unavailable')).toHaveLength(1);
    back = 24 * HOUR;
    manual.advance(301_000);
    expect(await t.run(session, 'work')).toMatchObject({ output: 'back', chosen_model: 'anthropic:claude-opus-4-7' });
    const recovered = t.events.filter((e) => e.type === 'routing.provider_recovered').map((e) => e.payload);
    expect(recovered).toMatchObject([{ downtime_seconds: 300 }]);
  });
});

describe('a database that cannot grow', () => {
  it('stores nothing of a refused message, keeps all that was reported, and takes the next message once it can', async () => {
    const said = scenario([{ match: {}, times: 'inf', respond: { text: 'ok' } }]);
    const t = await startEngine({ scenario: said });
    const session = await t.session();
    await t.run(session, 'first');
    const before = t.rows();
    const pages = t.db.db.pragma('page_count', { simple: true });
    t.db.db.pragma(`max_page_count = ${pages}`);
    await expect(t.submit(session, 'x'.repeat(200_000))).rejects.toMatchObject({
      name: 'StorageFault',
      cause: { code: 'SQLITE_FULL' },
    });
    expect(t.rows()).toEqual(before);
    expect((await t.engine.store.sessions.view(session.id))!.status).toBe('idle');
    t.db.db.pragma('max_page_count = 1000000');
    expect((await t.run(session, 'x'.repeat(200_000))).output).toBe('ok');
  });
});

describe('a provider that never answers', () => {
  it('fails the turn at the call limit with an error that may be tried again, and the session goes on', async () => {
    const clock = manualClock();
    const said = scenario([
      { match: { turn: 1 }, times: 'inf', respond: { hang: true } },
      { match: { turn: 2 }, respond: { text: 'back' } },
    ]);
    const t = await startEngine({ scenario: said, clock });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await t.event('llm.call_started');
    const ended = t.ended(turnId);
    // Idle limit, pauses and further attempts, one after the other, as the clock reaches them.
    let over = false;
    void ended.then(() => {
      over = true;
    });
    while (!over) {
      clock.next(700_000);
      await new Promise(setImmediate);
    }
    expect(await ended).toMatchObject({
      status: 'failed',
      error_code: 'provider_error',
      retryable: true,
    });
    expect(clock.monotonic()).toBeLessThanOrEqual(600_000);
    expect((await t.run(session, 'again')).output).toBe('back');
  });
});
