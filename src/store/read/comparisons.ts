// What a session and its workers did and cost within a range of ids (21 §4).
import type { ComparisonReader } from '#core/ports/store-reader.ts';
import type { CallChanges } from '#protocol/file-change.ts';
import { BEHIND_ALL } from '../schema/words.ts';
import type { Reads } from './read-database.ts';
import { SUMS, type SumsRow, toTurnTotals } from './spend.ts';

/** The call of a message ends behind it, and before the next call of its session. */
export const CALL_OF_MESSAGE =
  'SELECT min(event_id) AS id FROM llm_calls WHERE session_id = ? AND {no_index}event_id > ?';
export const CALLS_BETWEEN = `SELECT ${SUMS} FROM llm_calls WHERE root_session_id = ? AND {no_index}event_id > ? AND {no_index}event_id <= ?`;
export const TOOL_CALLS = `SELECT count(*) AS n FROM sessions s {join_in_order} tool_calls c ON c.session_id = s.id
  WHERE s.root_session_id = ? AND c.message_id > ?`;
export const WORKERS =
  "SELECT count(*) AS n FROM sessions WHERE root_session_id = ? AND is_worker = 1 AND id > 'sess_' || ?";
export const WALL_TIME = 'SELECT coalesce(sum(wall_time_seconds), 0) AS n FROM turns WHERE session_id = ? AND id > ?';
export const CHANGES = `SELECT c.changed_json FROM sessions s {join_in_order} tool_calls c ON c.session_id = s.id
  WHERE s.root_session_id = ? AND c.message_id > ? AND c.changed_json IS NOT NULL ORDER BY c.completed_at, c.id`;

export function createComparisonReader({ all, get, getExact }: Reads): ComparisonReader {
  const count = async (text: string, id: string, after: string) => (await get<{ n: number }>(text, id, after))?.n ?? 0;
  return {
    callOfMessage: async (sessionId, messageId) =>
      (await get<{ id: string | null }>(CALL_OF_MESSAGE, sessionId, messageId))?.id ?? null,
    sumCalls: async (rootSessionId, after, until) =>
      toTurnTotals((await getExact<SumsRow>(CALLS_BETWEEN, rootSessionId, after ?? '', until ?? BEHIND_ALL))!),
    countWork: async (rootSessionId, after) => {
      const [tool_calls, workers, wall_time_seconds] = await Promise.all([
        count(TOOL_CALLS, rootSessionId, after ?? ''),
        count(WORKERS, rootSessionId, after ?? ''),
        count(WALL_TIME, rootSessionId, after ?? ''),
      ]);
      return { tool_calls, workers, wall_time_seconds };
    },
    changes: async (rootSessionId, after) =>
      (await all<{ changed_json: string }>(CHANGES, rootSessionId, after ?? '')).map(
        (row) => JSON.parse(row.changed_json) as CallChanges,
      ),
  };
}
