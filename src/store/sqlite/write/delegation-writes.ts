// Changes of delegations and confirmations (01 §9, 09 §6).
import type Database from 'better-sqlite3';
import { JournalConflict } from '#core/ports/journal-writer.ts';
import { json } from '#store/schema/values.ts';
import * as sql from '#store/write/delegations.ts';
import { insertInto, type Named, named } from '../connection/named.ts';
import type { Appliers } from './writes.ts';

type Kinds = Extract<keyof Appliers, `delegation.${string}` | `confirmation.${string}`>;

export function delegationWrites(db: Database.Database): Appliers<Kinds> {
  const insertDelegation = insertInto(db, 'delegations', sql.DELEGATION_COLUMNS);
  const interruptDelegation = named(db, sql.INTERRUPT);
  const resumeDelegation = named(db, sql.RESUME);
  const endDelegation = named(db, sql.END);
  const insertConfirmation = insertInto(db, 'confirmations', sql.CONFIRMATION_COLUMNS);
  const resolveConfirmation = named(db, sql.RESOLVE);
  const decisionOf = db.prepare<[string], { decision: string }>(sql.DECISION);

  function run(statement: Named<unknown>, values: { readonly tool_use_id: string }): void {
    if (statement.run(values).changes === 1) return;
    throw new JournalConflict('turn_closed', `delegation ${values.tool_use_id} has ended or does not exist`);
  }

  return {
    'delegation.insert': ({ delegation }) => {
      insertDelegation(sql.delegationRow(delegation));
    },
    'delegation.interrupt': (write) => run(interruptDelegation, write),
    'delegation.resume': (write) => run(resumeDelegation, write),
    'delegation.end': (write) => {
      const values = { ...write, output_json: json(write.output), changes_json: json(write.changes) };
      run(endDelegation, values);
    },
    'confirmation.insert': ({ confirmation }) => {
      insertConfirmation(sql.confirmationColumns(confirmation));
    },
    'confirmation.resolve': (write) => {
      if (resolveConfirmation.run({ ...write, modified_json: json(write.modified) }).changes === 1) return;
      const decision = decisionOf.get(write.id)?.decision;
      if (decision === undefined) throw new Error(`no confirmation ${write.id}`);
      throw new JournalConflict('confirmation_resolved', `confirmation ${write.id} is resolved: ${decision}`);
    },
  };
}
