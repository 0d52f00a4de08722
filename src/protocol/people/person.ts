// People of a server: their roles, their tokens, and who sees a session (23 §1).
import { z } from 'zod';
import {
  CountSchema,
  Sha256Schema,
  TimeSchema,
  UlidSchema,
  UsdLimitSchema,
  UsdSchema,
  WorkspacePathSchema,
} from '../scalars.ts';

export const RoleSchema = z.enum(['viewer', 'member', 'admin']);
export type Role = z.infer<typeof RoleSchema>;

/** What everybody but the owner and admins may do with a session: nothing, read, or write as well. */
export const ShareSchema = z.enum(['private', 'read', 'write']);
export type Share = z.infer<typeof ShareSchema>;

/** Names of tokens and of gateway keys, which are one namespace. */
export const TokenNameSchema = z
  .string()
  .regex(/^[A-Za-z0-9_-]{1,64}$/, 'must be a name of 1 to 64 letters, digits, _ and -');

const MAX_FOLDERS = 100;

/** A token in the operator's file. */
export const FileTokenSchema = z.strictObject({
  token_sha256: Sha256Schema,
  role: RoleSchema,
  daily_usd: UsdLimitSchema.nullable().default(null),
  monthly_usd: UsdLimitSchema.nullable().default(null),
  /** Folders of which the token may open workspaces; null = all that the server may use. */
  workspaces: z.array(WorkspacePathSchema).max(MAX_FOLDERS).nullable().default(null),
  expires_at: z.iso
    .datetime({ offset: true, error: 'must be an RFC 3339 time with an offset' })
    .nullable()
    .default(null),
});
export type FileToken = z.infer<typeof FileTokenSchema>;

/** A token that was made at run time, as it is stored. Times are Unix milliseconds; a revoked token stays. */
export interface TokenRecord {
  readonly id: string;
  readonly name: string;
  readonly token_sha256: string;
  readonly role: Role;
  /** Decimal US dollars. */
  readonly daily_usd: string | null;
  readonly monthly_usd: string | null;
  readonly workspaces: readonly string[] | null;
  readonly expires_at: number | null;
  readonly created_by: string | null;
  readonly created_at: number;
  readonly revoked_at: number | null;
}

/** Who a request comes from. */
export interface Person {
  /** Id of the token; null for a nameless admin, and where no token is required. */
  readonly id: string | null;
  /** '' without a name. */
  readonly name: string;
  readonly role: Role;
  readonly workspaces: readonly string[] | null;
}

/** The caller where no token is required, and of a nameless token: may do everything, owns nothing. */
export const NAMELESS_ADMIN: Person = { id: null, name: '', role: 'admin', workspaces: null };

/** A person in answers. */
export const PersonRefSchema = z.object({ id: z.string(), name: z.string() });
export type PersonRef = z.infer<typeof PersonRefSchema>;

/** Tokens of the operator's file and keys of the gateway have no row: their ids hold their names. */
const NAMED_ID = /^(?:file|key):(.+)$/;

export function makeFileTokenId(name: string): string {
  return `file:${name}`;
}
export function makeGatewayKeyId(name: string): string {
  return `key:${name}`;
}

/**
 * The person of an id, for an answer.
 * @param stored the name of its row, if it has one
 */
export function toPersonRef(id: string, stored: string | null): PersonRef {
  return { id, name: stored ?? NAMED_ID.exec(id)?.[1] ?? id };
}

/** The id of a person who sees no private sessions of others; null = a reader who sees all. */
export type Reader = { readonly id: string | null } | null;

/** What decides who sees a session. */
export interface Ownership {
  readonly owner: string | null;
  readonly share: Share;
}

/** What is recorded. */
export const AUDIT_ACTIONS = [
  'login.refused',
  'token.created',
  'token.revoked',
  'limit.changed',
  'approval.answered',
  'worker.changed',
  'session.shared',
  'session.given',
  'session.ended',
  'session.purged',
  'session.private_read',
] as const;
export type AuditAction = (typeof AUDIT_ACTIONS)[number];

/** The same as it is stored. */
export interface AuditRecord {
  readonly id: string;
  readonly at: number;
  readonly actor: string | null;
  readonly action: AuditAction;
  readonly subject: string | null;
  readonly details: Readonly<Record<string, unknown>>;
}

// Bodies and replies of `/tokens` and `/audit` (23 §2, §4).

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
  /** Whether members may answer approvals of their own sessions. */
  approves_own: z.boolean(),
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
