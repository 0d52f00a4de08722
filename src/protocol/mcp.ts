// An MCP server as the configuration describes it (09 §11).
import { z } from 'zod';
import { SideEffectsSchema } from './scalars.ts';

// With a final _ or - the tools of `git_` would be covered by a rule for `mcp__git__*`.
const SERVER_NAME = /^[A-Za-z](?!.*[_-]{2})[A-Za-z0-9_-]{0,31}(?<![_-])$/;
const MAX_SECONDS = 86_400;

export const McpServerNameSchema = z
  .string()
  .regex(
    SERVER_NAME,
    'the name of an MCP server has 1 to 32 letters, digits and single "_" or "-" between them, and begins with a letter',
  );

const ToolSettingsSchema = z.strictObject({
  enabled: z.boolean().optional(),
  side_effects: SideEffectsSchema.optional(),
  timeout_seconds: z.number().gt(0).max(MAX_SECONDS).optional(),
});

/** Whether this is the address of a server; with variables in it that is known once they are filled in. */
export function isWebAddress(url: string): boolean {
  return /^https?:\/\//i.test(url) && URL.canParse(url);
}

const Texts = z.record(z.string(), z.string());

export const McpServerSchema = z
  .strictObject({
    /** `sse` is the older transport over HTTP. */
    transport: z.enum(['stdio', 'http', 'sse']),
    command: z.string().min(1).optional(),
    args: z.array(z.string()).optional(),
    env: Texts.optional(),
    /** Relative to the workspace, which is the default. */
    cwd: z.string().min(1).optional(),
    url: z
      .string()
      .refine((url) => url.includes('${') || isWebAddress(url), 'must be an http or https URL')
      .optional(),
    headers: Texts.optional(),
    enabled: z.boolean().optional(),
    side_effects: SideEffectsSchema.optional(),
    /** By the name that the server gives a tool. */
    tools: z.record(z.string(), ToolSettingsSchema).optional(),
    allow_workers: z.boolean().optional(),
    startup_timeout_seconds: z.number().gt(0).max(MAX_SECONDS).optional(),
    call_timeout_seconds: z.number().gt(0).max(MAX_SECONDS).optional(),
  })
  .superRefine((server, context) => {
    const [needed, foreign] =
      server.transport === 'stdio'
        ? (['command', ['url', 'headers']] as const)
        : (['url', ['command', 'args', 'env', 'cwd']] as const);
    if (server[needed] === undefined) context.addIssue({ code: 'custom', path: [needed], message: 'is required' });
    for (const key of foreign) {
      if (server[key] === undefined) continue;
      const message = `is not for transport "${server.transport}"`;
      context.addIssue({ code: 'custom', path: [key], message });
    }
  });
export type McpServerConfig = z.infer<typeof McpServerSchema>;

/** By name. */
export type McpServers = Readonly<Record<string, McpServerConfig>>;
