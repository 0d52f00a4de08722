// The turn loop: plain answers, tool cycles, limits, failures, model swaps, refusals (04 §3, 03 §4, 01 §8).
import { describe, expect, it } from 'vitest';
import { patchSession } from '#core/engine/manage-session.ts';
import type { ToolFactory } from '#core/ports/tool-port.ts';
import { type ToolDefinition, ToolError, toolText } from '#protocol/tool.ts';
import { startEngine } from '../support/engine.ts';
import { call, planner, scenario } from '../support/scenario.ts';
import { resultsOf, textOf } from '../support/stored.ts';
import { answering } from '../support/windows.ts';

function tool(name: string, execute: (input: Readonly<Record<string, unknown>>) => Promise<string>): ToolFactory {
  const definition: ToolDefinition = {
    name,
    description: name,
    input_schema: { type: 'object', properties: { n: { type: 'integer' } }, additionalProperties: false },
    side_effects: 'none',
    requires_workspace: false,
    path_fields: [],
    timeout_seconds: null,
  };
  return () => ({ definition, execute: async (input) => toolText(await execute(input)), cancel: async () => false });
}

describe('a plain turn', () => {
  it('is five events in order, one answer, and its exact cost', async () => {
    const t = await startEngine({
      scenario: scenario(planner({ text: 'hello', usage: { input_tokens: 100, output_tokens: 10 } })),
    });
    const session = await t.session({ initial_active_model: 'haiku' });
    const turn = await t.run(session, 'hi');
    expect(t.typesOf(session.id)).toEqual([
      'session.created',
      'turn.started',
      'route.decided',
      'llm.call_started',
      'llm.call_completed',
      'turn.completed',
    ]);
    expect(turn).toMatchObject({
      status: 'completed',
      stop_reason: 'end_turn',
      output: 'hello',
      total_cost_usd: '0.00015',
      llm_call_count: 1,
      tool_call_count: 0,
    });
    const messages = await t.engine.store.messages.history(session.id);
    expect(messages.map((m) => [m.role, m.metadata.status])).toEqual([
      ['user', 'complete'],
      ['assistant', 'complete'],
    ]);
    expect(messages[1]!.metadata.routing).toMatchObject({ mode: 'manual', chosen_model: 'anthropic:claude-haiku-4-5' });
  });

  it.each([true, false])(
    'whose answer comes whole (%s) is published in one with its end, else piece by piece',
    async (isWhole) => {
      const t = await startEngine({
        scenario: scenario(planner({ text: 'hello' })),
        provider: (script) => {
          const adapter = answering(script, () => ({ text: 'hello' }));
          const { stream } = adapter;
          return {
            ...adapter,
            stream: (...[request, signal, deliver]) => stream(request, signal, (e) => deliver(e, isWhole)),
          };
        },
      });
      const session = await t.session({ initial_active_model: 'haiku' });
      const published: string[][] = [];
      t.engine.bus.subscribe('test', (items) =>
        published.push(items.map((item) => (item.kind === 'event' ? item.event.type : item.transient.delta.type))),
      );
      await t.run(session, 'hi');
      const end = ['message.complete', 'llm.call_completed', 'turn.completed'];
      const deltas = ['message.start', 'text.delta'];
      expect(published.slice(1)).toEqual(isWhole ? [[...deltas, ...end]] : [...deltas.map((type) => [type]), end]);
    },
  );

  it('whose model answers with nothing is complete, paid for, and sendable again', async () => {
    const usage = { input_tokens: 100, output_tokens: 0 };
    const t = await startEngine({
      scenario: scenario(planner({ tool_calls: [call('list_files', {})], usage }, { text: '', usage }), [
        { match: { turn: 2 }, respond: { text: 'here again', usage } },
      ]),
    });
    const session = await t.session({ initial_active_model: 'haiku' });
    const turn = await t.run(session, 'go');
    expect(turn).toMatchObject({ status: 'completed', stop_reason: 'end_turn', total_cost_usd: '0.0002' });
    expect(turn.output ?? '').toBe('');
    expect((await t.run(session, 'go on')).output).toBe('here again');
  });

  it('streams what it stores', async () => {
    const t = await startEngine({ scenario: scenario(planner({ text: 'a text in several pieces', chunk_chars: 5 })) });
    const session = await t.session();
    await t.run(session, 'hi');
    const streamed = t.deltas.map((d) => (d.delta.type === 'text.delta' ? d.delta.payload.text : '')).join('');
    expect(streamed).toBe('a text in several pieces');
    expect(t.deltas.map((d) => d.delta.type).filter((type) => type !== 'text.delta')).toEqual([
      'message.appended',
      'message.start',
      'message.complete',
    ]);
  });
});

