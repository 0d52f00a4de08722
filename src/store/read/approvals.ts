// Confirmations: open approvals and remembered decisions (09 §6, 13 §7.4).

import type { ConfirmationReader, SessionQuery } from '#core/ports/store-reader.ts';
import { type ConfirmationRowStored, confirmationRow, selectPersonName, wireConfirmation } from '../schema/rows.ts';
import { WITH_TREE } from '../schema/words.ts';
import { whereSeen } from './people.ts';
import { type Reads, toPage } from './read-database.ts';

/** Few approvals are open at a time, so SQLite must begin with their index in every query. */
const PENDING = 'confirmations {index(confirmations_open)} WHERE decision IS NULL';
/** The worker definition, whose rule descriptions are shown to the approver, and the name of who answered. */
const RULES = `(SELECT worker_definition_json FROM sessions WHERE sessions.id = confirmations.session_id) AS worker_definition_json,
  ${selectPersonName('confirmations.answered_by')}`;
const FROM = {
  pending: PENDING,
  resolved: 'confirmations WHERE decision IS NOT NULL',
  all: 'confirmations WHERE TRUE',
} as const;

export const BY_ID = `SELECT *, ${RULES} FROM confirmations WHERE id = ?`;
export const OPEN = `SELECT * FROM ${PENDING} ORDER BY id`;
export const OPEN_OF_TREE = `SELECT * FROM ${PENDING} AND root_session_id = ? ORDER BY id`;
export const GRANT = `SELECT 1 AS found FROM confirmations
  WHERE root_session_id = ? AND key_hash = ? AND scope = 'identical' AND decision = 'approve' LIMIT 1`;

export interface ConfirmationQuery {
  readonly session_id: string | null;
  readonly reader: SessionQuery['reader'];
  readonly status: keyof typeof FROM;
  readonly after: string | null;
  readonly limit: number;
}

/** Reads one row more than the page holds. */
export function listQuery({ session_id, reader, status, after, limit }: ConfirmationQuery) {
  const seen = whereSeen(reader, 'r');
  const inTree = session_id === null ? '' : 'AND session_id IN (SELECT id FROM tree)';
  const scope =
    seen === null
      ? inTree
      : `${inTree} AND EXISTS (SELECT 1 FROM sessions r WHERE r.id = confirmations.root_session_id AND ${seen.sql})`;
  return {
    sql: `${session_id === null ? '' : WITH_TREE} SELECT *, ${RULES} FROM ${FROM[status]} ${scope}
      AND id > ? ORDER BY id LIMIT ?`,
    values: [...(session_id === null ? [] : [session_id]), ...(seen?.values ?? []), after ?? '', limit + 1],
  };
}

export function createConfirmationReader({ all, get }: Reads): ConfirmationReader {
  const byId = (id: string) => get<ConfirmationRowStored>(BY_ID, id);
  return {
    view: async (id) => {
      const row = await byId(id);
      if (row === undefined) return null;
      return { ...wireConfirmation(row), input: { ...confirmationRow(row).input } };
    },
    record: async (id) => {
      const row = await byId(id);
      if (row === undefined) return null;
      return confirmationRow(row);
    },
    list: async (query) => {
      const page = listQuery(query);
      const rows = await all<ConfirmationRowStored>(page.sql, ...page.values);
      return toPage(rows, query.limit, (row) => row.id, wireConfirmation);
    },
    allOpen: async (root) =>
      (root === undefined
        ? await all<ConfirmationRowStored>(OPEN)
        : await all<ConfirmationRowStored>(OPEN_OF_TREE, root)
      ).map(confirmationRow),
    isGranted: async (rootSessionId, keyHash) => (await get(GRANT, rootSessionId, keyHash)) !== undefined,
  };
}
