// One MCP server of one workspace: started on demand, restarted after a failure, listed again on `list_changed` (09 §11.4).

import { setImmediate } from 'node:timers/promises';
import { type ListedTool, listedTools, quoteName } from '#core/policy/mcp/listed-tools.ts';
import { isMapping } from '#core/policy/parsing/yaml.ts';
import { toCurrentSchema } from '#core/policy/tools/current-schema.ts';
import { toOwnInput, toProviderSchema, toShownIssues } from '#core/policy/tools/provider-schema.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { SchemaCompiler, ToolFactory, ToolInput } from '#core/ports/tool-port.ts';
import { orAbort } from '#protocol/abort.ts';
import { type Clock, sleep } from '#protocol/clock.ts';
import type { Issue } from '#protocol/errors.ts';
import type { McpServerConfig } from '#protocol/mcp.ts';
import { sha256Hex } from '#protocol/text/canonical-json.ts';
import { readErrorMessage } from '#protocol/text/error-message.ts';
import { type ToolDefinition, ToolError } from '#protocol/tool.ts';
import { type CallOptions, type Connection, connect, type Endpoint, McpFault } from './mcp-connection.ts';
import { mcpTool } from './mcp-tool.ts';

const STARTUP_SECONDS = 30;
const RESTART_MS = 10_000;
const SETTLE_MS = 50;
const RELIST_MS = 1000;
/** How long a turn waits for a server after its first start. */
const PATIENCE_MS = 2000;
const MAX_PROBLEMS = 20;

export interface McpServerOptions {
  readonly name: string;
  readonly config: McpServerConfig;
  readonly workspace: string;
  /** Created for every start. */
  readonly endpoint: () => Endpoint;
  readonly schemas: SchemaCompiler;
  readonly version: string;
  readonly clock: Clock;
  readonly log: Logger;
}

/** A tool that a server offers, ready to be registered. */
export interface McpTool {
  readonly definition: ToolDefinition;
  readonly factory: ToolFactory;
  readonly validate: (input: unknown) => readonly Issue[];
}

export interface McpServer {
  readonly config: McpServerConfig;
  /** Starts the server unless it runs or was started less than 10 s ago. Never waits. */
  wake(): void;
  /** Resolves when the list is known: on the first start within `startup_timeout_seconds`, later within 2 s. */
  ready(): Promise<void>;
  /** The last list, even while the server is down: a prompt must not change because a process died. */
  tools(): readonly McpTool[];
  /** Problems of the last list, and why the server is down; each text follows the server's name. */
  problems(): readonly string[];
  close(): Promise<void>;
}

