// Bodies and replies of `/tokens` and `/audit` (23 §2, §4).
import { z } from 'zod';
import { CountSchema, TimeSchema, UlidSchema, UsdSchema } from '../scalars.ts';
import { FileTokenSchema, PersonRefSchema, RoleSchema, TokenNameSchema } from './person.ts';

/** A token in answers. Its secret is in none but the answer that made it. */
export const TokenSchema = z.object({
  id: z.string(),
  name: z.string(),
  role: RoleSchema,
  /** The operator's file, or made at run time. */
  origin: z.enum(['file', 'server']),
  daily_usd: UsdSchema.nullable(),
  monthly_usd: UsdSchema.nullable(),
  spent_today_usd: UsdSchema,
  spent_this_month_usd: UsdSchema,
  workspaces: z.array(z.string()).nullable(),
  expires_at: TimeSchema.nullable(),
  created_at: TimeSchema.nullable(),
  revoked_at: TimeSchema.nullable(),
  /** Sessions of the token that have not ended. */
  open_sessions: CountSchema,
});
export type Token = z.infer<typeof TokenSchema>;

export const NewTokenBody = FileTokenSchema.omit({ token_sha256: true }).extend({ name: TokenNameSchema });
export type NewToken = z.infer<typeof NewTokenBody>;

export const MadeTokenReply = TokenSchema.extend({
  secret: z.string().describe('The token itself. No other answer has it.'),
});
export const TokenListReply = z.object({ tokens: z.array(TokenSchema) });

/** The caller of the request. */
export const OwnTokenReply = z.object({
  /** Null where no token is required, and for a token without a name. */
  token: TokenSchema.nullable(),
  role: RoleSchema,
  /** Whether the server requires a token. */
  required: z.boolean(),
});

/** An entry of the audit (23 §4). */
export const AuditEntrySchema = z.object({
  id: UlidSchema,
  at: TimeSchema,
  /** Null where no named token did it. */
  actor: PersonRefSchema.nullable(),
  action: z.string(),
  /** The session, token, worker or limit it was done to. */
  subject: z.string().nullable(),
  details: z.record(z.string(), z.unknown()),
});
export type AuditEntry = z.infer<typeof AuditEntrySchema>;

export const AuditListReply = z.object({ entries: z.array(AuditEntrySchema), next_cursor: z.string().nullable() });
