// What the server says of itself, and of the looking after it (05 §3.7, 02 §6).
import { z } from 'zod';
import { TimeSchema } from '../scalars.ts';

const MAX_DAYS = 36_500;

export const HealthReply = z.object({
  status: z.literal('ok'),
  version: z.string(),
  started_at: TimeSchema,
  uptime_seconds: z.number(),
  active_sessions: z.int(),
  active_workers: z.int(),
  active_turns: z.int(),
});
export const ReadinessReply = z.object({ status: z.literal('ready') });

export const PruneEventsBody = z.strictObject({
  days: z.int().min(1).max(MAX_DAYS).optional(),
  dry_run: z.boolean().default(false),
});
export const PruneEventsReply = z.object({
  cutoff: TimeSchema,
  rows_deleted: z.int(),
  sessions_skipped: z.int(),
  oldest_kept_timestamp: TimeSchema.nullable(),
  dry_run: z.boolean(),
});
