// Payload of `worker.created` (02 §9.10).
import { z } from 'zod';
import { Sha256Schema, ToolUseIdSchema, WorkerOriginSchema } from '../scalars.ts';

export const WorkerCreatedSchema = z.strictObject({
  name: z.string(),
  origin: WorkerOriginSchema,
  digest: Sha256Schema,
  path: z.string().nullable(),
  tool_use_id: ToolUseIdSchema.nullable(),
  edited_by_user: z.boolean(),
  /** Of the definition of the same name and session that this one took the place of. */
  replaces_digest: Sha256Schema.nullable(),
});
