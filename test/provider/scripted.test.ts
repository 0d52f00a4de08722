// The scripted provider: matching, streaming, errors, cancellation, and a scenario file that is refused (11.11).
import { describe, expect, test } from 'vitest';
import { parseScenario } from '#models/scripted/scenario.ts';
import { adapterOf, drain, fakeClock, request, toolMessage, user, workerCaller } from './support.ts';

const scenario = (yaml: string) => `version: 1\n${yaml}`;

describe('streaming', () => {
  test('thinking, text and tool calls come in that order, each folding to its block', async () => {
    const adapter = adapterOf(
      scenario(`rules:
  - respond:
      thinking: let me think about this for a while
      text: I will read {{last_user_text}}
      tool_calls:
        - { name: read_file, input: { path: "{{last_user_text}}", deep: [{ m: "{{model}}" }] } }
        - { name: list, input: {} }
`),
    );
    const { events, error } = await drain(adapter, request({ messages: [user('a.ts')] }));
    expect(error).toBeNull();
    const complete = events.at(-1)!;
    expect(complete).toMatchObject({
      type: 'message.complete',
      stop_reason: 'tool_use',
      final_content: [
        { type: 'thinking', text: 'let me think about this for a while', signature: null },
        { type: 'text', text: 'I will read a.ts' },
        { type: 'tool_use', name: 'read_file', input: { path: 'a.ts', deep: [{ m: 'scripted:deep' }] } },
        { type: 'tool_use', name: 'list', input: {} },
      ],
      served_model: 'scripted:deep',
      retry_count: 0,
    });
    expect(events[0]!.type).toBe('message.start');
    expect(events.filter((e) => e.type === 'tool.use_start')).toHaveLength(2);
  });

  test('missing counts are computed and not marked as estimates; given counts are kept', async () => {
    const plain = await drain(adapterOf(scenario('rules: [{ respond: { text: "12345678901234567" } }]')), request());
    expect(plain.complete!.usage).toMatchObject({ input_tokens: 1, output_tokens: 5, usage_estimated: false });
    const given = await drain(
      adapterOf(
        scenario(
          'defaults: { usage: { input_tokens: 900, cached_input_tokens: 40 } }\nrules: [{ respond: { text: hi } }]',
        ),
      ),
      request(),
    );
    expect(given.complete!.usage).toMatchObject({ input_tokens: 900, cached_input_tokens: 40, output_tokens: 1 });
  });

  // Promise 11.20: a scenario is deterministic.
  test('the same scenario twice gives the same events except ids', async () => {
    const yaml = scenario(
      'rules: [{ times: inf, respond: { text: "hello there, this is some text", chunk_chars: 5, tool_calls: [{ name: a }] } }]',
    );
    const strip = (events: readonly object[]) =>
      events.map((e) => JSON.stringify(e).replace(/"(message_id|tool_use_id|id)":"[^"]*"/g, ''));
    const one = await drain(adapterOf(yaml, { clock: fakeClock() }), request());
    const two = await drain(adapterOf(yaml, { clock: fakeClock() }), request());
    expect(strip(one.events)).toEqual(strip(two.events));
  });

  test('delays run on the injected clock', async () => {
    const clock = fakeClock();
    const adapter = adapterOf(
      scenario('rules: [{ respond: { text: "aaaabbbb", chunk_chars: 4, delay_ms: 1000, chunk_delay_ms: 500 } }]'),
      { clock },
    );
    const running = drain(adapter, request());
    await clock.advance(1000);
    await clock.advance(499);
    expect(clock.pending()).toBeGreaterThan(0);
    await clock.advance(1);
    const { complete } = await running;
    expect(complete!.latency_ms).toBe(1500);
  });
});

describe('matching', () => {
  const rules = scenario(`strict: true
rules:
  - { id: t2, match: { turn: 2 }, respond: { text: turn two } }
  - { id: glob, match: { model: "openrouter:*" }, respond: { text: globbed } }
  - { id: tool, match: { has_tool: delegate, call: 1 }, respond: { text: can delegate } }
  - { id: result, match: { tool_result_contains: exit 1 }, times: inf, respond: { text: "saw {{last_tool_result}}" } }
  - { id: worker, match: { role: worker, user_contains: alpha }, times: inf, respond: { text: worker alpha } }
  - { id: list, match: { user_contains: list }, responses: [{ text: one }, { text: two }] }
  - { id: once, match: { user_contains: once }, respond: { text: first } }
`);
  const answer = async (adapter: ReturnType<typeof adapterOf>, over: Parameters<typeof request>[0]) => {
    const { complete, error } = await drain(adapter, request(over));
    const block = complete?.final_content[0];
    return block?.type === 'text' ? block.text : `${error?.error_class}/${error?.error_detail}`;
  };

  test('every key of match narrows, the first rule in file order wins, uses run out', async () => {
    const adapter = adapterOf(rules);
    expect(await answer(adapter, { turn: 2 })).toBe('turn two');
    expect(await answer(adapter, { turn: 2 })).toBe('turn two');
    expect(await answer(adapter, { model: 'openrouter:vendor/name' })).toBe('globbed');
    expect(await answer(adapter, { model: 'openrouter:vendor/name', messages: [user('x')] })).toBe(
      'invalid_request/scripted_no_match',
    );
    expect(await answer(adapter, { tools: ['delegate'] })).toBe('can delegate');
    expect(await answer(adapter, { messages: [user('go'), toolMessage('exit 1')] })).toBe('saw exit 1');
    // What the server tells the model about its budget is no part of the result.
    const told = 'exit 1\n[budget warning: $0.1 of $1 left]\n[budget: $0.1 of $1 left]';
    expect(await answer(adapter, { messages: [user('go'), toolMessage(told)] })).toBe('saw exit 1');
    expect(await answer(adapter, { messages: [user('list')] })).toBe('one');
    expect(await answer(adapter, { messages: [user('list')] })).toBe('two');
    expect(await answer(adapter, { messages: [user('list')] })).toBe('invalid_request/scripted_no_match');
    expect(await answer(adapter, { messages: [user('once')] })).toBe('first');
    expect(await answer(adapter, { messages: [user('once')] })).toBe('invalid_request/scripted_no_match');
  });

  // Promise 11.20: parallel workers are told apart in either order.
  test('a worker is told apart by the task in its system text, in whatever order workers run', async () => {
    const yaml = scenario(`rules:
  - { match: { role: worker, user_contains: rename }, respond: { text: renamed } }
  - { match: { role: worker, user_contains: delete }, respond: { text: deleted } }
`);
    const worker = (task: string) => request({ caller: workerCaller, volatile: `## Task\n${task}` });
    for (const order of [
      ['rename', 'delete'],
      ['delete', 'rename'],
    ]) {
      const adapter = adapterOf(yaml);
      const texts = await Promise.all(order.map(async (t) => (await drain(adapter, worker(`please ${t} it`))).text));
      expect(texts).toEqual(order.map((t) => `${t}d`));
    }
  });

  // Promise 11.20: an unmatched request fails.
  test('a request without a rule fails with its role, turn, call, model and the head of its text', async () => {
    const { error } = await drain(adapterOf(scenario('rules: []')), request({ messages: [user('x'.repeat(200))] }));
    expect(error).toMatchObject({ error_class: 'invalid_request', error_detail: 'scripted_no_match', retry_count: 0 });
    expect(error!.message).toContain('role planner, turn 1, call 1, model scripted:deep');
    expect(error!.message).toContain('x'.repeat(80));
    expect(error!.message).not.toContain('x'.repeat(81));
  });

  test('without strict the fallback answers', async () => {
    expect((await drain(adapterOf(scenario('strict: false')), request())).text).toBe('[scripted] no rule matched');
    expect((await drain(adapterOf(scenario('strict: false\nfallback: { text: own }')), request())).text).toBe('own');
  });
});

describe('failures', () => {
  // Promise 11.20: fails once, then succeeds.
  test('an error rule and then a normal one: one retry, then the answer', async () => {
    const clock = fakeClock();
    const adapter = adapterOf(
      scenario(
        'rules: [{ respond: { error: { error_class: rate_limit, retry_after_seconds: 7 } } }, { respond: { text: fine } }]',
      ),
      { clock },
    );
    const running = drain(adapter, request());
    await clock.advance(6999);
    expect(adapter.requests).toHaveLength(1);
    await clock.advance(1);
    const { complete, text } = await running;
    expect(text).toBe('fine');
    expect(complete!.retry_count).toBe(1);
    expect(adapter.requests).toHaveLength(2);
  });

  test('an error after some deltas closes the message and is not retried', async () => {
    const adapter = adapterOf(
      scenario(
        'rules: [{ respond: { text: "abcdefgh", chunk_chars: 2, error: { error_class: server_error, after_chunks: 2 } } }]',
      ),
    );
    const { complete, error, text } = await drain(adapter, request());
    expect(text).toBe('abcd');
    expect(complete).toMatchObject({ stop_reason: 'error', usage: { output_tokens: 1, usage_estimated: true } });
    expect(error).toMatchObject({ error_class: 'server_error', retry_count: 0 });
    expect(adapter.requests).toHaveLength(1);
  });

  // Promise 11.20: a hanging answer can be cancelled.
  test('hang and cancel: the message is closed as cancelled; without content only the error comes', async () => {
    const silent = adapterOf(scenario('rules: [{ respond: { hang: true } }]'));
    const abort = new AbortController();
    const running = drain(silent, request(), abort.signal);
    setImmediate(() => abort.abort());
    const cancelled = await running;
    expect(cancelled.events).toEqual([]);
    expect(cancelled.error).toMatchObject({ error_class: 'cancelled', usage: null });

    const speaking = adapterOf(scenario('rules: [{ respond: { text: abc, hang: true } }]'));
    const second = new AbortController();
    const after = await drain(speaking, request(), second.signal, (e) => {
      if (e.type === 'text.delta') setImmediate(() => second.abort());
    });
    expect(after.complete).toMatchObject({ stop_reason: 'cancelled', final_content: [{ type: 'text', text: 'abc' }] });
    expect(after.error).toMatchObject({ error_class: 'cancelled' });
  });

  test('a hang ends in an idle timeout on the clock', async () => {
    const clock = fakeClock();
    const adapter = adapterOf(scenario('rules: [{ respond: { text: abc, hang: true } }]'), { clock });
    const running = drain(adapter, request());
    await clock.advance(120_000);
    expect((await running).error).toMatchObject({ error_class: 'network', error_detail: 'timeout_idle' });
  });

  test('at most 1 000 requests are kept', async () => {
    const adapter = adapterOf(scenario('rules: [{ times: inf, respond: { text: a } }]'));
    for (let i = 0; i < 1001; i++) await drain(adapter, request({ turn: i + 1 }));
    expect(adapter.requests).toHaveLength(1000);
    expect(adapter.requests[0]!.caller.turn_index).toBe(2);
  });
});

describe('a scenario file', () => {
  const problems = (text: string) => {
    const parsed = parseScenario(text, 'demo.yaml');
    return parsed.ok ? [] : parsed.error;
  };
  test.each([
    ['bad YAML', 'version: 1\nrules: [', /demo\.yaml: .*line/],
    ['no version', 'rules: []', /demo\.yaml: version/],
    [
      'an unknown key',
      'version: 1\nrules: [{ id: start, respond: { txt: a } }]',
      /demo\.yaml: rules\[0\] \(start\)\.respond\.txt: unknown key/,
    ],
    [
      'an unknown placeholder',
      'version: 1\nrules: [{ respond: { text: "{{nope}}" } }]',
      /demo\.yaml: rules\[0\] \(rule-1\): unknown placeholder \{\{nope\}\}/,
    ],
    [
      'an unknown placeholder in an input',
      'version: 1\nrules: [{ id: a, respond: { tool_calls: [{ name: t, input: { p: ["{{x}}"] } }] } }]',
      /\(a\): unknown placeholder \{\{x\}\}/,
    ],
    [
      'an id used twice',
      'version: 1\nrules: [{ id: a, respond: {} }, { id: a, respond: {} }]',
      /rules\[1\] \(a\): the id is used twice/,
    ],
    [
      'a rule without a response',
      'version: 1\nrules: [{ id: a }]',
      /rules\[0\] \(a\): needs either respond or responses/,
    ],
    [
      'an unknown error class',
      'version: 1\nrules: [{ respond: { error: { error_class: oops } } }]',
      /rules\[0\] \(rule-1\)\.respond\.error\.error_class/,
    ],
    [
      'times beside responses',
      'version: 1\nrules: [{ times: 2, responses: [{ text: a }] }]',
      /rules\[0\] \(rule-1\)\.times/,
    ],
  ])('with %s is refused, naming file and place', (_, text, expected) => {
    expect(problems(text)).toEqual([expect.stringMatching(expected)]);
  });
  test('may be JSON', () => {
    expect(problems('{"version": 1, "rules": [{"respond": {"text": "a"}}]}')).toEqual([]);
  });
});
