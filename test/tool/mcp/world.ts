// Real MCP servers as child processes, started the way a session starts them.
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';
import type { Logger } from '#core/ports/logger.ts';
import type { ToolContext } from '#core/ports/tool-port.ts';
import { type Clock, systemClock } from '#protocol/clock.ts';
import { type McpServerConfig, McpServerSchema } from '#protocol/mcp.ts';
import type { McpTool } from '#tools/mcp-client/mcp-server.ts';
import { createMcp, type McpOptions } from '#tools/mcp-client/workspace-servers.ts';
import { schemaCompiler } from '#tools/schema-compiler.ts';
import { until } from '../../support/until.ts';
import { contextOf, textOf, workspace } from '../call.ts';

export const FIXTURE = fileURLToPath(new URL('../../support/mcp-server.mjs', import.meta.url));

/** The fixture in one of its manners. */
export function fixture(manner = 'good', over: Partial<McpServerConfig> = {}): McpServerConfig {
  return McpServerSchema.parse({ transport: 'stdio', command: process.execPath, args: [FIXTURE, manner], ...over });
}

export interface LogLine {
  readonly level: string;
  readonly message: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

export function recordingLog(): { readonly log: Logger; readonly lines: LogLine[] } {
  const lines: LogLine[] = [];
  const at = (level: string) => (fields: Readonly<Record<string, unknown>>, message: string) =>
    void lines.push({ level, message, fields });
  const log: Logger = {
    trace: at('trace'),
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    child: () => log,
  };
  return { log, lines };
}

const LONG_MS = 600_000;

/** Time that goes on by itself, and further when a test says so: then long timers fall due, short ones are as they are. */
export function skippingClock(): Clock & { skip(ms: number): void } {
  let skipped = 0;
  const waiting = new Set<{ readonly at: number; readonly fn: () => void }>();
  const monotonic = () => systemClock.monotonic() + skipped;
  return {
    now: () => systemClock.now() + skipped,
    monotonic,
    after(ms, fn) {
      if (ms < LONG_MS) return systemClock.after(ms, fn);
      const timer = { at: monotonic() + ms, fn };
      waiting.add(timer);
      return { cancel: () => void waiting.delete(timer) };
    },
    skip(ms) {
      skipped += ms;
      for (const timer of [...waiting].filter(({ at }) => at <= monotonic())) {
        waiting.delete(timer);
        timer.fn();
      }
    },
  };
}

export interface McpWorld {
  readonly root: string;
  readonly lines: readonly LogLine[];
  readonly warnings: () => string[];
  readonly clock: ReturnType<typeof skippingClock>;
  tools(): Promise<readonly McpTool[]>;
  names(): Promise<string[]>;
  /** Calls a tool by our name for it. */
  call(name: string, input?: Record<string, unknown>, over?: Partial<ToolContext>): Promise<string>;
  hold(): () => void;
  close(): Promise<void>;
}

/** Ended when the test is over. */
export function mcpWorld(
  servers: Readonly<Record<string, McpServerConfig>>,
  over: Partial<McpOptions> & { readonly root?: string } = {},
): McpWorld {
  const root = over.root ?? workspace();
  const { log, lines } = recordingLog();
  const clock = skippingClock();
  const mcp = createMcp({
    servers,
    projectFile: null,
    env: process.env,
    isWithheld: () => false,
    schemas: schemaCompiler,
    version: '0',
    clock,
    log,
    ...over,
  });
  onTestFinished(() => mcp.close());
  const nameOf = (tool: McpTool) => tool.definition.name;
  return {
    root,
    lines,
    clock,
    warnings: () => lines.filter(({ level }) => level === 'warn').map(({ message }) => message),
    tools: () => mcp.tools(root),
    names: async () => (await mcp.tools(root)).map(nameOf),
    async call(name, input = {}, context = {}) {
      const found = (await mcp.tools(root)).find((tool) => nameOf(tool) === name);
      if (!found) throw new Error(`no tool ${name}`);
      const issues = found.validate(input);
      if (issues.length > 0) throw new Error(issues.map(({ path, message }) => `${path}: ${message}`).join('\n'));
      return textOf(await found.factory().execute(input, { ...contextOf(root), files: null, ...context }));
    },
    hold: () => mcp.hold(root),
    close: () => mcp.close(),
  };
}

/** Waits until a process is gone. */
export async function gone(pid: number): Promise<void> {
  await until(() => {
    try {
      process.kill(pid, 0);
      return false;
    } catch {
      return true;
    }
  });
}
