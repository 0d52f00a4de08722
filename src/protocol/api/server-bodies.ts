// Bodies and replies about the server itself: health, nodes, tools (09 §11.3) and the pruning of events (05 §3.7, 02 §6).
import { z } from 'zod';
import { SideEffectsSchema, TimeSchema } from '../scalars.ts';

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

export const NodeSchema = z.object({
  id: z.string(),
  name: z.string(),
  version: z.string(),
  url: z.string().describe('Where other nodes reach it.'),
  draining: z.boolean().describe('It goes down, and takes nothing more.'),
  places: z.array(z.string()).describe('What it can own: `shared:<root>`, `node:<name>`.'),
  turns: z.int().describe('Top-level turns that run there.'),
  trees: z.int().describe('Session trees that it holds.'),
  reachable: z.boolean().describe('Whether the node that answers reaches it at its url.'),
  config_matches: z.boolean().describe('Its configuration is that of the node that answers.'),
});
export const NodeListReply = z.array(NodeSchema);
export const NodeReply = z.object({ id: z.string().describe('Of this start of the server.') });

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

export const ToolInfoSchema = z.object({
  name: z.string(),
  description: z.string(),
  side_effects: SideEffectsSchema,
  /** No worker has it. */
  planners_only: z.boolean(),
});

export const ToolProblemSchema = z.object({
  /** Null = the workspace's `.mcp.json`. */
  mcp_server: z.string().nullable(),
  message: z.string(),
});
export type ToolProblem = z.infer<typeof ToolProblemSchema>;

export const ToolListReply = z.object({
  tools: z.array(ToolInfoSchema),
  /** Tools of MCP servers that are left out, and servers that do not answer. */
  problems: z.array(ToolProblemSchema),
});
export type ToolList = z.infer<typeof ToolListReply>;
