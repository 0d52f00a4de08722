// What the gateway keeps in memory is bounded, and what is in use stays (19 §2.4).
import { expect, test } from 'vitest';
import {
  createGatewayMemory,
  keepCount,
  keepDecision,
  readDecision,
  type StandingDecision,
} from '#core/engine/state/gateway-memory.ts';
import type { SessionId } from '#protocol/ids.ts';

const session = (n: number) => `s${n}` as SessionId;
const decision = (n: number) => ({ root_session_id: session(n) }) as StandingDecision;

// Promise 19.30: decisions are evicted by use.
test('a decision in use outlives 4 096 newer sessions, one that is not goes first', () => {
  const memory = createGatewayMemory();
  for (let n = 0; n < 4096; n++) keepDecision(memory, session(n), 'opus', decision(n));
  for (let n = 4096; n < 12_000; n++) {
    expect(readDecision(memory, session(0), 'opus')).toEqual(decision(0));
    keepDecision(memory, session(n), 'opus', decision(n));
  }
  expect(readDecision(memory, session(1), 'opus')).toBeNull();
  expect(memory.decisions.size).toBe(4096);
});

test('the name that a session asks for most recently stays among its 64', () => {
  const memory = createGatewayMemory();
  for (let n = 0; n < 200; n++) {
    keepDecision(memory, session(0), `m${n}`, decision(n));
    expect(readDecision(memory, session(0), 'm0')).toEqual(decision(0));
  }
  expect(memory.decisions.get(session(0))!.size).toBe(64);
  expect(readDecision(memory, session(0), 'm1')).toBeNull();
});

// Promise 19.30: counters are evicted by use.
test('a count in use outlives 4 096 newer ones', () => {
  const memory = createGatewayMemory();
  for (let n = 0; n < 12_000; n++) {
    keepCount(memory, session(n), 1);
    keepCount(memory, session(0), n);
  }
  expect([memory.counts.get(session(0)), memory.counts.get(session(1)), memory.counts.size]).toEqual([
    11_999,
    undefined,
    4096,
  ]);
});