export function createMcpServer(options: McpServerOptions): McpServer {
  const { name, config, clock, log } = options;
  const startupSeconds = config.startup_timeout_seconds ?? STARTUP_SECONDS;
  const closing = new AbortController();
  let connection: Connection | null = null;
  let starting: Promise<void> | null = null;
  let listing: Promise<void> | null = null;
  let startedAt: number | null = null;
  let startedOnce = false;
  let stale = false;
  let garbled = false;
  let known: ReadonlyMap<string, McpTool> = new Map();
  let fault = 'has not been started';
  let lastReport = '';
  let faults: readonly string[] = [];

  return {
    config,
    wake: wakeServer,
    async ready() {
      const work = starting ?? listing;
      if (work === null || startedAt === null) return;
      const left = startedOnce ? PATIENCE_MS : startedAt + startupSeconds * 1000 - clock.monotonic();
      await waitAtMost(left, work);
    },
    tools: () => [...known.values()],
    problems: () => (connection === null && startedOnce ? [fault, ...faults] : faults),
    async close() {
      fault = 'was closed';
      closing.abort(new McpFault('unavailable', fault));
      await starting;
      await connection?.close();
      await listing;
    },
  };

  function wakeServer(): void {
    if (connection !== null || starting !== null || closing.signal.aborted) return;
    if (startedAt !== null && clock.monotonic() - startedAt < RESTART_MS) return;
    startedAt = clock.monotonic();
    garbled = false;
    starting = start().finally(() => {
      starting = null;
      startedOnce = true;
    });
  }

  /** Never rejects. */
  async function start(): Promise<void> {
    try {
      await withStartupLimit(async (signal) => {
        const opened = await connect({
          endpoint: options.endpoint(),
          workspace: options.workspace,
          version: options.version,
          clock,
          onListChanged: relist,
          onGarbage: () => {
            garbled = true;
          },
          onClosed,
          signal,
        });
        connection = opened;
        await readList(opened, signal).catch(async (error: unknown) => {
          connection = null;
          await opened.close();
          throw error;
        });
      });
      log.info({ mcp_server: name, tools: known.size }, 'an MCP server is connected');
    } catch (error) {
      markDown(describeError(error));
    }
  }

  function onClosed(reason: string): void {
    if (connection === null) return;
    connection = null;
    markDown(reason);
  }

  function markDown(reason: string): void {
    if (closing.signal.aborted) return;
    fault = reason;
    const rest = known.size === 0 ? 'it has no tools until it answers' : 'it is started again when it is needed';
    log.warn({ mcp_server: name, workspace: options.workspace }, `MCP server '${name}' ${reason}; ${rest}`);
  }

  /** On `list_changed`; at most one list request a second. */
  function relist(): void {
    stale = true;
    listing ??= relistTools().finally(() => {
      listing = null;
    });
  }

  /** Never rejects. */
  async function relistTools(): Promise<void> {
    // A list request in progress may be older than the notification.
    await starting;
    for (let pause = SETTLE_MS; stale && connection !== null && !closing.signal.aborted; pause = RELIST_MS) {
      await sleep(clock, pause, closing.signal).catch(() => {});
      stale = false;
      const open = connection;
      if (open === null) return;
      await withStartupLimit((signal) => readList(open, signal)).catch((error: unknown) => {
        if (connection === open) logProblems([`${describeError(error)} when its tools changed; the old list is kept`]);
      });
    }
  }

  async function readList(open: Connection, signal: AbortSignal): Promise<void> {
    const { tools, warnings } = listedTools(name, config, await open.list(signal));
    const problems = [...warnings];
    const next = new Map<string, McpTool>();
    for (const listed of tools) {
      const key = sha256Hex(JSON.stringify(listed));
      const tool = known.get(key) ?? (await compileTool(listed, problems));
      if (tool !== null) next.set(key, tool);
    }
    signal.throwIfAborted();
    known = next;
    faults = problems.slice(0, MAX_PROBLEMS);
    logProblems(problems);
  }

  async function compileTool(listed: ListedTool, problems: string[]): Promise<McpTool | null> {
    // Each compilation may use its time limit: yield to the event loop.
    await setImmediate();
    const leaveOut = (reason: string) => {
      problems.push(`has a tool ${quoteName(listed.original)} that is left out: ${reason}`);
      return null;
    };
    // Arguments are always an object, even if the schema does not require it.
    const { type = 'object', ...rest } = listed.definition.input_schema;
    const schema = toCurrentSchema({ type: [type].flat().includes('object') ? 'object' : type, ...rest });
    const compiled = options.schemas.compile(schema);
    if (!compiled.ok) {
      const [issue] = compiled.problems;
      return leaveOut(`input_schema.${issue?.path}: ${issue?.message}`);
    }
    const form = toProviderSchema(schema);
    if (!form.ok) return leaveOut(`no model can be offered its input schema, which ${form.error}`);
    const { names } = form.value;
    const definition = { ...listed.definition, input_schema: form.value.schema };
    return {
      definition,
      factory: mcpTool({ ...listed, definition, names }, call),
      validate: (input) => {
        if (!isMapping(input)) return compiled.validate(input);
        return toShownIssues(compiled.validate(toOwnInput(input, names)), names);
      },
    };
  }

  /** Logs one line for all problems of a list; an unchanged set of problems is not logged again. */
  function logProblems(problems: readonly string[]): void {
    const all = problems.join('\n');
    if (all === lastReport || problems.length === 0) return;
    lastReport = all;
    const more = problems.length > 1 ? ` (and ${problems.length - 1} more)` : '';
    const fields = { mcp_server: name, workspace: options.workspace, problems: problems.slice(0, MAX_PROBLEMS) };
    log.warn(fields, `MCP server '${name}' ${problems[0]}${more}`);
  }

  async function call(tool: string, input: ToolInput, given: CallOptions) {
    wakeServer();
    if (starting !== null) await orAbort(starting, given.signal);
    const open = connection;
    if (open === null) throw unavailable(fault);
    try {
      return await open.call(tool, input, given);
    } catch (error) {
      given.signal.throwIfAborted();
      if (!(error instanceof McpFault)) throw error;
      if (error.kind === 'unavailable') throw unavailable(error.message);
      if (error.kind === 'timeout') throw new ToolError('timeout', `MCP server '${name}' ${error.message}.`);
      throw new ToolError('execution_error', `MCP server '${name}' answered with an error: ${error.message}`);
    }
  }

  function unavailable(reason: string): ToolError {
    return new ToolError('execution_error', `MCP server '${name}' is unavailable: it ${reason}.`);
  }

  async function withStartupLimit(work: (signal: AbortSignal) => Promise<void>): Promise<void> {
    const late = new AbortController();
    const timer = clock.after(startupSeconds * 1000, () => {
      const hint = garbled ? '; what it wrote is not MCP' : '';
      late.abort(new McpFault('timeout', `did not answer within ${startupSeconds} s${hint}`));
    });
    const signal = AbortSignal.any([closing.signal, late.signal]);
    try {
      await work(signal);
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      throw error;
    } finally {
      timer.cancel();
    }
  }

  function waitAtMost(ms: number, work: Promise<void>): Promise<void> {
    return new Promise((resolve) => {
      const timer = clock.after(Math.max(0, ms), resolve);
      void work.then(() => {
        timer.cancel();
        resolve();
      });
    });
  }
}

function describeError(error: unknown): string {
  if (error instanceof McpFault) return error.message;
  return `failed: ${readErrorMessage(error)}`;
}
