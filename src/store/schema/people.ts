// Tables of people: tokens made at run time, money by owner and day, and the audit (23 §2 to §4).
import { sql } from 'drizzle-orm';
import { check, index, integer, primaryKey, sqliteTable, text, uniqueIndex } from 'drizzle-orm/sqlite-core';
import { RoleSchema } from '#protocol/people/person.ts';

/** A revoked token stays, so that its name is not given out again. No column holds a secret. */
export const tokens = sqliteTable(
  'tokens',
  {
    id: text().primaryKey().notNull(),
    name: text().notNull(),
    token_sha256: text().notNull(),
    role: text().notNull(),
    daily_usd: text(),
    monthly_usd: text(),
    workspaces_json: text(),
    expires_at: integer(),
    created_by: text(),
    created_at: integer().notNull(),
    revoked_at: integer(),
  },
  (t) => [
    uniqueIndex('tokens_name').on(t.name),
    check('tokens_role', sql`role IN (${sql.raw(RoleSchema.options.map((role) => `'${role}'`).join(', '))})`),
  ],
);

/** Real money by the day in which its call ended, UTC: of sessions that a person owns, and of turns that a person submitted. */
export const owner_days = sqliteTable(
  'owner_days',
  {
    owner: text().notNull(),
    day: integer().notNull(),
    cost_pusd: integer().notNull(),
  },
  (t) => [primaryKey({ columns: [t.owner, t.day] })],
);

/** Insert-only; a purge of a session leaves it alone. */
export const audit = sqliteTable(
  'audit',
  {
    id: text().primaryKey().notNull(),
    at: integer().notNull(),
    actor: text(),
    action: text().notNull(),
    subject: text(),
    details_json: text().notNull(),
  },
  (t) => [index('audit_time').on(t.at)],
);
