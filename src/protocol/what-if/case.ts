// A recorded session: where it began, and its model calls, so that it can run again without a model (21 §3).
import { z } from 'zod';
import { AnswerSchema, ScopeSchema } from '../confirmation.ts';
import { PurposeSchema } from '../event/turn-events.ts';
import type { RequestId, SessionId } from '../ids.ts';
import { ContentBlockSchema, RoleSchema, StopReasonSchema } from '../message.ts';
import {
  ErrorClassSchema,
  MessageIdSchema,
  SessionIdSchema,
  Sha256Schema,
  TurnIdSchema,
  UlidSchema,
} from '../scalars.ts';
import { TokenUsageSchema } from '../usage.ts';

export const CaseStartSchema = z.discriminatedUnion('kind', [
  z.strictObject({
    kind: z.literal('snapshot'),
    /** The git folder that the ref lies in. */
    repository: z.string(),
    /** A commit without a parent. */
    ref: z.string(),
    /** The workspace's place in the tree, with a final slash; '' = the tree itself. */
    prefix: z.string(),
  }),
  z.strictObject({
    kind: z.literal('listing'),
    /** SHA-256 of each file, by its path in the workspace. */
    files: z.record(z.string(), Sha256Schema),
  }),
]);
/** The workspace as it was when the session was opened. */
export type CaseStart = z.infer<typeof CaseStartSchema>;

const Schema = z.record(z.string(), z.unknown());
/** What a request has beside its messages. */
export const CaseHeadSchema = z.strictObject({
  model: z.string(),
  effort: z.string().nullable(),
  system_prompt: z.string().nullable(),
  system_prompt_volatile: z.string().nullable(),
  tools: z.array(z.strictObject({ name: z.string(), description: z.string(), input_schema: Schema })),
  tool_choice: z.literal('none').nullable(),
  max_output_tokens: z.int(),
  output_schema: Schema.nullable(),
  cache_ttl: z.enum(['5m', '1h']),
});
export type CaseHead = z.infer<typeof CaseHeadSchema>;

export const CaseMessageSchema = z.strictObject({ role: RoleSchema, content: z.array(ContentBlockSchema) });
export type CaseMessage = z.infer<typeof CaseMessageSchema>;

/** What is billed beside the tokens, as the adapter reported it. */
const CaseBillSchema = z.strictObject({
  rounds: z.array(z.record(z.string(), z.unknown())),
  uses: z.record(z.string(), z.int().min(0)),
  terms: z.record(z.string(), z.string().nullable()),
  rounds_unknown: z.boolean(),
  /** Attempts that broke off and were repeated. */
  lost: z.array(TokenUsageSchema).optional(),
});

export const CaseAnswerSchema = z.strictObject({
  stop_reason: StopReasonSchema,
  content: z.array(ContentBlockSchema),
  usage: TokenUsageSchema,
  bill: CaseBillSchema.nullable(),
  served_model: z.string().nullable(),
});
export const CaseErrorSchema = z.strictObject({
  error_class: ErrorClassSchema,
  error_detail: z.string().nullable(),
  message: z.string(),
  usage: TokenUsageSchema.nullable(),
});

/** One model call. Of a session's calls each holds what the one before it does not. */
export const CaseCallSchema = z.strictObject({
  purpose: PurposeSchema,
  is_worker: z.boolean(),
  parent_session_id: SessionIdSchema.nullable(),
  /** Null = as in the call before. */
  head: CaseHeadSchema.nullable(),
  /** Number of messages that it begins with as the call before did. */
  same_messages: z.int().min(0),
  messages: z.array(CaseMessageSchema),
  /** Null where the call failed before it had an answer. */
  answer: CaseAnswerSchema.nullable(),
  error: CaseErrorSchema.nullable(),
});
export type CaseCall = z.infer<typeof CaseCallSchema>;

export const CaseApprovalSchema = z.strictObject({
  tool_name: z.string(),
  input: z.record(z.string(), z.unknown()),
  decision: AnswerSchema,
  scope: ScopeSchema,
  reason: z.string().nullable(),
  modified_input: z.record(z.string(), z.unknown()).nullable(),
});

export type CaseApproval = z.infer<typeof CaseApprovalSchema>;

/** As it is stored. */
export interface CaseCallRecord {
  readonly request_id: RequestId;
  readonly session_id: SessionId;
  readonly root_session_id: SessionId;
  readonly call: CaseCall;
}

export const CaseReplySchema = z.object({
  start: CaseStartSchema,
  /** Messages of a person, oldest first; on the first page alone. */
  messages: z.array(
    z.object({ message_id: MessageIdSchema, turn_id: TurnIdSchema.nullable(), content: z.array(ContentBlockSchema) }),
  ),
  /** Answers of a person, in the order in which they were asked for; on the first page alone. */
  approvals: z.array(CaseApprovalSchema),
  /** Of the session and its workers, in the order in which they began. */
  calls: z.array(z.object({ request_id: UlidSchema, session_id: SessionIdSchema, call: CaseCallSchema })),
  next_cursor: z.string().nullable(),
});
export type RecordedCase = z.infer<typeof CaseReplySchema>;
