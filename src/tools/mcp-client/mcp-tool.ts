// A tool of an MCP server as a tool of ours: the dispatcher sees no difference (09 §11.6).
import type { ListedTool } from '#core/policy/mcp/listed-tools.ts';
import { ownInput, type ProviderSchema } from '#core/policy/tools/provider-schema.ts';
import type { ToolContext, ToolFactory, ToolInput } from '#core/ports/tool.ts';
import { callOutput } from './call-output.ts';
import type { CallOptions, McpCallResult } from './connection.ts';

/** @param call asks the server; throws `ToolError` */
export function mcpTool(
  { original, definition, names }: ListedTool & Pick<ProviderSchema, 'names'>,
  call: (tool: string, input: ToolInput, options: CallOptions) => Promise<McpCallResult>,
): ToolFactory {
  return () => {
    const stop = new AbortController();
    let running = false;
    return {
      definition,
      async execute(input: ToolInput, context: ToolContext) {
        running = true;
        try {
          const { timeout_seconds: seconds, logger } = context;
          return callOutput(
            await call(original, ownInput(input, names), {
              signal: AbortSignal.any([context.signal, stop.signal]),
              timeoutMs: seconds === null ? null : seconds * 1000,
              onProgress: (progress) => logger.debug({ progress }, 'a tool of an MCP server goes on'),
            }),
          );
        } finally {
          running = false;
        }
      },
      cancel: async () => {
        const open = running;
        stop.abort();
        return open;
      },
    };
  };
}
