// Bodies of `/analytics/*` (07, 21 §2).
import { z } from 'zod';
import { WHAT_IF_GROUPS } from '../analytics.ts';
import { WorkspacePathSchema } from '../scalars.ts';

const MAX_REPLACED = 200;
const ModelName = z.string().min(1).max(200);

export const WhatIfBody = z.strictObject({
  from: z.string().optional().describe('RFC 3339 with offset, inclusive, or all. Default: 7 days ago.'),
  to: z.string().optional().describe('RFC 3339 with offset, exclusive. Default: now.'),
  workspace_path: WorkspacePathSchema.nullable().default(null),
  routing: z.string().nullable().default(null).describe('Text of a routing file in place of those in force.'),
  tiers: z.strictObject({ fast: ModelName, balanced: ModelName, deep: ModelName }).nullable().default(null),
  models: z
    .record(ModelName, ModelName)
    .refine((models) => Object.keys(models).length <= MAX_REPLACED, `at most ${MAX_REPLACED} models`)
    .nullable()
    .default(null)
    .describe('Each model with the one in its place; both may name an effort.'),
  group_by: z.enum(WHAT_IF_GROUPS).nullable().default(null),
});
export type WhatIfBody = z.infer<typeof WhatIfBody>;
