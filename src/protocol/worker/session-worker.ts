// A worker that a session made for itself: it lives as long as the session tree (13 §3.4).
import type { SessionId, ToolUseId } from '../ids.ts';

/** Times are Unix milliseconds. */
export interface SessionWorker {
  readonly root_session_id: SessionId;
  readonly name: string;
  readonly created_by_session_id: SessionId;
  readonly created_by_tool_use_id: ToolUseId;
  readonly yaml: string;
  /** Of the copy for people. */
  readonly path: string | null;
  readonly digest: string;
  readonly edited_by_user: boolean;
  readonly created_at: number;
}
