// What is sent to and answered by `/sessions/{id}/turns` (05 §3.2) and `/estimate` (14 §4).
import { z } from 'zod';
import { plainText } from '../../kernel/plain-text.ts';
import { ImageBlockSchema, TextBlockSchema } from '../message.ts';
import { PolicyEvaluationSchema } from '../route.ts';
import { CountSchema, MessageIdSchema, SessionIdSchema, TimeSchema, TurnIdSchema, UsdSchema } from '../scalars.ts';
import { TurnSchema } from '../turn.ts';

const FileImageSchema = z.strictObject({
  type: z.literal('image'),
  source: z.strictObject({ kind: z.literal('file_ref'), data: z.string().min(1).max(4096) }),
  media_type: z.string(),
});
const IntakeBlockSchema = z.union([TextBlockSchema, ImageBlockSchema, FileImageSchema], {
  error: 'must be a text block, or an image block with a base64 or file_ref source',
});

export const SubmitTurnBody = z.strictObject({
  content: z.union([z.string(), z.array(IntakeBlockSchema)], {
    error: (issue) => (issue.input === undefined ? 'is required: a string or a list of blocks' : undefined),
  }),
  per_message_override: z.string().min(1).nullable().default(null),
  if_busy: z.enum(['reject', 'interrupt']).default('reject'),
});

export const EstimateTurnBody = SubmitTurnBody.omit({ if_busy: true });
export const EstimateTurnReply = z.object({
  chosen_model: z.string(),
  chain: z.array(PolicyEvaluationSchema).length(7),
  estimated_input_tokens: CountSchema,
  cost_floor_usd: UsdSchema,
  cost_ceiling_usd: UsdSchema,
  fits_budget: z.boolean(),
  limits: z.array(
    z.object({
      scope: z.enum(['session', 'delegation', 'day']),
      limit_usd: UsdSchema,
      spent_usd: UsdSchema,
      reserved_usd: UsdSchema,
      remaining_usd: UsdSchema,
    }),
  ),
});

export const TurnReceipt = z.object({
  turn_id: TurnIdSchema,
  session_id: SessionIdSchema,
  submitted_at: TimeSchema,
  user_message_id: MessageIdSchema,
});

export const TurnListReply = z.object({ turns: z.array(TurnSchema), next_cursor: z.string().nullable() });

export const CancelTurnBody = z.strictObject({
  reason: z.string().max(200).overwrite(plainText).nullable().default(null),
});
export const CancelTurnReply = z.object({ turn_id: TurnIdSchema, cancellation_initiated: z.literal(true) });
export const ResumeTurnReply = z.object({ turn_id: TurnIdSchema, resumed: z.literal(true) });
