// What is sent to and answered by `/confirmations` (05 §3.3).
import { z } from 'zod';
import { plainText } from '../../kernel/plain-text.ts';
import { AnswerSchema, ConfirmationSchema, ScopeSchema } from '../confirmation.ts';
import { ConfirmationIdSchema } from '../scalars.ts';

export const AnswerConfirmationBody = z
  .strictObject({
    decision: AnswerSchema,
    scope: ScopeSchema.default('once'),
    reason: z.string().max(500).overwrite(plainText).nullable().default(null),
    modified_input: z.record(z.string(), z.unknown()).nullable().default(null),
  })
  .refine((b) => b.modified_input === null || b.decision === 'modify', {
    path: ['modified_input'],
    message: 'belongs to decision "modify"',
  })
  .refine((b) => b.modified_input !== null || b.decision !== 'modify', {
    path: ['modified_input'],
    message: 'is required with decision "modify"',
  });

export const AnswerConfirmationReply = z.object({
  confirmation_request_id: ConfirmationIdSchema,
  decision: AnswerSchema,
  scope: ScopeSchema,
  applied: z.boolean(),
});
export const ConfirmationListReply = z.object({
  confirmations: z.array(ConfirmationSchema),
  next_cursor: z.string().nullable(),
});
