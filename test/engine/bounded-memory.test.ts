// What an engine remembers beside its store is bounded: the oldest makes room.
import { expect, it } from 'vitest';
import { stampUsage } from '#core/engine/money/stamp-usage.ts';
import { createOutsideRuns } from '#core/engine/state/delegation-runs.ts';
import {
  createRouteMemory,
  noteStart,
  rememberWorkspace,
  type SessionStarts,
  secondsSince,
} from '#core/engine/state/memory.ts';
import { findUnreported, markReported, type PolicyLayer, UNREAD } from '#core/policy/routing/policy-layers.ts';
import type { SessionId, ToolUseId } from '#protocol/ids.ts';
import { NO_TOKENS } from '#protocol/usage.ts';
import { type LogLine, recordingLogger } from '../store/suite/world.ts';
import { startEngine } from '../support/engine.ts';
import { manualClock } from '../support/manual-clock.ts';
import { gate } from '../support/moments.ts';
import { until } from '../support/until.ts';

const session = (n: number) => `s${n}` as SessionId;

it('1,000 workspaces have their routing files remembered, the one used last stays', () => {
  const memory = createRouteMemory();
  for (let n = 0; n < 1000; n += 1) rememberWorkspace(memory, `/w${n}`, UNREAD);
  rememberWorkspace(memory, '/w0', UNREAD);
  expect([memory.workspaces.size, memory.workspaces.has('/w1')]).toEqual([1000, true]);
  rememberWorkspace(memory, '/w1000', UNREAD);
  const known = (n: number) => memory.workspaces.has(`/w${n}`);
  expect([memory.workspaces.size, known(0), known(1), known(2), known(1000)]).toEqual([1000, true, false, true, true]);
});

it('1,000 trees are remembered that have the fault of a routing file in their log', () => {
  const report = { policy_path: 'x', errors: [], using_last_known_good: false };
  let layer: PolicyLayer = { ...UNREAD, fault: { digest: 'd', report, reported_to: new Set() } };
  for (let n = 0; n < 1000; n += 1) layer = markReported(layer, session(n));
  expect(findUnreported(layer, session(0))).toBeNull();
  layer = markReported(layer, session(1000));
  expect([findUnreported(layer, session(0)), findUnreported(layer, session(1)), layer.fault!.reported_to.size]).toEqual(
    [report, null, 1000],
  );
});

it('10,000 sessions have their start by the monotonic clock, an older one by the wall clock', () => {
  const clock = manualClock();
  const starts: SessionStarts = new Map();
  const createdAt = clock.now();
  clock.advance(5000);
  for (let n = 0; n < 10_000; n += 1) noteStart({ starts, clock }, session(n));
  const seconds = (n: number) => secondsSince({ starts, clock }, session(n), createdAt);
  expect(seconds(0)).toBe(0);
  noteStart({ starts, clock }, session(10_000));
  expect([starts.size, seconds(0), seconds(1)]).toEqual([10_000, 5, 0]);
});

it('1,000 models without a price are logged once each, an older one again', async () => {
  const lines: LogLine[] = [];
  const t = await startEngine({ log: recordingLogger(lines), scenario: { version: 1, rules: [] } });
  const haiku = t.engine.registry.get('anthropic:claude-haiku-4-5')!;
  const call = (n: number) => {
    const id = `anthropic:m${n}`;
    stampUsage(t.engine, { ...haiku, id, pricing_id: id }, NO_TOKENS, {
      served: null,
      latency: 0,
      where: {},
      bill: null,
      prices: null,
    });
  };
  const logged = () => lines.filter((line) => JSON.stringify(line).includes('no price for this model')).length;
  for (const _ of [1, 2]) for (let n = 0; n < 1000; n += 1) call(n);
  expect([logged(), t.engine.unpriced.size]).toEqual([1000, 1000]);
  call(1000);
  call(1);
  expect([logged(), t.engine.unpriced.size]).toEqual([1001, 1000]);
  call(0);
  expect([logged(), t.engine.unpriced.size]).toEqual([1002, 1000]);
});

it('the places of a session are remembered while a delegation of it runs', async () => {
  const outside = createOutsideRuns(1);
  const ended = [gate(), gate()];
  const before = outside.getSlots(session(1));
  for (const [n, { opened }] of ended.entries())
    outside.add({
      session_id: session(1),
      root_session_id: session(1),
      tool_use_id: `tu_${n}` as ToolUseId,
      scope: new AbortController(),
      done: opened,
    });
  ended[0]!.open();
  await until(() => outside.get('tu_0') === null);
  expect(outside.getSlots(session(1))).toBe(before);
  ended[1]!.open();
  await outside.whenIdle();
  expect(outside.getSlots(session(1))).not.toBe(before);
});
