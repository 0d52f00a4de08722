// Changes of tokens and of the audit (23 §2, §4).
import { JournalConflict } from '#core/ports/journal-writer.ts';
import { json } from '../schema/words.ts';
import { type Appliers, insertRow } from './transaction.ts';

export const TOKEN_COLUMNS = [
  'id',
  'name',
  'token_sha256',
  'role',
  'daily_usd',
  'monthly_usd',
  'workspaces_json',
  'expires_at',
  'created_by',
  'created_at',
  'revoked_at',
] as const;
const AUDIT_COLUMNS = ['id', 'at', 'actor', 'action', 'subject', 'details_json'] as const;

const REVOKE = `UPDATE tokens SET revoked_at = @at WHERE id = @id AND (role <> 'admin' OR @other_admins > 0
  OR EXISTS (SELECT 1 FROM tokens o WHERE o.id <> @id AND o.role = 'admin' AND o.revoked_at IS NULL
    AND (o.expires_at IS NULL OR o.expires_at > @at)))`;
const DROP_OLD = 'DELETE FROM audit WHERE at < @before';
const insertToken = insertRow('tokens', TOKEN_COLUMNS, 'ON CONFLICT (name) DO NOTHING');
const insertEntry = insertRow('audit', AUDIT_COLUMNS);

export const peopleWrites: Appliers<Extract<keyof Appliers, `token.${string}` | 'audit.insert'>> = {
  'token.insert': ({ token: { workspaces, ...token } }, { tx }) =>
    insertToken(tx, { ...token, workspaces_json: json(workspaces) }, ({ changes }) => {
      if (changes === 1) return;
      throw new JournalConflict('name_taken', `a token had the name ${token.name} before`);
    }),
  'token.revoke': (write, { tx }) =>
    tx.run(REVOKE, write, ({ changes }) => {
      if (changes === 0) throw new JournalConflict('last_admin', `token ${write.id} is the last of an admin`);
    }),
  'audit.insert': ({ entry: { details, ...entry }, drop_before }, { tx }) => {
    if (drop_before !== null) tx.run(DROP_OLD, { before: drop_before });
    insertEntry(tx, { ...entry, details_json: JSON.stringify(details) });
  },
};
