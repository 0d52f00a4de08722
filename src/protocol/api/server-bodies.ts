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
  url: z.string().describe('URL at which other nodes reach this node.'),
  draining: z.boolean().describe('The node is shutting down and accepts no new work.'),
  places: z.array(z.string()).describe('Places whose session trees the node can own: `shared:<root>`, `node:<name>`.'),
  turns: z.int().describe('Number of top-level turns that run on the node.'),
  trees: z.int().describe('Number of session trees that the node owns.'),
  reachable: z.boolean().describe('Whether the responding node reaches this node at its url.'),
  config_matches: z.boolean().describe('Whether the configuration equals that of the responding node.'),
  config_differs: z
    .array(z.string())
    .describe('Configuration keys that differ from those of the responding node; also `registry` and `prices`.'),
});
export const NodeListReply = z.array(NodeSchema);
export const NodeReply = z.object({ id: z.string().describe('Id of this server process; a restart makes a new one.') });

export const SettingsReply = z.object({
  data_dir: z.string().describe('Data folder of the server.'),
  keys_file: z.string().describe('File of provider keys in the data folder.'),
  files: z.array(z.string()).describe('Configuration files that the server read, in order.'),
  database: z.string().describe('Path of the SQLite file, or address of PostgreSQL without user and password.'),
  keys: z
    .array(
      z.object({
        provider: z.string(),
        variable: z.string().describe('Name of the variable that holds the key.'),
        source: z.string().nullable().describe('Where the key was found: `environment` or a file. Null = not found.'),
        required: z.boolean().describe('Whether the provider is unusable without the key.'),
      }),
    )
    .describe('Keys of the providers in the registry, without their text.'),
  settings: z.array(
    z.object({
      key: z.string(),
      value: z
        .unknown()
        .describe('Value in force. Secrets, and the parts of addresses that may hold some, are left out.'),
      source: z
        .string()
        .describe('Where the value is set: `default`, a file with its line, `environment NAME`, a flag, or `command`.'),
    }),
  ),
});
export type SettingsReport = z.infer<typeof SettingsReply>;

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
  /** The tool is never offered to workers. */
  planners_only: z.boolean(),
});

export const ToolProblemSchema = z.object({
  /** Null = the problem is in the workspace's `.mcp.json`. */
  mcp_server: z.string().nullable(),
  message: z.string(),
});
export type ToolProblem = z.infer<typeof ToolProblemSchema>;

export const ToolListReply = z.object({
  tools: z.array(ToolInfoSchema),
  /** Tools of MCP servers that were rejected, and MCP servers that do not answer. */
  problems: z.array(ToolProblemSchema),
});
export type ToolList = z.infer<typeof ToolListReply>;
