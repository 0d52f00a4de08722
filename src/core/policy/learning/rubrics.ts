// Scores a turn by its events and by the beginning of its last answer (12 §12.5).
import type { AnyEvent, PayloadOf } from '#protocol/event.ts';
import type { Verdict } from '#protocol/learned-pattern.ts';
import type { Disposition } from '#protocol/session.ts';

export const TURN_RUBRIC = 'turn-heuristic-v1';
/** Events of a turn that the heuristic looks at. */
export const JUDGED_TYPES = [
  'llm.call_started',
  'llm.call_completed',
  'llm.call_failed',
  'tool.completed',
  'tool.failed',
  'delegate.started',
  'delegate.failed',
] as const;

/** In hundredths, so that their sum is exact. */
const ALL = 150;
const MANY_TOOL_CALLS = 20;
/** Confidence by the number of negative flags; 0.5 for more. */
const CONFIDENCE_BY_FAULTS = [0.9, 0.55];
const EMPTY = 'empty_assistant_response';
const REFUSAL = 'assistant_refusal_detected';
const CONTENT: Readonly<Record<string, number>> = { [EMPTY]: 0.4, [REFUSAL]: 0.5 };
const OPENING_LENGTH = 160;
const REFUSALS =
  /\b(i (cannot|can't) (help|assist|do that)|(i'm|i am) (unable|not able) to|i won't help|i refuse to|sorry, i (can't|cannot))\b/;

/** @param text of the turn's last assistant message, '' when there is none */
export function judgeTurn(completed: PayloadOf<'turn.completed'>, events: readonly AnyEvent[], text: string): Verdict {
  const facts = readTurnFacts(events);
  const checks: readonly (readonly [good: string, bad: string, weight: number, holds: boolean])[] = [
    ['stop_reason_clean', 'stop_reason_unclean', 25, completed.stop_reason === 'end_turn'],
    ['no_llm_failure', 'llm_call_failed', 25, !facts.call_failed],
    ['no_tool_failure', 'tool_failed', 25, !facts.tool_failed],
    ['no_tool_exit_failure', 'tool_returned_failure', 50, !facts.tool_unsuccessful],
    ['no_max_tokens_hit', 'max_tokens_hit', 15, !facts.max_tokens],
    ['tool_cycle_count_reasonable', 'tool_cycle_count_excessive', 10, completed.tool_call_count <= MANY_TOOL_CALLS],
  ];
  const flags = checks.filter(([, , , holds]) => holds).map(([good]) => good);
  const weight = checks.filter(([, , , holds]) => holds).reduce((sum, [, , points]) => sum + points, 0);
  const negative = checks.filter(([, , , holds]) => !holds).map(([, bad]) => bad);
  const content = detectContentFlag(text);
  if (content !== null) negative.push(content);
  return {
    score: (weight / ALL) * (CONTENT[content ?? ''] ?? 1),
    // Never below the confidence that a score needs to count in means: the worst turns matter most.
    confidence: CONFIDENCE_BY_FAULTS[negative.length] ?? 0.5,
    rubric_id: TURN_RUBRIC,
    rubric_version: '1.2.0',
    signals: { flags, flags_negative: negative },
  };
}

function readTurnFacts(events: readonly AnyEvent[]) {
  const listPayloads = <T extends (typeof JUDGED_TYPES)[number]>(type: T) =>
    events.filter((event) => event.type === type).map((event) => event.payload as PayloadOf<T>);
  const summaries = new Set(
    listPayloads('llm.call_started')
      .filter((call) => call.purpose === 'compaction')
      .map((call) => call.request_id),
  );
  // The outcome of a worker counts once, in the score of the session.
  const delegations = new Set(
    [...listPayloads('delegate.started'), ...listPayloads('delegate.failed')].map((call) => call.tool_use_id),
  );
  const calls = listPayloads('llm.call_completed').filter((call) => call.purpose !== 'compaction');
  return {
    call_failed:
      listPayloads('llm.call_failed').some((call) => !summaries.has(call.request_id)) ||
      calls.some((call) => call.stop_reason === 'cancelled'),
    max_tokens: calls.some((call) => call.stop_reason === 'max_tokens'),
    tool_failed: listPayloads('tool.failed').length > 0,
    tool_unsuccessful: listPayloads('tool.completed').some(
      (call) => !call.success && !delegations.has(call.tool_use_id),
    ),
  };
}

function detectContentFlag(text: string): string | null {
  const opening = text.trim().slice(0, OPENING_LENGTH).toLowerCase().replaceAll(/[‘’]/g, "'");
  if (opening === '') return EMPTY;
  if (REFUSALS.test(opening)) return REFUSAL;
  return null;
}

// Scores a session by its turns' scores, its end, and its failed delegations (12 §12.5).

export const SESSION_RUBRIC = 'session-aggregate-v1';

/** On one turn. */
export interface TurnVerdict {
  readonly eval_id: string;
  readonly score: number;
}

interface SessionFacts {
  readonly disposition: Disposition;
  /** Verdicts on the session's own turns, ascending, without its workers' turns. */
  readonly turns: readonly TurnVerdict[];
  /** Without cancelled ones. */
  readonly delegations_total: number;
  readonly delegations_failed: number;
}

/** Without any turn. */
const UNKNOWN = 0.5;
/** Named in an event, the newest ones. */
const MAX_NAMED = 100;

export function judgeSession({ disposition, turns, delegations_total, delegations_failed }: SessionFacts): Verdict {
  const { mean, min } = summariseScores(turns.map(({ score }) => score));
  const completed = disposition === 'completed';
  const base = 0.5 * mean + 0.3 * min + 0.2 * Number(completed);
  const failed = delegations_total === 0 ? 0 : delegations_failed / delegations_total;
  const checks: readonly (readonly [good: string, bad: string, holds: boolean])[] = [
    ['completed', 'not_completed', completed],
    ['no_delegation_failed', 'delegation_failed', failed === 0],
  ];
  return {
    score: base * (1 - 0.4 * failed),
    confidence: turns.length > 0 ? 0.7 : 0.4,
    rubric_id: SESSION_RUBRIC,
    rubric_version: '1.1.0',
    signals: {
      flags: checks.filter(([, , holds]) => holds).map(([good]) => good),
      flags_negative: checks.filter(([, , holds]) => !holds).map(([, bad]) => bad),
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

function summariseScores(scores: readonly number[]): { readonly mean: number; readonly min: number } {
  if (scores.length === 0) return { mean: UNKNOWN, min: UNKNOWN };
  const mean = scores.reduce((sum, score) => sum + score, 0) / scores.length;
  return { mean, min: scores.reduce((least, score) => Math.min(least, score)) };
}
