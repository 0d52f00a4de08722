// Verdicts on turns and sessions, with the chapter's worked numbers (12 §12.5).
import { describe, expect, it } from 'vitest';
import { judgeSession, judgeTurn } from '#core/policy/learning/rubrics.ts';
import type { AnyEvent } from '#protocol/event.ts';

type Completed = Parameters<typeof judgeTurn>[0];
const completed = (over: Partial<Completed> = {}) =>
  ({ stop_reason: 'end_turn', tool_call_count: 1, ...over }) as Completed;
const event = (type: string, payload: object) => ({ type, payload }) as AnyEvent;
const call = (over: object = {}) =>
  event('llm.call_completed', { purpose: 'turn', stop_reason: 'end_turn', request_id: 'r', ...over });
const done = (success: boolean) => event('tool.completed', { tool_use_id: 'tu', success });
const judge = (events: readonly AnyEvent[], text = 'Done.', over: Partial<Completed> = {}) =>
  judgeTurn(completed(over), events, text);

describe('a turn', () => {
  // Promise 12.10: a clean turn.
  it('that is clean gets 1.0 with confidence 0.9', () => {
    expect(judge([call()])).toMatchObject({ score: 1, confidence: 0.9, rubric_id: 'turn-heuristic-v1' });
    expect(judge([call()]).signals.flags_negative).toEqual([]);
  });

  // Promise 12.10: failures, refusals, an empty text, max_tokens.
  it.each([
    {
      of: 'one shell exit failure',
      events: [done(false)],
      score: 2 / 3,
      confidence: 0.55,
      flags: ['tool_returned_failure'],
    },
    {
      of: 'a refusal',
      text: "I'm unable to do that",
      score: 0.5,
      confidence: 0.55,
      flags: ['assistant_refusal_detected'],
    },
    {
      of: 'a refusal as it is typeset',
      text: 'Sorry, I can’t.',
      score: 0.5,
      confidence: 0.55,
      flags: ['assistant_refusal_detected'],
    },
    { of: 'no text', text: ' \n', score: 0.4, confidence: 0.55, flags: ['empty_assistant_response'] },
    {
      of: 'an end by max_tokens',
      events: [call({ stop_reason: 'max_tokens' })],
      over: { stop_reason: 'max_tokens' as const },
      score: 11 / 15,
      confidence: 0.5,
      flags: ['stop_reason_unclean', 'max_tokens_hit'],
    },
    { of: 'a failed tool', events: [event('tool.failed', {})], score: 5 / 6, confidence: 0.55, flags: ['tool_failed'] },
    {
      of: 'a failed call',
      events: [event('llm.call_failed', { request_id: 'r' })],
      score: 5 / 6,
      confidence: 0.55,
      flags: ['llm_call_failed'],
    },
    {
      of: 'a cut call',
      events: [call({ stop_reason: 'cancelled' })],
      score: 5 / 6,
      confidence: 0.55,
      flags: ['llm_call_failed'],
    },
    {
      of: '21 tool calls',
      over: { tool_call_count: 21 },
      score: 14 / 15,
      confidence: 0.55,
      flags: ['tool_cycle_count_excessive'],
    },
  ])('with $of gets what the chapter says', ({ events = [call()], text, over, score, confidence, flags }) => {
    const verdict = judge(events, text, over);
    expect(verdict.score).toBeCloseTo(score, 12);
    expect(verdict).toMatchObject({ confidence, signals: { flags_negative: flags } });
  });

  it('whose delegate call failed stays at 1.0, for the session counts it', () => {
    const events = [
      event('delegate.failed', { tool_use_id: 'tu_1' }),
      event('tool.completed', { tool_use_id: 'tu_1', success: false }),
    ];
    expect(judge(events).score).toBe(1);
    expect(judge([...events, event('tool.completed', { tool_use_id: 'tu_2', success: false })]).score).toBeCloseTo(
      2 / 3,
      12,
    );
  });

  // Promise 12.17: a failed summary leaves the score.
  it('is not judged by its summary calls', () => {
    const summary = [
      event('llm.call_started', { request_id: 's', purpose: 'compaction' }),
      event('llm.call_failed', { request_id: 's' }),
      call({ purpose: 'compaction', stop_reason: 'max_tokens' }),
    ];
    expect(judge(summary)).toMatchObject({ score: 1, confidence: 0.9 });
  });

  it('that speaks of refusals later, or of others, refuses nothing', () => {
    expect(judge([], `${'All is well. '.repeat(20)} I cannot help`).score).toBe(1);
    expect(judge([], 'The parser is unable to do that').score).toBe(1);
  });

  it('leaves no text of its messages in the verdict', () => {
    expect(JSON.stringify(judge([], 'a secret answer'))).not.toContain('secret');
  });
});

describe('a session', () => {
  const ones = [1, 1].map((score, n) => ({ eval_id: `e${n}`, score }));
  const judged = (over: Partial<Parameters<typeof judgeSession>[0]> = {}) =>
    judgeSession({ disposition: 'completed', turns: ones, delegations_total: 0, delegations_failed: 0, ...over });

  // Promise 12.11: the session rubric's numbers.
  it.each([
    ['without delegations', {}, 1],
    ['with four that succeeded', { delegations_total: 4 }, 1],
    ['with three of four failed', { delegations_total: 4, delegations_failed: 3 }, 0.7],
    ['that failed', { disposition: 'failed' as const }, 0.8],
    [
      'with one bad turn of two',
      {
        turns: [
          { eval_id: 'a', score: 1 },
          { eval_id: 'b', score: 0.4 },
        ],
      },
      0.35 + 0.12 + 0.2,
    ],
  ])('%s gets what the chapter says', (_, over, score) => {
    expect(judged(over).score).toBeCloseTo(score, 12);
    expect(judged(over).confidence).toBe(0.7);
  });

  it('without verdicts stands in the middle, with little confidence', () => {
    expect(judged({ turns: [] })).toMatchObject({ score: expect.closeTo(0.6, 12), confidence: 0.4 });
  });

  it('names the verdicts it rests on, a bounded number of them', () => {
    const turns = Array.from({ length: 5000 }, (_, n) => ({ eval_id: `e${n}`, score: 1 }));
    expect(judged().signals).toMatchObject({ child_eval_ids: ['e0', 'e1'], turn_count: 2 });
    expect(judged({ turns }).signals.child_eval_ids).toHaveLength(100);
  });
});
