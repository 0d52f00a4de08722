// Changes of sessions: a session ends once, and nothing changes an ended one (01 §7.1, §7.2).

import { checkSessionLinks, type ParentLinks } from '#core/policy/journal/conditions.ts';
import { JournalConflict } from '#core/ports/journal-writer.ts';
import { toPusd } from '#protocol/money.ts';
import { json } from '#store/schema/values.ts';
import * as sql from '#store/write/sessions.ts';
import { insertRow } from './insert.ts';
import type { Appliers, Step } from './writes.ts';

const insert = insertRow('sessions', sql.COLUMNS);

/** Of top-level sessions alone: they are their trees. */
const SET_PLACE = 'UPDATE trees SET place = ? WHERE root_session_id = ?';

/** Runs a conditional change; when no row met it, says why. */
function change(statement: string, session_id: string, values: object, { tx, effects }: Step): void {
  effects.sessions.push({ id: session_id, values: null });
  tx.run(statement, { ...values, session_id }, async ({ changes }) => {
    if (changes === 1) return;
    const { rows } = await tx.send(sql.EXISTS, [session_id]);
    if (rows.length === 0) throw new Error(`no session ${session_id}`);
    throw new JournalConflict('session_ended', `session ${session_id} has ended`);
  });
}

export const sessionWrites: Appliers<Extract<keyof Appliers, `session.${string}`>> = {
  'session.insert': ({ session }, { tx }) => {
    const parent = session.parent_session_id;
    if (parent === null) checkSessionLinks(session, () => null);
    else {
      tx.run(sql.PARENT, [parent], ({ rows }) =>
        checkSessionLinks(session, () => (rows[0] as ParentLinks | undefined) ?? null),
      );
    }
    insert(tx, sql.sessionRow(session));
  },
  'session.set_model': (write, step) => change(sql.SET_MODEL, write.session_id, write, step),
  'session.queue_model': (write, step) =>
    change(sql.QUEUE_MODEL, write.session_id, { ...write, pending: json(write.pending) }, step),
  'session.set_limit': (write, step) => {
    const max_cost_pusd = write.max_cost_usd === null ? null : toPusd(write.max_cost_usd);
    change(sql.SET_LIMIT, write.session_id, { ...write, max_cost_pusd }, step);
  },
  'session.set_on_reached': (write, step) => change(sql.SET_ON_REACHED, write.session_id, write, step),
  'session.set_workspace': (write, step) => {
    change(sql.SET_WORKSPACE, write.session_id, write, step);
    step.tx.run(SET_PLACE, [step.trees.placeOf(write.workspace_path), write.session_id]);
  },
  'session.warned': ({ session_id, limit_usd }, step) =>
    change(sql.SET_WARNED, session_id, { limit_pusd: toPusd(limit_usd) }, step),
  'session.set_policy_version': (write, step) => change(sql.SET_POLICY_VERSION, write.session_id, write, step),
  'session.end': (write, step) => {
    change(sql.END, write.session_id, write, step);
    step.effects.ended.push(write.session_id);
  },
};
