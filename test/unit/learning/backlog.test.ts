// What waits to be learned: bounded, and what it drops is said (12 §12.3).
import { describe, expect, it } from 'vitest';
import { createBacklog } from '#core/learning/learning-loop.ts';
import type { Published } from '#core/ports/live-bus.ts';

let ids = 0;
function event(type: string, turn_id: string | null, payload: object = {}): Published {
  ids += 1;
  return {
    kind: 'event',
    event: { id: String(ids), type, turn_id, session_id: 's', payload },
    payload_json: '',
  } as never;
}
const answer = (turn_id: string, text: string): Published =>
  ({
    kind: 'transient',
    transient: {
      turn_id,
      session_id: 's',
      delta: { type: 'message.complete', payload: { message_id: text, final_content: [{ type: 'text', text }] } },
    },
  }) as never;
function started(isReread = true) {
  const backlog = createBacklog(() => {}, isReread);
  expect(backlog.takeLoss()).toBe(true);
  return backlog;
}

describe('the backlog', () => {
  it('hands out what teaches with what was seen of the turn, and leaves out the loop’s own verdicts', () => {
    const backlog = started();
    backlog.receive([event('turn.started', 'a'), event('llm.call_started', 'a'), answer('a', 'first')]);
    backlog.receive([event('tool.called', 'a'), answer('a', 'last'), event('llm.call_completed', 'a')]);
    backlog.receive([event('turn.completed', 'a'), event('turn.completed', 'from before')]);
    backlog.receive([event('eval.completed', 'a', { rubric_id: 'turn-heuristic-v1' })]);
    backlog.receive([event('eval.completed', 'a', { rubric_id: 'user-score-v1' }), event('session.ended', null)]);
    const taken = backlog.take(10);
    expect(taken.map((one) => [one.event.type, one.seen?.events.map(({ type }) => type) ?? null])).toEqual([
      ['turn.completed', ['llm.call_started', 'llm.call_completed']],
      ['turn.completed', null],
      ['eval.completed', null],
      ['session.ended', null],
    ]);
    expect(taken[0]!.seen!.answer).toEqual({ message_id: 'last', text: 'last' });
    expect(backlog.size()).toBe(0);
  });

  it('that is full drops what waits and says so, once', () => {
    const backlog = started();
    for (let n = 0; n < 1000; n += 1) backlog.receive([event('turn.completed', `t${n}`)]);
    expect([backlog.size(), backlog.takeLoss()]).toEqual([1000, false]);
    for (let n = 0; n < 50; n += 1) backlog.receive([event('turn.completed', `u${n}`)]);
    expect([backlog.size(), backlog.takeLoss(), backlog.takeLoss()]).toEqual([0, true, false]);
    backlog.receive([event('turn.completed', 'v')]);
    expect(backlog.take(10).map((one) => one.event.turn_id)).toEqual(['v']);
  });

  it('that is full keeps what waits where the journal is not read again, and takes more once there is room', () => {
    const backlog = started(false);
    for (let n = 0; n < 1050; n += 1) backlog.receive([event('turn.completed', `t${n}`)]);
    expect([backlog.size(), backlog.takeLoss(), backlog.takeLoss()]).toEqual([1000, true, false]);
    expect(backlog.take(2).map((one) => one.event.turn_id)).toEqual(['t0', 't1']);
    backlog.receive([event('turn.completed', 'v')]);
    expect(backlog.take(1000).at(-1)!.event.turn_id).toBe('v');
  });

  it('keeps nothing of turns that are too many, too long or over', () => {
    const backlog = started();
    const seen = (turn: string) => {
      backlog.receive([event('turn.completed', turn)]);
      return backlog.take(1)[0]!.seen;
    };
    for (let n = 0; n < 1001; n += 1) backlog.receive([event('turn.started', `t${n}`)]);
    expect([seen('t0'), seen('t1')]).toEqual([null, { events: [], answer: null }]);
    for (let n = 0; n < 201; n += 1) backlog.receive([event('tool.completed', 't2')]);
    expect(seen('t2')).toBeNull();
    backlog.receive([event('turn.failed', 't3')]);
    expect(seen('t3')).toBeNull();
    expect(seen('t1')).toBeNull();
  });
});
