// The table of appliers: one statement or more for each kind of write in a batch (01 §11.4).
import { type Journal, JournalConflict, type Write } from '#core/ports/journal-writer.ts';
import type { Checkpoint } from '#protocol/prompt-parts.ts';
import { bit, json, SET_META } from '../schema/words.ts';
import { delegationWrites } from './delegations.ts';
import { patternWrites } from './patterns.ts';
import { sessionWrites } from './sessions.ts';
import { type Appliers, insertRow, type Step, type Tx } from './transaction.ts';
import { turnWrites } from './turns.ts';

// Rows that are written whole: checkpoints, workers of sessions, trusted files, request keys and `meta` (01 §11.3).

const KEY_COLUMNS = [
  'method',
  'path',
  'token_hash',
  'key',
  'session_id',
  'body_hash',
  'status',
  'response_json',
  'expires_at',
] as const;
const WORKER_COLUMNS = [
  'root_session_id',
  'name',
  'created_by_session_id',
  'created_by_tool_use_id',
  'yaml',
  'path',
  'digest',
  'edited_by_user',
  'created_at',
] as const;
/** Does not change the row of another session. */
const REPLACE_WORKER = `
  UPDATE worker_definitions SET created_by_tool_use_id = @created_by_tool_use_id, yaml = @yaml, path = @path,
    digest = @digest, edited_by_user = @edited_by_user, created_at = @created_at
  WHERE root_session_id = @root_session_id AND name = @name AND created_by_session_id = @created_by_session_id`;

const PUT_TRUSTED_FILE = `INSERT INTO trusted_files (workspace_path, path, sha256, trusted_by, trusted_at, content)
  VALUES (@workspace_path, @path, @sha256, @trusted_by, @trusted_at, @content)
  ON CONFLICT (workspace_path, path) DO UPDATE SET
    sha256 = excluded.sha256, trusted_by = excluded.trusted_by, trusted_at = excluded.trusted_at,
    content = excluded.content`;
const REMOVE_TRUSTED_FILE = 'DELETE FROM trusted_files WHERE workspace_path = @workspace_path AND path = @path';

const REMOVE_WORKTREE = 'DELETE FROM worktrees WHERE session_id = @session_id';
const PUT_WORKTREE = `
  INSERT INTO worktrees (session_id, caller_path, repository, folder, tree_path, base_tree, result_tree, merged_from,
    merged_tree, applied, created_at)
  VALUES (@session_id, @caller_path, @repository, @folder, @tree_path, @base_tree, @result_tree, @merged_from,
    @merged_tree, @applied, @created_at)
  ON CONFLICT (session_id) DO UPDATE SET
    result_tree = excluded.result_tree, merged_from = excluded.merged_from, merged_tree = excluded.merged_tree,
    applied = excluded.applied`;

const PUT_ATTEMPT = `
  INSERT INTO delegation_attempts (tool_use_id, attempt, worker_session_id, turn_id, rung, check_name, result_tree,
    process_group, passed, exit_code, output, protected_json, wall_time_seconds, started_at, ended_at)
  VALUES (@tool_use_id, @attempt, @worker_session_id, @turn_id, @rung, @check_name, @result_tree, @process_group,
    @passed, @exit_code, @output, @protected_json, @wall_time_seconds, @started_at, @ended_at)
  ON CONFLICT (tool_use_id, attempt) DO UPDATE SET
    result_tree = excluded.result_tree, process_group = excluded.process_group, passed = excluded.passed,
    exit_code = excluded.exit_code, output = excluded.output, protected_json = excluded.protected_json,
    wall_time_seconds = excluded.wall_time_seconds, ended_at = excluded.ended_at`;

