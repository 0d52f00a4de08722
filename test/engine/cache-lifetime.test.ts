import { expect, it } from 'vitest';
import { silentLogger } from '#core/ports/logger.ts';
import { createAnthropicEncoder } from '#models/wire/anthropic-request.ts';
import type { CanonicalRequest } from '#protocol/model-call.ts';
import { bodyText } from '../provider/support.ts';
import { startEngine } from '../support/engine.ts';
import { manualClock } from '../support/manual-clock.ts';
import { restart } from '../support/moments.ts';
import { delegate } from '../support/scenario.ts';
import { type Asked, answering } from '../support/windows.ts';

const MINUTE = 60_000;
const usage = {
  input_tokens: 0,
  output_tokens: 0,
  cache_creation_input_tokens: 1000,
  cache_creation_1h_input_tokens: 1000,
};

/** The lifetimes that a request's marks ask for on the wire. */
function marks(request: CanonicalRequest): string[] {
  const body = bodyText(createAnthropicEncoder({}, silentLogger)(request));
  return [...body.matchAll(/"cache_control":\{"type":"ephemeral"(?:,"ttl":"(1h)")?\}/g)].map((m) => m[1] ?? '5m');
}

// Promise 20.13: a pause of 5 minutes asks for an hour from the next call on, after a restart too; workers stay at 5 minutes; the bucket is priced.
it('a pause of 5 minutes makes a session ask for an hour from the next call on, after a restart too; its workers do not', async () => {
  const clock = manualClock();
  const asked: { provider: Asked | null } = { provider: null };
  const options = {
    scenario: { version: 1, rules: [] },
    clock,
    provider: (script: Parameters<typeof answering>[0]) => {
      asked.provider = answering(script, (request) =>
        request.caller.turn_index === 3 && !request.caller.is_worker && request.messages.at(-1)!.role === 'user'
          ? { tool_calls: [delegate('job')], usage }
          : { text: 'ok', usage },
      );
      return asked.provider;
    },
  };
  const lifetimes = () => asked.provider!.requests.map((r) => [r.caller.is_worker, [...new Set(marks(r))]]);
  const t = await startEngine(options);
  const session = await t.session();
  await t.run(session, 'one');
  clock.advance(3 * MINUTE);
  await t.run(session, 'two');
  expect(lifetimes()).toEqual([
    [false, ['5m']],
    [false, ['5m']],
  ]);
  clock.advance(5 * MINUTE);
  // 1 000 tokens written for an hour, at $30 a million.
  const third = await t.run(session, 'three');
  expect(lifetimes().slice(2)).toEqual([
    [false, ['1h']],
    [true, ['5m']],
    [false, ['1h']],
  ]);
  expect(third.total_cost_usd).toBe('0.06');

  const second = await restart(t, options);
  await second.run(session, 'four');
  expect(lifetimes()).toEqual([[false, ['1h']]]);
});
