// Confirmations: open approvals and remembered answers (09 §6, 13 §7.4).
import type { ConfirmationReader } from '#core/ports/store.ts';
import * as sql from '#store/read/confirmations.ts';
import { pageOf } from '#store/read/page.ts';
import { type ConfirmationRowStored, confirmationRow, wireConfirmation } from '#store/schema/rows.ts';
import type { Reads } from '../connection/reads.ts';

export function createConfirmationReader({ all, get }: Reads): ConfirmationReader {
  const byId = (id: string) => get<ConfirmationRowStored>(sql.BY_ID, id);
  return {
    view: async (id) => {
      const row = await byId(id);
      return row === undefined ? null : { ...wireConfirmation(row), input: { ...confirmationRow(row).input } };
    },
    record: async (id) => {
      const row = await byId(id);
      return row === undefined ? null : confirmationRow(row);
    },
    list: async (query) => {
      const page = sql.pageOf(query);
      const rows = await all<ConfirmationRowStored>(page.sql, ...page.values);
      return pageOf(rows, query.limit, (row) => row.id, wireConfirmation);
    },
    allOpen: async (root) =>
      (root === undefined
        ? await all<ConfirmationRowStored>(sql.OPEN)
        : await all<ConfirmationRowStored>(sql.OPEN_OF_TREE, root)
      ).map(confirmationRow),
    granted: async (rootSessionId, keyHash) => (await get(sql.GRANT, rootSessionId, keyHash)) !== undefined,
  };
}
