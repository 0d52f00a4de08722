// The messages and checkpoints that a fork begins with, wherever they are stored (21 §4).

/** Columns of a message, and of a checkpoint, that a copy in a fork has too. */
const COPIED_MESSAGE = [
  'id',
  'session_id',
  'turn_id',
  'role',
  'status',
  'created_at',
  'metadata_json',
  'content_json',
  'provider_raw_json',
] as const;
const COPIED_CHECKPOINT = [
  'id',
  'session_id',
  'kind',
  'message_ids_json',
  'through_message_id',
  'summary_text',
  'tokens_before',
  'tokens_after',
  'model',
  'created_at',
] as const;

/**
 * A recursive table `members(fork, id, cut, level)`: forks at level 0, then the sessions that each of them begins with,
 * up to the message `cut`. It ends at a session that was purged, whose messages the fork below it has as copies.
 * @param which condition on the forks, `s`
 */
function listMembers(which: string): string {
  return `WITH RECURSIVE members(fork, id, cut, level) AS (
    SELECT s.id, s.id, s.id, 0 FROM sessions s WHERE ${which}
    UNION ALL SELECT m.fork, s.forked_from_session_id, s.forked_from_message_id, m.level + 1
    FROM members m JOIN sessions s ON s.id = m.id WHERE s.forked_from_session_id IS NOT NULL)`;
}

/** Whether a member's cut is one of its own messages, not one that it was forked with. */
const IS_OWN_CUT = 'EXISTS (SELECT 1 FROM messages o WHERE o.id = m.cut AND o.session_id = m.id)';

/** Rows in the order of the prefix: by `level` descending, then `place`, `position` and `id`. */
function selectPrefix(
  which: string,
  columns: readonly string[],
  { own, copies, isCopied }: { readonly own: string; readonly copies: string; readonly isCopied: string },
): string {
  const listed = columns.map((column) => `x.${column}`).join(', ');
  return `${listMembers(which)}
    SELECT m.fork, m.level, 0 AS place, x.position, ${listed}
    FROM members m JOIN ${copies} x ON x.fork_session_id = m.id WHERE m.level = 0 OR ${IS_OWN_CUT} OR ${isCopied}
    UNION ALL SELECT m.fork, m.level, 1 AS place, 0 AS position, ${listed}
    FROM members m JOIN ${own} x ON x.session_id = m.id AND x.id <= m.cut WHERE m.level > 0 AND ${IS_OWN_CUT}`;
}

const IN_ORDER = 'level DESC, place, position, id';

const MESSAGES = {
  own: 'messages',
  copies: 'fork_messages',
  isCopied: `x.position <= (SELECT c.position FROM fork_messages c WHERE c.fork_session_id = m.id AND c.id = m.cut)`,
};
const CHECKPOINTS = {
  own: 'compaction_checkpoints',
  copies: 'fork_checkpoints',
  isCopied: 'x.id <= m.cut',
};

function readPrefix(columns: readonly string[], tables: typeof MESSAGES): string {
  return `SELECT ${columns.join(', ')} FROM (${selectPrefix('s.id = ?', columns, tables)}) AS prefix ORDER BY ${IN_ORDER}`;
}

/** A fork of another owner ends with its original (23 §4). */
const IS_OF_SAME_OWNER =
  's.owner IS NOT DISTINCT FROM (SELECT o.owner FROM sessions o WHERE o.id = s.forked_from_session_id)';

function copyPrefix(table: string, columns: readonly string[], tables: typeof MESSAGES): string {
  const prefix = selectPrefix(`s.forked_from_session_id {in_list} AND ${IS_OF_SAME_OWNER}`, columns, tables);
  return `INSERT INTO ${table} (fork_session_id, position, ${columns.join(', ')})
    SELECT fork, row_number() OVER (PARTITION BY fork ORDER BY ${IN_ORDER}), ${columns.join(', ')}
    FROM (${prefix}) AS prefix`;
}

/** Of one fork, in order. */
export const PREFIX_MESSAGES = readPrefix(COPIED_MESSAGE, MESSAGES);
export const PREFIX_CHECKPOINTS = readPrefix(COPIED_CHECKPOINT, CHECKPOINTS);

/** Open forks of these sessions by other owners, and the open forks of those: a purge deletes their messages (23 §4). */
export const OPEN_FOREIGN_FORKS = `
  WITH RECURSIVE lost(id) AS (
    SELECT f.id FROM sessions o JOIN sessions f ON f.forked_from_session_id = o.id
    WHERE o.id {in_list} AND f.owner IS DISTINCT FROM o.owner
    UNION ALL SELECT s.id FROM lost JOIN sessions s ON s.forked_from_session_id = lost.id)
  SELECT s.id FROM lost JOIN sessions s ON s.id = lost.id WHERE s.ended_at IS NULL ORDER BY s.id`;

/** Into the forks of these sessions that their owners made. */
export const COPY_MESSAGES = copyPrefix('fork_messages', COPIED_MESSAGE, MESSAGES);
export const COPY_CHECKPOINTS = copyPrefix('fork_checkpoints', COPIED_CHECKPOINT, CHECKPOINTS);
