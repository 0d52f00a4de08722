// What `GET /tools` answers (09 §11.3).
import { z } from 'zod';
import { SideEffectsSchema } from '../scalars.ts';

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
