// What the workers are asked for: it lives in the address, as the cost view's does.
import { type Place, placeOf } from '#dashboard/shell/place.ts';
import { RANGES, type Range } from '../cost/cost-question.ts';

/** Those of the reports that need no dates. */
export const WORKER_RANGES = RANGES.filter(({ value }) => value !== 'custom');
const DEFAULT_RANGE: Range = '30d';

export interface WorkerQuestion {
  /** Null: that of the newest session. */
  readonly workspace: string | null;
  /** Whose own workers are shown beside the project's. */
  readonly session: string | null;
  readonly range: Range;
}

export function workerQuestionOf({ query }: Place): WorkerQuestion {
  const range = WORKER_RANGES.find(({ value }) => value === query.get('range'))?.value ?? DEFAULT_RANGE;
  return { workspace: query.get('workspace'), session: query.get('session'), range };
}

/** Of the list, or of one worker. */
export function placeOfWorkers(question: WorkerQuestion, name?: string): string {
  const query = new URLSearchParams();
  if (question.workspace !== null) query.set('workspace', question.workspace);
  if (question.session !== null) query.set('session', question.session);
  if (question.range !== DEFAULT_RANGE) query.set('range', question.range);
  const path = name === undefined ? placeOf('workers') : placeOf('workers', name);
  return query.size === 0 ? path : `${path}?${query}`;
}