describe('a tool cycle', () => {
  it('answers in block order whatever finished first, and sends one result per call', async () => {
    let release: () => void = () => {};
    const gate = new Promise<void>((resolve) => {
      release = resolve;
    });
    const t = await startEngine({
      tools: [
        tool('slow', async () => {
          await gate;
          return 'slow done';
        }),
        tool('quick', async () => {
          release();
          return 'quick done';
        }),
      ],
      scenario: scenario(planner({ tool_calls: [call('slow', {}), call('quick', {})] }, { text: 'both' })),
    });
    const session = await t.session();
    await t.run(session, 'go');
    expect((await resultsOf(t, session.id)).map(textOf)).toEqual(['slow done', 'quick done']);
    const order = t.events.filter((e) => e.type === 'tool.completed').map((e) => e.payload);
    const ids = (await resultsOf(t, session.id)).map((r) => r.tool_use_id);
    expect(order.map((p) => (p as { tool_use_id: string }).tool_use_id)).toEqual([ids[1], ids[0]]);
  });

  // Promise 09.11: Never more tools at once than configured; results in block order.
  it('never runs more tools at once than configured', async () => {
    let running = 0;
    let most = 0;
    const t = await startEngine({
      config: { tools: { max_concurrent_per_session: 4 } },
      tools: [
        tool('busy', async (input) => {
          running += 1;
          most = Math.max(most, running);
          for (let i = 0; i < 20; i++) await new Promise(setImmediate);
          running -= 1;
          return `busy ${String(input.n)}`;
        }),
      ],
      scenario: scenario(planner({ tool_calls: [0, 1, 2, 3, 4, 5].map((n) => call('busy', { n })) }, { text: 'done' })),
    });
    const session = await t.session();
    await t.run(session, 'go');
    expect(most).toBe(4);
    expect((await resultsOf(t, session.id)).map(textOf)).toEqual([0, 1, 2, 3, 4, 5].map((n) => `busy ${n}`));
  });

  // Promise 09.2: An unknown or disabled tool is answered as not found without having been called.
  // Promise 09.3: Input of a wrong type is answered with its path and the tool never runs.
  // Promise 09.4: A path outside the workspace is refused before the tool is called, without naming the root.
  // Promise 09.15: An unexpected tool fault stays opaque.
  it('answers an unknown tool, bad input and a broken tool without ending the turn', async () => {
    const t = await startEngine({
      tools: [
        tool('broken', async () => {
          throw new Error('secret: sk-abcdefghijklmnop');
        }),
        tool('picky', async () => {
          throw new ToolError('execution_error', 'the moon is in the wrong phase');
        }),
      ],
      scenario: scenario(
        planner(
          {
            tool_calls: [
              call('nope', {}),
              call('read_file', { path: 5 }),
              call('broken', {}),
              call('picky', {}),
              call('read_file', { path: '../../etc/passwd' }),
            ],
          },
          { text: 'sorry' },
        ),
      ),
    });
    const session = await t.session();
    const turn = await t.run(session, 'go');
    expect(turn.status).toBe('completed');
    const texts = (await resultsOf(t, session.id)).map(textOf);
    expect(texts[0]).toBe("Tool 'nope' is not available in this session.");
    expect(texts[1]).toMatch(/path: /);
    expect(texts[2]).toBe('Tool execution failed.');
    expect(texts[3]).toBe('the moon is in the wrong phase');
    expect(texts[4]).toContain("'../../etc/passwd'");
    expect(texts[4]).not.toContain(t.workspace);
    expect(JSON.stringify(t.events)).not.toContain('sk-abcdefghijklmnop');
    const outcomes = t.events
      .filter((e) => ['tool.failed', 'tool.input_invalid', 'tool.called'].includes(e.type))
      .map((e) => `${e.type} ${(e.payload as { error_class?: string }).error_class ?? ''}`.trim());
    expect(outcomes.sort()).toEqual(
      [
        'tool.called',
        'tool.called',
        'tool.failed execution_error',
        'tool.failed execution_error',
        'tool.failed not_found',
        'tool.failed permission_denied',
        'tool.input_invalid',
      ].sort(),
    );
  });

  // Promise 04.18: A loop of tool calls ends at the call limit with a valid history.
  it('stops after the allowed number of model calls with a valid history', async () => {
    const t = await startEngine({
      config: { turn: { max_llm_calls: 3, max_output_tokens: 4096, timeout_seconds: null } },
      scenario: scenario([
        { match: { turn: 1 }, times: 'inf', respond: { tool_calls: [call('list_files', {})] } },
        { match: { turn: 2 }, respond: { text: 'fine' } },
      ]),
    });
    const session = await t.session();
    const turn = await t.run(session, 'go');
    expect(turn).toMatchObject({ status: 'completed', stop_reason: 'tool_use', llm_call_count: 3, tool_call_count: 3 });
    expect((await t.engine.store.messages.history(session.id)).at(-1)!.role).toBe('tool');
    expect((await t.run(session, 'next')).output).toBe('fine');
  });

  it('answers calls that a token limit cut off, so that the next turn starts clean', async () => {
    const t = await startEngine({
      scenario: scenario(planner({ text: 'cut', tool_calls: [call('list_files', {})], stop_reason: 'max_tokens' }), [
        { match: { turn: 2 }, respond: { text: 'fine' } },
      ]),
    });
    const session = await t.session();
    const turn = await t.run(session, 'go');
    expect(turn).toMatchObject({ status: 'completed', stop_reason: 'max_tokens' });
    expect((await resultsOf(t, session.id)).map((r) => r.is_error)).toEqual([true]);
    expect((await t.run(session, 'next')).output).toBe('fine');
  });
});

