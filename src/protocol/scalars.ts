// Shapes shared by all nouns: ids, time, money, hashes, enums (01 §1-§3).
import { z } from 'zod';
import {
  type ConfirmationId,
  type EventId,
  type MessageId,
  type RequestId,
  SESSION_ID_PATTERN,
  type SessionId,
  TOOL_USE_ID_PATTERN,
  type ToolUseId,
  type TurnId,
  ULID_PATTERN,
} from './ids.ts';
import { fromPusd, SIGNED_USD_PATTERN, toPusd, USD_LIMIT_PATTERN, USD_PATTERN } from './money.ts';

const ulid = <T extends string>() =>
  z.string().regex(ULID_PATTERN, 'must be a ULID') as unknown as z.ZodType<T, T> & z.ZodString;

export const UlidSchema = z.string().regex(ULID_PATTERN, 'must be a ULID');
export const SessionIdSchema = z
  .string()
  .regex(SESSION_ID_PATTERN, 'must be a session id (sess_<ULID>)') as unknown as z.ZodType<SessionId, SessionId>;
export const ToolUseIdSchema = z
  .string()
  .regex(TOOL_USE_ID_PATTERN, 'must be a tool use id (tu_<ULID>)') as unknown as z.ZodType<ToolUseId, ToolUseId>;
export const TurnIdSchema = ulid<TurnId>();
export const MessageIdSchema = ulid<MessageId>();
export const EventIdSchema = ulid<EventId>();
export const RequestIdSchema = ulid<RequestId>();
export const ConfirmationIdSchema = ulid<ConfirmationId>();

/** Longest path taken. */
const MAX_PATH = 4096;
/** A folder of the server's machine as a caller names it. */
export const WorkspacePathSchema = z
  .string()
  .max(MAX_PATH)
  .regex(/^(\/|~(\/|$))/, 'must be absolute or begin with ~');

/** ISO-8601 UTC with milliseconds. */
export const TimeSchema = z.string().regex(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/, 'must be an ISO-8601 UTC time');
/** Exact decimal US dollars; never a JSON number. */
export const UsdSchema = z.string().regex(USD_PATTERN, 'must be a decimal string');
export const SignedUsdSchema = z.string().regex(SIGNED_USD_PATTERN, 'must be a decimal string');
/** A money limit a caller may set: more than 0, below a million, at most 6 fraction digits (14 §1). */
export const UsdLimitSchema = z
  .string({ error: 'must be a decimal string such as "0.50"' })
  .regex(USD_LIMIT_PATTERN, 'must be a decimal string below 1000000 with at most 6 fraction digits')
  .refine((v) => /[1-9]/.test(v), 'must be more than 0')
  .overwrite(shortest);

/** `0.50` as `0.5`: every amount leaves in its one shortest form. */
function shortest(limit: string): string {
  if (/^\d+(\.\d{1,6})?$/.test(limit)) return fromPusd(toPusd(limit));
  return limit;
}

export const Sha256Schema = z.string().regex(/^[0-9a-f]{64}$/, 'must be a lower-case hex SHA-256');
export const CountSchema = z.int().min(0);

export const TierSchema = z.enum(['fast', 'balanced', 'deep']);
export type Tier = z.infer<typeof TierSchema>;
/** How hard a model thinks, the least first (22 §1). */
export const EffortSchema = z.enum(['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max']);
export type Effort = z.infer<typeof EffortSchema>;
export const SideEffectsSchema = z.enum(['none', 'read', 'write', 'execute', 'network']);
export type SideEffects = z.infer<typeof SideEffectsSchema>;
export const ApprovalModeSchema = z.enum(['interactive', 'approve_all', 'strict']);
export type ApprovalMode = z.infer<typeof ApprovalModeSchema>;
export const OnReachedSchema = z.enum(['pause', 'stop']);
export type OnReached = z.infer<typeof OnReachedSchema>;
/** The way a session came in (19 §1). */
export const DoorSchema = z.enum(['api', 'gateway', 'mcp', 'acp']);
export type Door = z.infer<typeof DoorSchema>;
export const WorkerOriginSchema = z.enum(['project', 'session']);
export type WorkerOrigin = z.infer<typeof WorkerOriginSchema>;
export const ErrorClassSchema = z.enum([
  'rate_limit',
  'auth',
  'server_error',
  'network',
  'context_overflow',
  'invalid_request',
  'cancelled',
  'other',
]);
export type ErrorClass = z.infer<typeof ErrorClassSchema>;
