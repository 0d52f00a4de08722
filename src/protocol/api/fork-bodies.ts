// Bodies and replies of forks and of comparisons (05 §3.1, 21 §4).
import { z } from 'zod';
import { FileChangeSchema, MAX_CHANGED_FILES } from '../file-change.ts';
import { RoleSchema } from '../message.ts';
import { CountSchema, MessageIdSchema, TurnIdSchema, UsdLimitSchema, UsdSchema } from '../scalars.ts';
import { SessionSchema } from '../session.ts';

export const ForkBodySchema = z
  .strictObject({
    /** The fork begins behind this message, or behind this turn. */
    at_message_id: MessageIdSchema.nullable().default(null),
    at_turn_id: TurnIdSchema.nullable().default(null),
    /** Id or alias; null = as the original. */
    model: z.string().min(1).nullable().default(null),
    /** Null = as configured for a new session. */
    max_cost_usd: UsdLimitSchema.nullable().default(null),
    workspace: z.enum(['worktree', 'current', 'none']),
    /** The fork's first message, whose turn starts at once. */
    message: z.string().min(1).nullable().default(null),
    /** Answer what the fork would be, and make nothing. */
    dry_run: z.boolean().default(false),
  })
  .refine(({ at_message_id, at_turn_id }) => (at_message_id === null) !== (at_turn_id === null), {
    path: ['at_message_id'],
    message: 'or at_turn_id is required, and not both',
  });
export type ForkBody = z.infer<typeof ForkBodySchema>;

export const ForkReplySchema = z.object({
  /** Null = a dry run. */
  session: SessionSchema.nullable(),
  /** The turn of `message`. */
  turn_id: TurnIdSchema.nullable(),
  prefix_messages: CountSchema,
  /** The model that `first_call_usd` is for: the fork's own, else the model of the last answer before the fork. */
  model: z.string().nullable(),
  /** What the messages before the fork cost as input of its first call; null without a price. */
  first_call_usd: UsdSchema.nullable(),
  workspace_note: z.string(),
});
export type ForkReply = z.infer<typeof ForkReplySchema>;

/** What one session did behind the messages that both have; its workers included. */
const ComparedSideSchema = z.object({
  session_id: SessionSchema.shape.id,
  /** Of its last answer. */
  model: z.string().nullable(),
  calls: CountSchema,
  tool_calls: CountSchema,
  workers: CountSchema,
  input_tokens: CountSchema,
  output_tokens: CountSchema,
  cost_usd: UsdSchema,
  /** Of its own turns. */
  wall_time_seconds: z.number().min(0),
  changed_files: z.array(FileChangeSchema).max(MAX_CHANGED_FILES),
  final_text: z.string().nullable(),
});
export type ComparedSide = z.infer<typeof ComparedSideSchema>;

const StepSchema = z.object({ message_id: MessageIdSchema, role: RoleSchema, text: z.string() });
export type ComparedStep = z.infer<typeof StepSchema>;

export const CompareReplySchema = z.object({
  /** What both begin with; it was paid once. */
  shared: z.object({ messages: CountSchema, calls: CountSchema, cost_usd: UsdSchema }),
  a: ComparedSideSchema,
  b: ComparedSideSchema,
  /** The first messages that differ, counted from 0 behind the shared ones; null = there is none. A side without a message there is null. */
  first_difference: z.object({ index: CountSchema, a: StepSchema.nullable(), b: StepSchema.nullable() }).nullable(),
});
export type CompareReply = z.infer<typeof CompareReplySchema>;
