// Payload of `budget.*` (02 §9.10).
import { z } from 'zod';
import { SessionIdSchema, UsdSchema } from '../scalars.ts';

export const BudgetSchema = z.strictObject({
  scope: z.enum(['session', 'delegation', 'day', 'key']),
  limit_usd: UsdSchema,
  spent_usd: UsdSchema,
  reserved_usd: UsdSchema,
  needed_usd: UsdSchema,
  model: z.string(),
  root_session_id: SessionIdSchema,
});
