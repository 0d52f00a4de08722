// A confirmation: one question to a person about one call, and its answer (09 §6, 05 §2).
import { z } from 'zod';
import { ToolConfirmationRequestedSchema } from './event/tool-events.ts';
import { PersonRefSchema } from './people/person.ts';
import { SessionIdSchema, TimeSchema, TurnIdSchema } from './scalars.ts';

export const DecisionSchema = z.enum(['approve', 'reject', 'modify', 'timeout', 'cancelled']);
export type Decision = z.infer<typeof DecisionSchema>;
/** Answers that a user may give. */
export const AnswerSchema = z.enum(['approve', 'reject', 'modify']);
export const ScopeSchema = z.enum(['once', 'identical', 'always']);
export type Scope = z.infer<typeof ScopeSchema>;
export const ResolvedBySchema = z.enum(['user', 'policy']);

export const ConfirmationSchema = ToolConfirmationRequestedSchema.extend({
  session_id: SessionIdSchema,
  turn_id: TurnIdSchema,
  requested_at: TimeSchema,
  rule_description: z.string().nullable(),
  decision: DecisionSchema.nullable(),
  scope: ScopeSchema.nullable(),
  reason: z.string().nullable(),
  resolved_by: ResolvedBySchema.nullable(),
  resolved_at: TimeSchema.nullable(),
  /** The named token that answered it (23 §4). */
  answered_by: PersonRefSchema.optional(),
});
/** The wire object of the list. */
export type Confirmation = z.infer<typeof ConfirmationSchema>;
export const ConfirmationDetailSchema = ConfirmationSchema.extend({ input: z.record(z.string(), z.unknown()) });
export type ConfirmationDetail = z.infer<typeof ConfirmationDetailSchema>;

/** How a prompt ended, as the dispatcher hears it. */
export interface Answer {
  readonly decision: Decision;
  readonly scope: Scope | null;
  readonly reason: string | null;
  readonly modified_input: Readonly<Record<string, unknown>> | null;
}
