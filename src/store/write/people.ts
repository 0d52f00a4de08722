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

const REVOKE = 'UPDATE tokens SET revoked_at = @at WHERE id = @id AND revoked_at IS NULL';
const insertToken = insertRow('tokens', TOKEN_COLUMNS, 'ON CONFLICT (name) DO NOTHING');
const insertEntry = insertRow('audit', AUDIT_COLUMNS);

export const peopleWrites: Appliers<Extract<keyof Appliers, `token.${string}` | 'audit.insert'>> = {
  'token.insert': ({ token: { workspaces, ...token } }, { tx }) =>
    insertToken(tx, { ...token, workspaces_json: json(workspaces) }, ({ changes }) => {
      if (changes === 1) return;
      throw new JournalConflict('name_taken', `a token had the name ${token.name} before`);
    }),
  'token.revoke': (write, { tx }) => tx.run(REVOKE, write),
  'audit.insert': ({ entry: { details, ...entry } }, { tx }) =>
    insertEntry(tx, { ...entry, details_json: JSON.stringify(details) }),
};