const CHECKPOINT_COLUMNS = [
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

function checkpointRow(checkpoint: Checkpoint) {
  const { id, session_id, kind, tokens_before, tokens_after, created_at } = checkpoint;
  return { id, session_id, kind, tokens_before, tokens_after, created_at, ...kindColumns(checkpoint) };
}

function kindColumns(checkpoint: Checkpoint) {
  if (checkpoint.kind === 'elide')
    return {
      message_ids_json: json(checkpoint.message_ids),
      through_message_id: null,
      summary_text: null,
      model: null,
    };
  return { message_ids_json: null, ...checkpoint };
}

const COST_COLUMNS = [
  'id',
  'workspace_path',
  'is_worker',
  'shape_sig',
  'model',
  'cost_pusd',
  'forecast_json',
  'ended_at',
] as const;

const insertCost = insertRow('tree_costs', COST_COLUMNS);
const insertCheckpoint = insertRow('compaction_checkpoints', CHECKPOINT_COLUMNS);
const insertWorker = insertRow('worker_definitions', WORKER_COLUMNS);
const insertKey = insertRow('idempotency_keys', KEY_COLUMNS);

const insertStart = insertRow('case_starts', ['session_id', 'start_json']);
const insertCall = insertRow('case_calls', ['request_id', 'session_id', 'root_session_id', 'call_json']);

type Kinds =
  | `case.${string}`
  | 'checkpoint.insert'
  | 'meta.set'
  | 'tree_cost.insert'
  | 'idempotency.insert'
  | `worktree.${string}`
  | 'attempt.put'
  | `worker.${string}`
  | `trusted_file.${string}`;

const otherWrites: Appliers<Extract<keyof Appliers, Kinds>> = {
  'checkpoint.insert': ({ checkpoint }, { tx, effects }) => {
    insertCheckpoint(tx, checkpointRow(checkpoint));
    effects.checkpointed.push(checkpoint.session_id);
  },
  'tree_cost.insert': ({ cost: { forecast, is_worker, ...cost } }, { tx }) =>
    insertCost(tx, { ...cost, is_worker: bit(is_worker), forecast_json: json(forecast) }),
  'worker.insert': ({ worker }, { tx }) => insertWorker(tx, { ...worker, edited_by_user: bit(worker.edited_by_user) }),
  'case.start': ({ session_id, start }, { tx }) => insertStart(tx, { session_id, start_json: json(start) }),
  'case.call': ({ kind: _, call, ...row }, { tx }) => insertCall(tx, { ...row, call_json: json(call) }),
  'trusted_file.put': ({ file }, { tx }) => tx.run(PUT_TRUSTED_FILE, file),
  'trusted_file.remove': (write, { tx }) => tx.run(REMOVE_TRUSTED_FILE, write),
  'worktree.put': ({ worktree }, { tx }) =>
    tx.run(PUT_WORKTREE, { ...worktree, applied: worktree.applied === null ? null : bit(worktree.applied) }),
  'worktree.remove': ({ session_id }, { tx }) => tx.run(REMOVE_WORKTREE, { session_id }),
  'attempt.put': ({ attempt }, { tx }) => {
    const { passed, protected_changes, ...row } = attempt;
    const stored = { passed: passed === null ? null : bit(passed), protected_json: json(protected_changes) };
    tx.run(PUT_ATTEMPT, { ...row, ...stored });
  },
  'worker.replace': ({ worker }, { tx }) =>
    tx.run(REPLACE_WORKER, { ...worker, edited_by_user: bit(worker.edited_by_user) }),
  'meta.set': ({ key, value }, { tx }) => tx.run(SET_META, { key, value }),
  'idempotency.insert': ({ row }, { tx, clock, dropExpiredKeys }) => {
    tx.run(dropExpiredKeys, [clock.now()]);
    insertKey(tx, row);
  },
};

// Tokens and the audit (23 §2, §4).

const TOKEN_COLUMNS = [
  'id',
  'name',
  'token_sha256',
  'role',
  'daily_usd',
  'monthly_usd',
  'workspaces_json',
  'expires_at',
  'created_by',
  'created_at',
  'revoked_at',
] as const;
const AUDIT_COLUMNS = ['id', 'at', 'actor', 'action', 'subject', 'details_json'] as const;

/** Two admins' tokens that are revoked at one moment: the second statement sees the first one's result. */
const LOCK_ADMINS = "SELECT id FROM tokens WHERE role = 'admin' AND revoked_at IS NULL ORDER BY id {lock_rows}";
const REVOKE = `UPDATE tokens SET revoked_at = @at WHERE id = @id AND (role <> 'admin' OR @other_admins > 0
  OR EXISTS (SELECT 1 FROM tokens o WHERE o.id <> @id AND o.role = 'admin' AND o.revoked_at IS NULL
    AND (o.expires_at IS NULL OR o.expires_at > @at)))`;
const DROP_OLD = 'DELETE FROM audit WHERE at < @before';
const insertToken = insertRow('tokens', TOKEN_COLUMNS, 'ON CONFLICT (name) DO NOTHING');
const insertEntry = insertRow('audit', AUDIT_COLUMNS);

const peopleWrites: Appliers<Extract<keyof Appliers, `token.${string}` | 'audit.insert'>> = {
  'token.insert': ({ token: { workspaces, ...token } }, { tx }) =>
    insertToken(tx, { ...token, workspaces_json: json(workspaces) }, ({ changes }) => {
      if (changes === 1) return;
      throw new JournalConflict('name_taken', `a token had the name ${token.name} before`);
    }),
  'token.revoke': (write, { tx }) => {
    tx.run(LOCK_ADMINS, []);
    tx.run(REVOKE, write, ({ changes }) => {
      if (changes === 0) throw new JournalConflict('last_admin', `token ${write.id} is the last of an admin`);
    });
  },
  'audit.insert': ({ entry: { details, ...entry }, drop_before }, { tx }) => {
    if (drop_before !== null) tx.run(DROP_OLD, { before: drop_before });
    insertEntry(tx, { ...entry, details_json: JSON.stringify(details) });
  },
};

type PriceVersion = Parameters<Journal['savePriceVersion']>[0];

const insertPrices = insertRow(
  'price_versions',
  ['version', 'content_hash', 'source', 'models_json', 'created_at'],
  'ON CONFLICT (version) DO NOTHING',
);
const PRICE_HASH = 'SELECT content_hash FROM price_versions WHERE version = ?';

/** Stores a price version once, so that a past call can be priced again (08 §3). */
export function savePriceVersion(tx: Tx, row: PriceVersion, created_at: number): void {
  insertPrices(tx, { ...row, created_at }, ({ changes }) => {
    if (changes === 1) return;
    tx.run(PRICE_HASH, [row.version], ({ rows }) => {
      if (rows[0]?.content_hash === row.content_hash) return;
      throw new Error(
        `price table version ${row.version} was used before with other rates; give the changed table a new pricing_version`,
      );
    });
  });
}

const APPLIERS: Appliers = {
  ...sessionWrites,
  ...turnWrites,
  ...delegationWrites,
  ...patternWrites,
  ...peopleWrites,
  ...otherWrites,
};

export function applyWrite(write: Write, step: Step): void {
  (APPLIERS[write.kind] as (write: Write, step: Step) => void)(write, step);
}