describe('a provider that fails', () => {
  // Promise 01.17: A provider failure ends the turn as failed, once, with the cost so far in the session.
  it('ends the turn as failed with the cost so far', async () => {
    const t = await startEngine({
      scenario: scenario(
        planner(
          { tool_calls: [call('list_files', {})], usage: { input_tokens: 1000, output_tokens: 100 } },
          { error: { error_class: 'invalid_request', status: 400 } },
        ),
      ),
    });
    const session = await t.session({ initial_active_model: 'sonnet' });
    const turn = await t.run(session, 'go');
    expect(turn).toMatchObject({
      status: 'failed',
      error_code: 'provider_error',
      error_class: 'invalid_request',
      retryable: false,
      total_cost_usd: '0.0045',
    });
    const types = t.typesOf(session.id);
    expect(types.slice(-2)).toEqual(['llm.call_failed', 'turn.failed']);
    expect(types).not.toContain('turn.completed');
    expect((await t.engine.store.sessions.view(session.id))!.cost_so_far_usd).toBe('0.0045');
  });

  // Promise 04.18: A failing provider ends the turn as failed and retryable.
  it('keeps what was streamed before the break, with its cost', async () => {
    const t = await startEngine({
      scenario: scenario(
        planner({ text: 'half an answer', chunk_chars: 4, error: { error_class: 'network', after_chunks: 2 } }),
      ),
    });
    const session = await t.session();
    const turn = await t.run(session, 'go');
    expect(turn).toMatchObject({ status: 'failed', error_class: 'network', retryable: true });
    expect(t.events.find((e) => e.type === 'llm.call_completed')!.payload).toMatchObject({
      stop_reason: 'cancelled',
      error_class: 'network',
      usage_estimated: true,
    });
    const last = (await t.engine.store.messages.history(session.id)).at(-1)!;
    expect(last.metadata.status).toBe('error');
    expect(t.rows().llm_calls).toBe(1);
  });

  it('is unavailable after five failures in a row, and says so once', async () => {
    const t = await startEngine({
      scenario: scenario([{ match: {}, times: 'inf', respond: { error: { error_class: 'other' } } }]),
    });
    const session = await t.session({ initial_active_model: 'haiku' });
    for (let i = 0; i < 5; i++) expect((await t.run(session, 'go')).status).toBe('failed');
    expect(t.events.filter((e) => e.type === 'routing.provider_unavailable').map((e) => e.payload)).toEqual([
      expect.objectContaining({ scope: 'model_specific', trigger_reason: '5_consecutive_failures' }),
    ]);
    await expect(t.submit(session, 'once more')).rejects.toMatchObject({ code: 'explicit_model_rejected' });
  });
});

