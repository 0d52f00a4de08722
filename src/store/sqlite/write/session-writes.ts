// Changes of sessions: a session ends once, and nothing changes an ended one (01 §7.1, §7.2).
import type Database from 'better-sqlite3';
import { toPusd } from '../../../kernel/money.ts';
import { checkSessionLinks, type ParentLinks } from '../../../policy/journal/session-links.ts';
import { JournalConflict } from '../../../ports/journal.ts';
import { bit, insertInto, json, type Named, named } from '../connection/named.ts';
import type { Appliers, Effects } from './writes.ts';

const COLUMNS = [
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
  'max_cost_pusd',
  'on_reached',
  'created_at',
  'updated_at',
  'worker_definition_json',
  'system_prompt',
  'system_prompt_volatile',
] as const;

export function sessionWrites(db: Database.Database): Appliers<Extract<keyof Appliers, `session.${string}`>> {
  const insert = insertInto(db, 'sessions', COLUMNS);
  const parentOf = db.prepare<[string], ParentLinks>(
    'SELECT ended_at, workspace_path, root_session_id, delegation_depth FROM sessions WHERE id = ?',
  );
  const exists = db.prepare('SELECT 1 FROM sessions WHERE id = ?');
  const change = (set: string) => named(db, `UPDATE sessions SET ${set} WHERE id = @session_id AND ended_at IS NULL`);
  const setModel = change('active_model = @model, pending_active_model = NULL, updated_at = @at');
  const queueModel = change('pending_active_model = @pending, updated_at = @at');
  const setLimit = change('max_cost_pusd = @max_cost_pusd, updated_at = @at');
  const setOnReached = change('on_reached = @on_reached, updated_at = @at');
  const setWarned = change('budget_warned_pusd = @limit_pusd');
  const setPolicyVersion = change('routing_policy_version = @version');
  const end = change('disposition = @disposition, ended_at = @at, updated_at = @at');

  /** Runs a conditional change; when no row met it, says why. */
  function run(statement: Named<unknown>, session_id: string, values: object, effects: Effects): void {
    effects.sessions.push({ id: session_id, values: null });
    if (statement.run({ ...values, session_id }).changes === 1) return;
    if (exists.get(session_id) === undefined) throw new Error(`no session ${session_id}`);
    throw new JournalConflict('session_ended', `session ${session_id} has ended`);
  }

  return {
    'session.insert': ({ session }) => {
      checkSessionLinks(session, (id) => parentOf.get(id) ?? null);
      insert({
        ...session,
        pending_active_model: json(session.pending_active_model),
        is_worker: bit(session.is_worker),
        allow_workers_json: json(session.allow_workers),
        max_cost_pusd: session.max_cost_usd === null ? null : toPusd(session.max_cost_usd),
        worker_definition_json: json(session.worker_definition),
      });
    },
    'session.set_model': (write, effects) => run(setModel, write.session_id, write, effects),
    'session.queue_model': (write, effects) =>
      run(queueModel, write.session_id, { ...write, pending: json(write.pending) }, effects),
    'session.set_limit': (write, effects) => {
      const max_cost_pusd = write.max_cost_usd === null ? null : toPusd(write.max_cost_usd);
      run(setLimit, write.session_id, { ...write, max_cost_pusd }, effects);
    },
    'session.set_on_reached': (write, effects) => run(setOnReached, write.session_id, write, effects),
    'session.warned': ({ session_id, limit_usd }, effects) =>
      run(setWarned, session_id, { limit_pusd: toPusd(limit_usd) }, effects),
    'session.set_policy_version': (write, effects) => run(setPolicyVersion, write.session_id, write, effects),
    'session.end': (write, effects) => {
      run(end, write.session_id, write, effects);
      effects.ended.push(write.session_id);
    },
  };
}
