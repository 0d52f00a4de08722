// Changes of delegations and confirmations (01 §9, 09 §6).

import { JournalConflict } from '#core/ports/journal-writer.ts';
import type { DelegationRecord } from '#protocol/delegate.ts';
import type { ConfirmationRow } from '#protocol/journal-batch.ts';
import { json, NO_TIMEOUT } from '../schema/words.ts';
import { type Appliers, insertRow, type Tx } from './transaction.ts';

export const DELEGATION_COLUMNS = [
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
export const CONFIRMATION_COLUMNS = [
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

const updateDelegation = (set: string) =>
  `UPDATE delegations SET ${set} WHERE tool_use_id = @tool_use_id AND status IN ('running', 'interrupted')`;
export const INTERRUPT = updateDelegation("status = 'interrupted', active_seconds = @active_seconds");
export const RESUME = updateDelegation("status = 'running'");
export const END = updateDelegation(`status = @status, failure_mode = @failure_mode, error_message = @error_message,
  output_json = @output_json, changes_json = @changes_json, active_seconds = @active_seconds, ended_at = @ended_at`);
export const APPLIED = 'UPDATE delegations SET changes_json = @changes_json WHERE tool_use_id = @tool_use_id';
export const CLAIM =
  'UPDATE deliveries SET read_by = @read_by WHERE id = @id AND read_by IS NULL AND delivered_at IS NULL';
export const DELIVER =
  'UPDATE deliveries SET delivered_at = @at, message_id = @message_id WHERE id = @id AND delivered_at IS NULL';
export const RESOLVE = `
  UPDATE confirmations SET decision = @decision, scope = @scope, reason = @reason, modified_json = @modified_json,
    resolved_by = @resolved_by, resolved_at = @at, answered_by = @answered_by
  WHERE id = @id AND decision IS NULL`;
export const DECISION = 'SELECT decision FROM confirmations WHERE id = ?';

export function delegationRow(delegation: DelegationRecord) {
  return {
    ...delegation,
    effective_tools_json: json(delegation.effective_tools),
    allowed_tool_count: delegation.allowed_tool_count ?? 0,
    timeout_seconds: delegation.timeout_seconds ?? NO_TIMEOUT,
    dropped_tools_json: json(delegation.dropped_tools),
    output_json: json(delegation.output),
    request_json: json(delegation.request),
  };
}

export function confirmationColumns(confirmation: ConfirmationRow) {
  return { ...confirmation, request_json: json(confirmation.request), input_json: json(confirmation.input) };
}

const insertDelegation = insertRow('delegations', DELEGATION_COLUMNS);
const insertDelivery = insertRow('deliveries', ['id', 'session_id', 'turn_id', 'worker_session_id', 'created_at']);
const insertConfirmation = insertRow('confirmations', CONFIRMATION_COLUMNS);

function changeDelegation(
  tx: Tx,
  statement: string,
  values: { readonly tool_use_id: string; readonly changes_json?: string | null },
): void {
  tx.change(statement, values, () => {
    throw new JournalConflict('turn_closed', `delegation ${values.tool_use_id} has ended or does not exist`);
  });
}

function changeDelivery(tx: Tx, statement: string, values: { readonly id: string }): void {
  tx.change(statement, values, () => {
    throw new JournalConflict('delivery_read', `delivery ${values.id} was read before or does not exist`);
  });
}

type Kinds = Extract<keyof Appliers, `delegation.${string}` | `delivery.${string}` | `confirmation.${string}`>;

export const delegationWrites: Appliers<Kinds> = {
  'delegation.insert': ({ delegation }, { tx }) => insertDelegation(tx, delegationRow(delegation)),
  'delegation.interrupt': (write, { tx }) => changeDelegation(tx, INTERRUPT, write),
  'delegation.resume': (write, { tx }) => changeDelegation(tx, RESUME, write),
  'delegation.end': (write, { tx }) => {
    const values = { ...write, output_json: json(write.output), changes_json: json(write.changes) };
    changeDelegation(tx, END, values);
  },
  'delegation.applied': ({ tool_use_id, changes }, { tx }) =>
    changeDelegation(tx, APPLIED, { tool_use_id, changes_json: json(changes) }),
  'delivery.insert': ({ delivery }, { tx }) => insertDelivery(tx, delivery),
  'delivery.claim': (write, { tx }) => changeDelivery(tx, CLAIM, write),
  'delivery.deliver': (write, { tx }) => changeDelivery(tx, DELIVER, write),
  'confirmation.insert': ({ confirmation }, { tx }) => insertConfirmation(tx, confirmationColumns(confirmation)),
  'confirmation.resolve': (write, { tx }) =>
    tx.change(
      RESOLVE,
      { ...write, answered_by: write.answered_by ?? null, modified_json: json(write.modified) },
      () => {
        tx.run(DECISION, [write.id], ({ rows }) => {
          const decision = rows[0]?.decision;
          if (decision === undefined) throw new Error(`no confirmation ${write.id}`);
          throw new JournalConflict('confirmation_resolved', `confirmation ${write.id} is resolved: ${decision}`);
        });
      },
    ),
};
