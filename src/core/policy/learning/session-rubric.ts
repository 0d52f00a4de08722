// How well a session went: its turns' verdicts, its end, and how many of its delegations failed (12 §12.5).
import type { Verdict } from '#protocol/learning/pattern.ts';
import type { Disposition } from '#protocol/session.ts';

export const SESSION_RUBRIC = 'session-aggregate-v1';

/** On one turn. */
export interface TurnVerdict {
  readonly eval_id: string;
  readonly score: number;
}

export interface SessionFacts {
  readonly disposition: Disposition;
  /** Of its own turns, ascending; never those of its workers. */
  readonly turns: readonly TurnVerdict[];
  /** Without those that somebody cancelled. */
  readonly delegations_total: number;
  readonly delegations_failed: number;
}

/** Without any turn. */
const UNKNOWN = 0.5;
/** Named in an event, the newest ones. */
const MAX_NAMED = 100;

export function judgeSession({ disposition, turns, delegations_total, delegations_failed }: SessionFacts): Verdict {
  const scores = turns.map(({ score }) => score);
  const judged = scores.length > 0;
  const mean = judged ? scores.reduce((sum, score) => sum + score, 0) / scores.length : UNKNOWN;
  const min = judged ? scores.reduce((least, score) => Math.min(least, score)) : UNKNOWN;
  const base = 0.5 * mean + 0.3 * min + (disposition === 'completed' ? 0.2 : 0);
  const failed = delegations_total === 0 ? 0 : delegations_failed / delegations_total;
  return {
    score: base * (1 - 0.4 * failed),
    confidence: judged ? 0.7 : 0.4,
    rubric_id: SESSION_RUBRIC,
    rubric_version: '1.1.0',
    signals: {
      flags: [...(disposition === 'completed' ? ['completed'] : []), ...(failed === 0 ? ['no_delegation_failed'] : [])],
      flags_negative: [
        ...(disposition === 'completed' ? [] : ['not_completed']),
        ...(failed === 0 ? [] : ['delegation_failed']),
      ],
      child_eval_ids: turns.slice(-MAX_NAMED).map(({ eval_id }) => eval_id),
      mean_turn_score: mean,
      min_turn_score: min,
      turn_count: turns.length,
      disposition,
      delegations_total,
      delegations_failed,
    },
  };
}
