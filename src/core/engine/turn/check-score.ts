// The verdict of a check on a turn, in the place of what the heuristics found (12 §12.6, 20 §10).
import { draft, type EventDraft } from '#protocol/event.ts';
import type { SessionId, TurnId } from '#protocol/ids.ts';
import { CHECK_RUBRIC } from '#protocol/learned-pattern.ts';
import type { Runtime } from '../state/engine.ts';

/** @param judged `score` 0..1; `parent` as in a draft, null = none */
export function draftCheckScore(
  { ids }: Pick<Runtime, 'ids'>,
  judged: {
    readonly session_id: SessionId;
    readonly turn_id: TurnId;
    readonly score: number;
    readonly parent: EventDraft['parent'];
  },
): EventDraft {
  const { session_id, turn_id, score, parent } = judged;
  return draft({
    type: 'eval.completed',
    session_id,
    turn_id,
    parent,
    payload: {
      eval_id: ids.next(),
      subject_kind: 'turn',
      subject_id: turn_id,
      rubric_id: CHECK_RUBRIC,
      rubric_version: '1.0.0',
      score,
      confidence: 1,
      signals: { source: 'check' },
    },
  });
}
