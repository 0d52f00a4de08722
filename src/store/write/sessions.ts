// Changes of sessions: a session ends once, and nothing changes an ended one (01 §7.1, §7.2).

import { checkSessionLinks, type ParentLinks } from '#core/policy/journal/conditions.ts';
import { JournalConflict } from '#core/ports/journal-writer.ts';
import { fromPusdOrNull } from '#protocol/money.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { bit, json, SESSION_IS_OPEN } from '../schema/words.ts';
import { type Appliers, insertRow, type Step } from './transaction.ts';

export const COLUMNS = [
  'id',
  'workspace_path',
  'workspace_hash',
  'active_model',
  'pending_active_model',
  'routing_policy_version',
  'turn_count',
  'disposition',
  'ended_at',
  'parent_session_id',
  'parent_tool_use_id',
  'is_worker',
  'root_session_id',
  'delegation_depth',
  'delegated_by_model',
  'worker_name',
  'worker_digest',
  'worker_origin',
  'allow_workers_json',
  'approval_mode',
  'door',
  'caller',
  'client',
  'client_ref',
  'max_cost_pusd',
  'on_reached',
  'created_at',
  'updated_at',
  'worker_definition_json',
  'system_prompt',
  'system_prompt_volatile',
  'tree_path',
  'continues_session_id',
  'owner',
  'share',
  'forked_from_session_id',
  'forked_from_message_id',
  'has_workspace',
  'record_case',
  'confirm_above_usd',
  'confirm_above_workers',
  'experiment_id',
  'experiment_json',
] as const;

export function sessionRow(session: SessionRecord) {
  return {
    ...session,
    pending_active_model: json(session.pending_active_model),
    is_worker: bit(session.is_worker),
    has_workspace: bit(session.has_workspace),
    record_case: bit(session.record_case),
    experiment_id: session.experiment?.id ?? null,
    experiment_json: json(session.experiment),
    allow_workers_json: json(session.allow_workers),
    worker_definition_json: json(session.worker_definition),
    confirm_above_usd: fromPusdOrNull(session.confirm_above_pusd),
  };
}

export const PARENT = 'SELECT ended_at, workspace_path, root_session_id, delegation_depth FROM sessions WHERE id = ?';
export const EXISTS = 'SELECT 1 AS found FROM sessions WHERE id = ?';
/** A purge that runs at this moment waits, and copies the messages into the fork (21 §4). */
const FORKED = `${EXISTS} {keep_rows}`;

const updateOpenSession = (set: string) => `UPDATE sessions SET ${set} WHERE id = @session_id AND ${SESSION_IS_OPEN}`;
export const SET_MODEL = updateOpenSession('active_model = @model, pending_active_model = NULL, updated_at = @at');
export const QUEUE_MODEL = updateOpenSession('pending_active_model = @pending, updated_at = @at');
export const SET_LIMIT = updateOpenSession('max_cost_pusd = @max_cost_pusd, updated_at = @at');
export const SET_ON_REACHED = updateOpenSession('on_reached = @on_reached, updated_at = @at');
export const SET_WORKSPACE = updateOpenSession('workspace_path = @workspace_path, updated_at = @at');
export const SET_WARNED = updateOpenSession('budget_warned_pusd = @limit_pusd');
export const SET_POLICY_VERSION = updateOpenSession('routing_policy_version = @version');
export const END = updateOpenSession('disposition = @disposition, ended_at = @at, updated_at = @at');

/** A worker's session is its root's owner's, even where that was given away while the worker was prepared. */
const TAKE_OWNER = `UPDATE sessions SET owner = r.owner, share = r.share FROM sessions r
  WHERE sessions.id = @id AND r.id = @root_session_id`;
/** Ended sessions too: who may read them can change. */
const SET_OWNERSHIP = `UPDATE sessions SET updated_at = @at, share = coalesce(@share, share),
  owner = CASE WHEN CAST(@gives AS integer) = 1 THEN CAST(@owner AS text) ELSE owner END
  WHERE root_session_id = @session_id`;
const SET_LEDGER_OWNERSHIP = `UPDATE ledger_sessions SET share = coalesce(@share, share),
  owner = CASE WHEN CAST(@gives AS integer) = 1 THEN coalesce(CAST(@owner AS text), '') ELSE owner END
  WHERE root_session_id = @session_id`;

const insertSession = insertRow('sessions', COLUMNS);

/** Runs a conditional change; throws the reason when no row met it. */
function changeSession(statement: string, session_id: string, values: object, { tx, effects }: Step): void {
  effects.sessions.push({ id: session_id, values: null });
  tx.change(statement, { ...values, session_id }, () => {
    tx.run(EXISTS, [session_id], ({ rows }) => {
      if (rows.length === 0) throw new Error(`no session ${session_id}`);
      throw new JournalConflict('session_ended', `session ${session_id} has ended`);
    });
  });
}

export const sessionWrites: Appliers<Extract<keyof Appliers, `session.${string}`>> = {
  'session.insert': ({ session }, { tx, effects }) => {
    effects.created.push({ id: session.id, root: session.root_session_id });
    const parent = session.parent_session_id;
    if (parent === null) checkSessionLinks(session, () => null);
    else {
      tx.run(PARENT, [parent], ({ rows }) => {
        checkSessionLinks(session, () => (rows[0] as ParentLinks | undefined) ?? null);
      });
    }
    const { forked_from_session_id: origin } = session;
    if (origin !== null)
      tx.run(FORKED, [origin], ({ rows }) => {
        if (rows.length === 0) throw new JournalConflict('session_ended', `session ${origin} was purged`);
      });
    insertSession(tx, sessionRow(session));
    if (parent !== null) tx.run(TAKE_OWNER, { id: session.id, root_session_id: session.root_session_id });
  },
  'session.set_ownership': ({ session_id, at, owner, share = null }, { tx, effects }) => {
    const values = { session_id, share, owner: owner ?? null, gives: owner === undefined ? 0 : 1 };
    tx.change(SET_OWNERSHIP, { ...values, at }, () => {
      throw new JournalConflict('session_ended', `session ${session_id} was purged`);
    });
    tx.run(SET_LEDGER_OWNERSHIP, values);
    effects.trees.push(session_id);
  },
  'session.set_model': (write, step) => changeSession(SET_MODEL, write.session_id, write, step),
  'session.queue_model': (write, step) =>
    changeSession(QUEUE_MODEL, write.session_id, { ...write, pending: json(write.pending) }, step),
  'session.set_limit': (write, step) => changeSession(SET_LIMIT, write.session_id, write, step),
  'session.set_on_reached': (write, step) => changeSession(SET_ON_REACHED, write.session_id, write, step),
  'session.set_workspace': (write, step) => changeSession(SET_WORKSPACE, write.session_id, write, step),
  'session.warned': (write, step) => changeSession(SET_WARNED, write.session_id, write, step),
  'session.set_policy_version': (write, step) => changeSession(SET_POLICY_VERSION, write.session_id, write, step),
  'session.end': (write, step) => {
    changeSession(END, write.session_id, write, step);
    step.effects.ended.push(write.session_id);
  },
};
