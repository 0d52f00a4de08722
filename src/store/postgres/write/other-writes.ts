// Changes of delegations, confirmations, checkpoints, workers, request keys and patterns (01 §11.3).

import { JournalConflict } from '#core/ports/journal-writer.ts';
import { toPusd } from '#protocol/money.ts';
import { bit, json } from '#store/schema/values.ts';
import * as checkpoints from '#store/write/checkpoints.ts';
import * as sql from '#store/write/delegations.ts';
import * as others from '#store/write/others.ts';
import * as patterns from '#store/write/patterns.ts';
import type { Tx } from '../connection/pool.ts';
import { insertRow } from './insert.ts';
import type { Appliers } from './writes.ts';

const insertDelegation = insertRow('delegations', sql.DELEGATION_COLUMNS);
const insertConfirmation = insertRow('confirmations', sql.CONFIRMATION_COLUMNS);
const insertCheckpoint = insertRow('compaction_checkpoints', checkpoints.COLUMNS);
const insertWorker = insertRow('worker_definitions', others.WORKER_COLUMNS);
const insertKey = insertRow('idempotency_keys', others.KEY_COLUMNS);

/** Of those that another node deletes at this moment, nobody waits for the other. */
const DROP_EXPIRED = `DELETE FROM idempotency_keys WHERE ctid IN (
  SELECT ctid FROM idempotency_keys WHERE expires_at <= ? FOR UPDATE SKIP LOCKED LIMIT 100)`;

function changeDelegation(tx: Tx, statement: string, values: { readonly tool_use_id: string }): void {
  tx.run(statement, values, ({ changes }) => {
    if (changes === 1) return;
    throw new JournalConflict('turn_closed', `delegation ${values.tool_use_id} has ended or does not exist`);
  });
}

type Kinds = Extract<
  keyof Appliers,
  | `delegation.${string}`
  | `confirmation.${string}`
  | 'checkpoint.insert'
  | `worker.${string}`
  | `trusted_file.${string}`
  | 'meta.set'
>;

export const otherWrites: Appliers<Kinds | 'idempotency.insert'> = {
  'delegation.insert': ({ delegation }, { tx }) => insertDelegation(tx, sql.delegationRow(delegation)),
  'delegation.interrupt': (write, { tx }) => changeDelegation(tx, sql.INTERRUPT, write),
  'delegation.resume': (write, { tx }) => changeDelegation(tx, sql.RESUME, write),
  'delegation.end': (write, { tx }) => {
    const values = { ...write, output_json: json(write.output), changes_json: json(write.changes) };
    changeDelegation(tx, sql.END, values);
  },
  'confirmation.insert': ({ confirmation }, { tx }) => insertConfirmation(tx, sql.confirmationColumns(confirmation)),
  'confirmation.resolve': (write, { tx }) =>
    tx.run(sql.RESOLVE, { ...write, modified_json: json(write.modified) }, async ({ changes }) => {
      if (changes === 1) return;
      const { rows } = await tx.send<{ decision: string }>(sql.DECISION, [write.id]);
      const decision = rows[0]?.decision;
      if (decision === undefined) throw new Error(`no confirmation ${write.id}`);
      throw new JournalConflict('confirmation_resolved', `confirmation ${write.id} is resolved: ${decision}`);
    }),
  'checkpoint.insert': ({ checkpoint }, { tx }) => insertCheckpoint(tx, checkpoints.checkpointRow(checkpoint)),
  'worker.insert': ({ worker }, { tx }) => insertWorker(tx, { ...worker, edited_by_user: bit(worker.edited_by_user) }),
  'trusted_file.put': ({ file }, { tx }) => tx.run(others.PUT_TRUSTED_FILE, file),
  'trusted_file.remove': (write, { tx }) => tx.run(others.REMOVE_TRUSTED_FILE, write),
  'worker.replace': ({ worker }, { tx }) =>
    tx.run(others.REPLACE_WORKER, { ...worker, edited_by_user: bit(worker.edited_by_user) }),
  'meta.set': ({ key, value }, { tx }) => tx.run(others.SET_META, { key, value }),
  'idempotency.insert': ({ row }, { tx, clock }) => {
    tx.run(DROP_EXPIRED, [clock.now()]);
    insertKey(tx, row);
  },
};

export const patternWrites: Appliers<Extract<keyof Appliers, `pattern.${string}`>> = {
  'pattern.record': ({ record }, { tx }) => {
    tx.run(patterns.FINGERPRINT, record);
    const scored = record.score === null ? 0 : 1;
    tx.run(patterns.OUTCOME, { ...record, cost_pusd: toPusd(record.cost_usd), mean: record.score ?? 0, scored });
    tx.run(patterns.TURN, record, ({ changes }) => {
      if (changes === 0) throw new JournalConflict('turn_gone', `no turn ${record.turn_id}`);
    });
  },
  'pattern.score': (write, { tx }) => {
    tx.run(patterns.SCORED, write, async ({ rows }) => {
      const place = rows[0] as patterns.Scored | undefined;
      if (place === undefined || (place.before !== null && !write.replaces))
        throw new Error(`turn ${write.turn_id} takes no score`);
      await tx.send(patterns.SCORE_TURN, write);
      await tx.send(patterns.SCORE_OUTCOME, { ...write, ...place, added: place.before === null ? 1 : 0 });
    });
  },
  'pattern.forget': ({ fingerprint_id, primary_model }, { tx }) => {
    tx.run(patterns.FORGET, { fingerprint_id, primary_model });
    tx.run(patterns.DROP_EMPTY, [fingerprint_id]);
  },
};
