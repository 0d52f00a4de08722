// A process that dies between two commits: the next one ends what was open, and gives nothing twice (04 §13).
import fs from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { describe, expect, it, onTestFinished } from 'vitest';
import { answerConfirmation } from '#core/engine/answer-approval.ts';
import { cancelTurn } from '#core/engine/control-turn.ts';
import { defaultConfig } from '#protocol/config.ts';
import { toolText } from '#protocol/tool.ts';
import { startEngine } from '../support/engine.ts';
import { manualClock, START } from '../support/manual-clock.ts';
import { failOnce, gate, restart, writes } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { resultsOf, storedEvents, turnOf } from '../support/stored.ts';
import { tool } from '../support/tools.ts';
import { until } from '../support/until.ts';

const hold = { recovery: { on_start: 'hold' } } as const;
const TERMINAL = ['turn.completed', 'turn.failed', 'turn.cancelled'];
const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

describe('a crash', () => {
  it("behind a worker's timeout is still a timeout for the planner", async () => {
    const said = scenario(
      planner({ tool_calls: [delegate('slow', { timeout_seconds: 5 })] }, { text: 'told' }),
      worker('slow', { hang: true }),
    );
    const clock = manualClock();
    const first = await startEngine({ scenario: said, clock });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('llm.call_started', (e) => e.actor === 'worker');
    clock.advance(5000);
    await first.event('turn.cancelled', (e) => e.actor === 'worker');
    const second = await restart(first, { scenario: said, clock: manualClock(START + 10_000) });
    await second.ended(turnId);
    expect((await turnOf(second, session.id, turnId)).status).toBe('completed');
    const events = await storedEvents(second, session.id);
    expect(events.find((e) => e.type === 'delegate.failed')?.payload).toMatchObject({ failure_mode: 'timeout' });
  });

  it('costs a worker none of its time while the server is down', async () => {
    const said = scenario(planner({ tool_calls: [delegate('job')] }), worker('job', { hang: true }));
    const first = await startEngine({ scenario: said, clock: manualClock(), config: hold });
    const session = await first.session();
    await first.submit(session, 'go');
    const begun = await first.event('llm.call_started', (e) => e.actor === 'worker');
    const second = await restart(first, { scenario: said, clock: manualClock(START + 3_600_000), config: hold });
    const delegation = await second.engine.store.delegations.findByWorker(begun.session_id as never);
    expect(delegation).toMatchObject({ status: 'interrupted', active_seconds: 0 });
  });

  it('costs a worker none of the time between two clocks before its first turn', async () => {
    const said = scenario(planner({ tool_calls: [delegate('job')] }), worker('job', { hang: true }));
    const first = await startEngine({ scenario: said, clock: manualClock(), config: hold });
    const session = await first.session();
    await first.submit(session, 'go');
    const begun = await first.event('llm.call_started', (e) => e.actor === 'worker');
    first.abandon();
    // As if a node whose clock is an hour behind had opened the worker, and this one its turn.
    const db = new Database(path.join(first.folder, 'metis.db'));
    const moved = db
      .prepare(
        `UPDATE event_rows SET timestamp_ms = timestamp_ms - 3600000 WHERE type = 1
         AND session_key = (SELECT session_key FROM event_sessions WHERE session_id = ?)`,
      )
      .run(begun.session_id);
    db.close();
    expect(moved.changes).toBe(1);
    const second = await restart(first, { scenario: said, clock: manualClock(START), config: hold });
    const delegation = await second.engine.store.delegations.findByWorker(begun.session_id as never);
    expect(delegation).toMatchObject({ status: 'interrupted', active_seconds: 0 });
  });

  // A recovery can be killed too: after it has closed the worker's call, before it resumed the worker's turn.
  it('costs a worker none of the time until a recovery that was killed itself, and counts nothing twice', async () => {
    const said = scenario(planner({ tool_calls: [delegate('job')] }), worker('job', { hang: true }));
    const clock = manualClock();
    const first = await startEngine({ scenario: said, clock, config: hold });
    const session = await first.session();
    await first.submit(session, 'go');
    const begun = await first.event('llm.call_started', (e) => e.actor === 'worker');
    const second = await restart(first, { scenario: said, clock: manualClock(START + 3_600_000), config: hold });
    const worked = await second.engine.store.delegations.findByWorker(begun.session_id as never);
    expect(worked?.status).toBe('interrupted');
    await second.engine.journal.commit({
      writes: [{ kind: 'delegation.resume', tool_use_id: worked!.tool_use_id }],
      emit: [],
    });
    const third = await restart(second, { scenario: said, clock: manualClock(START + 7_200_000), config: hold });
    const again = await third.engine.store.delegations.findByWorker(begun.session_id as never);
    expect(again).toMatchObject({ status: 'interrupted', active_seconds: worked!.active_seconds });
    expect(again!.active_seconds).toBeLessThan(1);
  });

  it('closes each open approval under its own request', async () => {
    const said = scenario(
      planner({
        tool_calls: [call('write_file', { path: 'a', content: '1' }), call('write_file', { path: 'b', content: '2' })],
      }),
    );
    const first = await startEngine({ scenario: said, config: hold });
    const session = await first.session();
    await first.submit(session, 'go');
    await first.event('tool.confirmation_requested', (e) => (e.payload.input_summary as string).includes('"a"'));
    await first.event('tool.confirmation_requested', (e) => (e.payload.input_summary as string).includes('"b"'));
    const second = await restart(first, { scenario: said, config: hold });
    const events = await storedEvents(second, session.id);
    const asked = new Map(
      events
        .filter((e) => e.type === 'tool.confirmation_requested')
        .map((e) => [e.payload.confirmation_request_id, e.id]),
    );
    const closed = events.filter((e) => e.type === 'tool.confirmation_resolved');
    expect(closed).toHaveLength(2);
    for (const e of closed) expect(e.parent_event_id).toBe(asked.get(e.payload.confirmation_request_id));
  });

  // Promise 04.16: The fan-out cap counts workers from before a restart.
  it('does not give a turn new workers to spend', async () => {
    const said = scenario(
      planner({ tool_calls: [delegate('one')] }, { tool_calls: [delegate('two')] }, { text: 'end' }),
      worker('one', { text: '1' }),
      worker('two', { text: '2' }),
    );
    const config = { delegation: { ...defaultConfig('/tmp').delegation, max_workers_per_turn: 1 } };
    const first = await startEngine({ scenario: said, config });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('delegate.completed');
    const second = await restart(first, { scenario: said, config });
    await second.ended(turnId);
    expect(second.rows().sessions).toBe(2);
  });

  it('behind which the model is gone fails the turn with what was settled', async () => {
    const said = scenario(
      planner({ tool_calls: [call('list_files', {}), delegate('job')] }),
      worker('job', { hang: true }),
    );
    const first = await startEngine({ scenario: said });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('tool.completed');
    await first.event('llm.call_started', (e) => e.actor === 'worker');
    const registry = fs
      .readFileSync(path.join(import.meta.dirname, '../support/registry.yaml'), 'utf8')
      .replace('anthropic:claude-opus-4-7', 'anthropic:claude-opus-9');
    const second = await restart(first, { scenario: said, registry });
    await second.ended(turnId);
    expect(await turnOf(second, session.id, turnId)).toMatchObject({
      status: 'failed',
      error_code: 'model_not_configured',
    });
    const events = await storedEvents(second, session.id);
    expect(events.filter((e) => TERMINAL.includes(e.type)).map((e) => e.type)).toEqual([
      'turn.cancelled',
      'turn.failed',
    ]);
    expect((await resultsOf(second, session.id)).map((r) => r.is_error)).toEqual([false, true]);
  });

  it('never runs the input that a person had replaced', async () => {
    const ran: unknown[] = [];
    const wait = gate();
    const probe = tool('probe', {
      execute: async (input) => {
        ran.push(input);
        await wait.opened;
        return toolText('done');
      },
    });
    onTestFinished(wait.open);
    const said = scenario(planner({ tool_calls: [call('probe', { n: 1 })] }, { text: 'end' }));
    const config = { tool_confirmation: { per_tool: { probe: 'prompt' } } } as const;
    const first = await startEngine({ scenario: said, tools: [probe], config });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    const asked = await first.event('tool.confirmation_requested');
    await until(() => first.engine.approvals.size > 0);
    await answerConfirmation(first.engine, asked.payload.confirmation_request_id as string, {
      decision: 'modify',
      scope: 'once',
      reason: null,
      modified_input: { n: 2 },
    });
    await first.event('tool.called');
    await until(() => ran.length > 0);
    const second = await restart(first, { scenario: said, tools: [probe], config });
    wait.open();
    await second.ended(turnId);
    expect(ran).not.toContainEqual({ n: 1 });
    expect((await turnOf(second, session.id, turnId)).status).toBe('completed');
  });

  it('before a worker began does not lose its images', async () => {
    const said = scenario(
      planner({
        tool_calls: [
          delegate('look', { context: { mode: 'explicit', include: [{ type: 'file', path: 'a.png' }] }, tier: 'deep' }),
        ],
      }),
      worker('look', { text: 'seen' }),
    );
    const first = await startEngine({ scenario: said });
    fs.writeFileSync(path.join(first.workspace, 'a.png'), Buffer.from(PIXEL, 'base64'));
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('delegate.started');
    const second = await restart(first, { scenario: said });
    await second.event('llm.call_started', (e) => e.actor === 'worker');
    await second.ended(turnId);
    const request = second.adapter.requests.find((r) => r.caller.is_worker)!;
    expect(request.messages[0]!.content.map((b) => b.type)).toEqual(['text', 'image']);
    expect(turnId).toBeDefined();
  });

  it('with an approval of an ended turn still open does not stop the next start', async () => {
    const said = scenario(planner({ tool_calls: [call('write_file', { path: 'a', content: '1' })] }));
    const first = await startEngine({ scenario: said });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('tool.confirmation_requested');
    await until(() => first.engine.approvals.size > 0);
    failOnce(first, (b) => writes(b, 'confirmation.resolve'));
    await cancelTurn(first.engine, session.id, turnId, null);
    await first.ended(turnId);
    const second = await restart(first, { scenario: said });
    expect(await second.engine.store.confirmations.allOpen()).toEqual([]);
  });

  it('ends a worker whose planner has ended', async () => {
    const said = scenario(planner({ tool_calls: [delegate('job')] }), worker('job', { hang: true }));
    const first = await startEngine({ scenario: said });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    const begun = await first.event('llm.call_started', (e) => e.actor === 'worker');
    first.db.db.prepare("UPDATE turns SET status = 'failed', ended_at = 1 WHERE id = ?").run(turnId);
    const second = await restart(first, { scenario: said });
    expect((await second.engine.store.sessions.view(begun.session_id))!.status).toBe('ended');
  });
});
