// What is sent to and answered by `/confirmations` (05 §3.3).
import { z } from 'zod';
import { AnswerSchema, ConfirmationSchema, ScopeSchema } from '../confirmation.ts';
import { ConfirmationIdSchema } from '../scalars.ts';
import { plainText } from '../text/plain-text.ts';

export const AnswerConfirmationBody = z
  .strictObject({
    decision: AnswerSchema,
    scope: ScopeSchema.default('once'),
    reason: z.string().max(500).overwrite(plainText).nullable().default(null),
    modified_input: z.record(z.string(), z.unknown()).nullable().default(null),
    /** Of a worker that is to be created: the whole definition, in place of `modified_input`. */
    modified_yaml: z.string().max(262_144).nullable().default(null),
  })
  .refine((b) => (b.modified_input === null && b.modified_yaml === null) || b.decision === 'modify', {
    path: ['modified_input'],
    message: 'belongs to decision "modify"',
  })
  .refine((b) => b.modified_input !== null || b.modified_yaml !== null || b.decision !== 'modify', {
    path: ['modified_input'],
    message: 'is required with decision "modify"',
  })
  .refine((b) => b.modified_input === null || b.modified_yaml === null, {
    path: ['modified_yaml'],
    message: 'stands beside modified_input; send one of the two',
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