describe('choosing the model', () => {
  const echo = scenario([{ match: {}, times: 'inf', respond: { text: '{{model}}' } }]);

  it('an override holds for one message and is stripped from it', async () => {
    const t = await startEngine({ scenario: echo });
    const session = await t.session({ initial_active_model: 'sonnet' });
    expect((await t.run(session, '@haiku hi')).output).toContain('haiku');
    expect((await t.run(session, 'hi')).output).toContain('sonnet');
    const texts = (await t.engine.store.messages.history(session.id))
      .filter((m) => m.role === 'user')
      .map((m) => (m.content[0]?.type === 'text' ? m.content[0].text : ''));
    expect(texts).toEqual(['hi', 'hi']);
  });

  // Promise 03.2: an override that cannot be read is refused and leaves no trace.
  it.each([
    ['@nope hi', 'unknown_alias'],
    ['@haiku', 'override_missing_body'],
  ])('%s is refused and leaves no trace', async (message, code) => {
    const t = await startEngine({ scenario: echo });
    const session = await t.session();
    const before = t.rows();
    await expect(t.submit(session, message)).rejects.toMatchObject({ code });
    expect(t.rows()).toEqual(before);
    expect((await t.run(session, 'hi')).status).toBe('completed');
  });

  // Promise 01.20: Model changes during a turn wait for its end; the last one wins, null included.
  it('a change during a turn waits for its end, and the last one wins', async () => {
    const t = await startEngine({
      scenario: scenario([{ match: {}, times: 'inf', respond: { text: '{{model}}', delay_ms: 40 } }]),
    });
    const session = await t.session({ initial_active_model: 'opus' });
    const turnId = await t.submit(session, 'one');
    expect(await patchSession(t.engine, session.id, { active_model: 'haiku' })).toMatchObject({
      swap_queued: true,
      swap_queued_until_turn: turnId,
      active_model: 'anthropic:claude-haiku-4-5',
    });
    await patchSession(t.engine, session.id, { active_model: 'sonnet' });
    expect((await t.engine.store.sessions.view(session.id))!.pending_active_model).toEqual({
      model: 'anthropic:claude-sonnet-4-6',
    });
    expect((await t.ended(turnId)).chosen_model).toContain('opus');
    expect((await t.run(session, 'two')).chosen_model).toContain('sonnet');
    const third = await t.submit(session, 'three');
    await patchSession(t.engine, session.id, { active_model: null });
    await t.ended(third);
    expect(await t.engine.store.sessions.view(session.id)).toMatchObject({
      active_model: null,
      pending_active_model: null,
    });
  });

  // Promise 02.12: A refused turn leaves its routing decision alone.
  it('never replaces an explicit choice that cannot serve: the turn is refused', async () => {
    const t = await startEngine({ scenario: echo });
    const session = await t.session({ initial_active_model: 'gpt' });
    const png = Buffer.from('89504e470d0a1a0a0000000d49484452', 'hex').toString('base64');
    const before = t.rows();
    await expect(
      t.submit(session, [
        { type: 'text', text: 'what is this?' },
        { type: 'image', source: { kind: 'base64', data: png }, media_type: 'image/png' },
      ]),
    ).rejects.toMatchObject({
      code: 'explicit_model_rejected',
      details: { source: 'manual_sticky', validation_failure: 'no_vision_support' },
    });
    expect(t.rows()).toEqual({ ...before, events: before.events! + 1 });
    const decided = t.events.at(-1)!;
    expect(decided).toMatchObject({ type: 'route.decided', parent_event_id: null });
    expect(decided.payload).toMatchObject({ chosen_model: '', refused: 'explicit_model_rejected' });
  });
});

describe('one turn at a time', () => {
  const slow = scenario([{ match: {}, times: 'inf', respond: { text: 'ok', delay_ms: 40 } }]);

  it('refuses the second of two submissions and names the first', async () => {
    const t = await startEngine({ scenario: slow });
    const session = await t.session();
    const answers = await Promise.allSettled([t.submit(session, 'a'), t.submit(session, 'b')]);
    const [won] = answers.filter((a) => a.status === 'fulfilled');
    const [lost] = answers.filter((a) => a.status === 'rejected');
    expect(won).toBeDefined();
    expect(lost).toMatchObject({ reason: { code: 'turn_in_flight' } });
    await expect(t.submit(session, 'c')).rejects.toMatchObject({
      code: 'turn_in_flight',
      details: { current_turn_id: (won as PromiseFulfilledResult<string>).value },
    });
    await t.ended((won as PromiseFulfilledResult<string>).value);
    expect(t.rows().turns).toBe(1);
  });

  it('interrupts the running turn when asked to, unless the new message is bad', async () => {
    const t = await startEngine({ scenario: slow });
    const session = await t.session();
    const first = await t.submit(session, 'a');
    await expect(t.submit(session, '', { if_busy: 'interrupt' })).rejects.toMatchObject({ code: 'validation_error' });
    await expect(t.submit(session, '@nope x', { if_busy: 'interrupt' })).rejects.toMatchObject({
      code: 'unknown_alias',
    });
    const second = await t.submit(session, 'b', { if_busy: 'interrupt' });
    expect((await t.ended(first)).status).toBe('cancelled');
    expect((await t.ended(second)).status).toBe('completed');
  });
});
