// What a new session must satisfy beside its parent: the links of a tree agree with each other (01 §7.1, §7.2).
import { JournalConflict } from '#protocol/batch.ts';
import type { SessionRecord } from '#protocol/session.ts';

export type ParentLinks = Pick<SessionRecord, 'ended_at' | 'workspace_path' | 'root_session_id' | 'delegation_depth'>;

/**
 * `parentOf` looks a parent up, null when there is none of that id.
 * Throws `JournalConflict('session_ended')` for an ended parent, a plain error for links that contradict each other.
 */
export function checkSessionLinks(session: SessionRecord, parentOf: (id: string) => ParentLinks | null): void {
  const { id, parent_session_id, parent_tool_use_id, is_worker, door } = session;
  // What a client of the gateway calls a worker, no tool call of ours has opened.
  const needsCall = is_worker && door !== 'gateway';
  if (is_worker !== (parent_session_id !== null) || needsCall !== (parent_tool_use_id !== null)) {
    throw new Error(`session ${id}: is_worker, parent_session_id and parent_tool_use_id must be set together`);
  }
  if (parent_session_id === null) {
    if (session.root_session_id !== id || session.delegation_depth !== 0) {
      throw new Error(`session ${id}: a top-level session is its own root at depth 0`);
    }
    return;
  }
  const parent = parentOf(parent_session_id);
  if (parent === null) throw new Error(`session ${id}: its parent ${parent_session_id} does not exist`);
  if (parent.ended_at !== null) throw new JournalConflict('session_ended', `parent ${parent_session_id} has ended`);
  if (parent.workspace_path !== session.workspace_path) {
    throw new Error(`session ${id}: workspace_path differs from its parent's`);
  }
  if (session.root_session_id !== parent.root_session_id || session.delegation_depth !== parent.delegation_depth + 1) {
    throw new Error(`session ${id}: root_session_id or delegation_depth does not follow from its parent`);
  }
}
