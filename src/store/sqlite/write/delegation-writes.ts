// Changes of delegations and confirmations (01 §9, 09 §6).
import type Database from 'better-sqlite3';
import { toPusd } from '../../../kernel/money.ts';
import { JournalConflict } from '../../../ports/journal.ts';
import { insertInto, json, type Named, named } from '../connection/named.ts';
import type { Appliers } from './writes.ts';

const DELEGATION_COLUMNS = [
  'tool_use_id',
  'parent_session_id',
  'parent_turn_id',
  'worker_session_id',
  'entry',
  'worker_name',
  'worker_digest',
  'tier',
  'resolved_model',
  'context_mode',
  'context_reference_count',
  'task_size_tokens',
  'effective_tools_json',
  'allowed_tool_count',
  'dropped_tools_json',
  'max_tokens',
  'max_cost_pusd',
  'timeout_seconds',
  'active_seconds',
  'status',
  'failure_mode',
  'error_message',
  'created_at',
  'ended_at',
  'output_json',
  'request_json',
] as const;
const CONFIRMATION_COLUMNS = [
  'id',
  'session_id',
  'root_session_id',
  'turn_id',
  'tool_use_id',
  'tool_name',
  'rule',
  'key_hash',
  'request_json',
  'input_json',
  'requested_at',
  'expires_at',
] as const;

type Kinds = Extract<keyof Appliers, `delegation.${string}` | `confirmation.${string}`>;

export function delegationWrites(db: Database.Database): Appliers<Kinds> {
  const insertDelegation = insertInto(db, 'delegations', DELEGATION_COLUMNS);
  const change = (set: string) =>
    named(
      db,
      `UPDATE delegations SET ${set} WHERE tool_use_id = @tool_use_id AND status IN ('running', 'interrupted')`,
    );
  const interruptDelegation = change("status = 'interrupted', active_seconds = @active_seconds");
  const resumeDelegation = change("status = 'running'");
  const endDelegation = change(`status = @status, failure_mode = @failure_mode, error_message = @error_message,
    output_json = @output_json, changes_json = @changes_json, active_seconds = @active_seconds, ended_at = @ended_at`);

  const insertConfirmation = insertInto(db, 'confirmations', CONFIRMATION_COLUMNS);
  const resolveConfirmation = named(
    db,
    `
    UPDATE confirmations SET decision = @decision, scope = @scope, reason = @reason, modified_json = @modified_json,
      resolved_by = @resolved_by, resolved_at = @at
    WHERE id = @id AND decision IS NULL`,
  );
  const decisionOf = db.prepare<[string], { decision: string }>('SELECT decision FROM confirmations WHERE id = ?');

  function run(statement: Named<unknown>, values: { readonly tool_use_id: string }): void {
    if (statement.run(values).changes === 1) return;
    throw new JournalConflict('turn_closed', `delegation ${values.tool_use_id} has ended or does not exist`);
  }

  return {
    'delegation.insert': ({ delegation }) => {
      insertDelegation({
        ...delegation,
        effective_tools_json: json(delegation.effective_tools),
        dropped_tools_json: json(delegation.dropped_tools),
        max_cost_pusd: delegation.max_cost_usd === null ? null : toPusd(delegation.max_cost_usd),
        output_json: json(delegation.output),
        request_json: json(delegation.request),
      });
    },
    'delegation.interrupt': (write) => run(interruptDelegation, write),
    'delegation.resume': (write) => run(resumeDelegation, write),
    'delegation.end': (write) => {
      const values = { ...write, output_json: json(write.output), changes_json: json(write.changes) };
      run(endDelegation, values);
    },
    'confirmation.insert': ({ confirmation }) => {
      insertConfirmation({
        ...confirmation,
        request_json: json(confirmation.request),
        input_json: json(confirmation.input),
      });
    },
    'confirmation.resolve': (write) => {
      if (resolveConfirmation.run({ ...write, modified_json: json(write.modified) }).changes === 1) return;
      const decision = decisionOf.get(write.id)?.decision;
      if (decision === undefined) throw new Error(`no confirmation ${write.id}`);
      throw new JournalConflict('confirmation_resolved', `confirmation ${write.id} is resolved: ${decision}`);
    },
  };
}
