// `metis mcp`: the MCP server over stdin and stdout, for the client that started it (19 §3, §5).

import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { toPrintable } from '#cli/style.ts';
import { createRoot } from '#mcp/root-session.ts';
import { systemClock } from '#protocol/clock.ts';
import { StartupError } from '#protocol/errors.ts';
import { type CommandContext, refuse } from '../context.ts';
import { type AttachFlags, attach } from '../door/attach.ts';

export interface McpFlags extends AttachFlags {
  readonly workspace?: string;
  readonly budget?: string;
}

/** Until stdin ends. Exit code: 0, or 1 when no server could be found or started. */
export async function serveMcp(context: CommandContext, flags: McpFlags): Promise<number> {
  try {
    const { server, leave, close } = await attach(context, flags);
    try {
      const [{ serveStdio, StdioServerTransport }, { createStates, mcpServer }] = await Promise.all([
        import('@modelcontextprotocol/server/stdio'),
        import('#mcp/mcp-server.ts'),
      ]);
      const world = { clock: systemClock, uuid: randomUUID };
      const root = createRoot(world, server, {
        workspace_path: path.resolve(context.cwd, flags.workspace ?? '.'),
        door: 'mcp',
        on_reached: 'stop',
        max_cost_usd: flags.budget ?? null,
        client_ref: context.env.CLAUDE_CODE_SESSION_ID ?? null,
      });
      const transport = new StdioServerTransport();
      const closeTransport = transport.close.bind(transport);
      // It closes by itself at the end of stdin, and at a line that is too long.
      const ended = new Promise<void>((resolve) => {
        transport.close = () => closeTransport().finally(resolve);
      });
      const handle = serveStdio(
        mcpServer(context.version, createStates(world), () => root),
        {
          transport,
          onerror: (error) => context.stderr.write(`metis: ${toPrintable(summarizeError(error))}\n`),
        },
      );
      await Promise.race([ended, context.outputClosed, context.stopSignal()]);
      leave();
      await handle.close();
      await root.settled();
    } finally {
      await close();
    }
    return 0;
  } catch (error) {
    if (error instanceof StartupError) return refuse(context, error.problems);
    throw error;
  }
}

/** What the schemas of the protocol say of a stranger's line fills a page. */
function summarizeError({ name, message }: Error): string {
  return name === 'ZodError' || name === '$ZodError'
    ? 'a line on stdin is no message of the protocol'
    : (message.split('\n', 1)[0] ?? '');
}
