// Confirmations: open approvals and remembered answers (09 §6, 13 §7.4).
import type { ConfirmationReader } from '../../../ports/store.ts';
import type { SqliteStoreHandle } from '../connection/open.ts';
import { createStatementCache } from '../connection/statements.ts';
import { type ConfirmationRowStored, confirmationRow, wireConfirmation } from '../schema/rows.ts';
import { WITH_TREE } from '../schema/words.ts';
import { pageOf } from './page.ts';

/** Few approvals are open at a time, of all that ever were: wherever they are asked for, SQLite must begin with them. */
const PENDING = 'confirmations INDEXED BY confirmations_open WHERE decision IS NULL';
const FROM = {
  pending: PENDING,
  resolved: 'confirmations WHERE decision IS NOT NULL',
  all: 'confirmations WHERE 1',
} as const;

export function createConfirmationReader({ db }: SqliteStoreHandle): ConfirmationReader {
  const byId = db.prepare<[string], ConfirmationRowStored>('SELECT * FROM confirmations WHERE id = ?');
  const listed = createStatementCache<ConfirmationRowStored>(db);
  const open = db.prepare<[], ConfirmationRowStored>(`SELECT * FROM ${PENDING} ORDER BY id`);
  const openOfTree = db.prepare<[string], ConfirmationRowStored>(
    `SELECT * FROM ${PENDING} AND root_session_id = ? ORDER BY id`,
  );
  const grant = db.prepare(`
    SELECT 1 FROM confirmations
    WHERE root_session_id = ? AND key_hash = ? AND scope = 'identical' AND decision = 'approve' LIMIT 1`);

  return {
    view: async (id) => {
      const row = byId.get(id);
      return row === undefined ? null : { ...wireConfirmation(row), input: { ...confirmationRow(row).input } };
    },
    record: async (id) => {
      const row = byId.get(id);
      return row === undefined ? null : confirmationRow(row);
    },
    list: async ({ session_id, status, after, limit }) => {
      const scope = session_id === null ? '' : 'AND session_id IN (SELECT id FROM tree)';
      const sql = `${session_id === null ? '' : WITH_TREE} SELECT * FROM ${FROM[status]} ${scope}
        AND id > ? ORDER BY id LIMIT ?`;
      const rows = listed(sql).all(...(session_id === null ? [] : [session_id]), after ?? '', limit + 1);
      return pageOf(rows, limit, (row) => row.id, wireConfirmation);
    },
    allOpen: async (root) => (root === undefined ? open.all() : openOfTree.all(root)).map(confirmationRow),
    granted: async (rootSessionId, keyHash) => grant.get(rootSessionId, keyHash) !== undefined,
  };
}
