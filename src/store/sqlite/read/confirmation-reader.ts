// Confirmations: open approvals and remembered answers (09 §6, 13 §7.4).
import type { ConfirmationReader } from '#core/ports/store.ts';
import * as sql from '#store/read/confirmations.ts';
import { pageOf } from '#store/read/page.ts';
import { type ConfirmationRowStored, confirmationRow, wireConfirmation } from '#store/schema/rows.ts';
import type { SqliteStoreHandle } from '../connection/open.ts';
import { createStatementCache } from '../connection/statements.ts';

export function createConfirmationReader({ db }: SqliteStoreHandle): ConfirmationReader {
  const byId = db.prepare<[string], ConfirmationRowStored>(sql.BY_ID);
  const listed = createStatementCache<ConfirmationRowStored>(db);
  const open = db.prepare<[], ConfirmationRowStored>(sql.OPEN);
  const openOfTree = db.prepare<[string], ConfirmationRowStored>(sql.OPEN_OF_TREE);
  const grant = db.prepare(sql.GRANT);

  return {
    view: async (id) => {
      const row = byId.get(id);
      return row === undefined ? null : { ...wireConfirmation(row), input: { ...confirmationRow(row).input } };
    },
    record: async (id) => {
      const row = byId.get(id);
      return row === undefined ? null : confirmationRow(row);
    },
    list: async (query) => {
      const page = sql.pageOf(query);
      return pageOf(listed(page.sql).all(...page.values), query.limit, (row) => row.id, wireConfirmation);
    },
    allOpen: async (root) => (root === undefined ? open.all() : openOfTree.all(root)).map(confirmationRow),
    granted: async (rootSessionId, keyHash) => grant.get(rootSessionId, keyHash) !== undefined,
  };
}
