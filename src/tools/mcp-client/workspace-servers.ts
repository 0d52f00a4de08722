// The MCP servers of every workspace: those of the configuration, and those that a workspace's `.mcp.json` brings (09 §11).

import path from 'node:path';
import { expandVariables, readProjectServers } from '#core/policy/mcp/project-file.ts';
import { plainKey, toolKey } from '#core/policy/tools/tool-names.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { SchemaCompiler } from '#core/ports/tool-port.ts';
import { orAbort } from '#protocol/abort.ts';
import type { ToolProblem } from '#protocol/api/server-bodies.ts';
import type { Clock, Timer } from '#protocol/clock.ts';
import { isWebAddress, type McpServerConfig, type McpServers } from '#protocol/mcp.ts';
import { compareText } from '#protocol/text/compare-text.ts';
import { type Endpoint, McpFault } from './mcp-connection.ts';
import { createMcpServer, type McpServer, type McpTool } from './mcp-server.ts';
import { createNoiseLog } from './message-limits.ts';

const IDLE_MS = 30 * 60_000;
/** Maximum problems reported of one project file. */
const MAX_PROBLEMS = 20;
/** Variables that programs need to run. */
const BASE_ENV = ['HOME', 'LOGNAME', 'PATH', 'SHELL', 'TERM', 'USER'];

export interface McpOptions {
  readonly servers: McpServers;
  /** The text of a workspace's `.mcp.json`, null when there is none; null = such files are not read. */
  readonly projectFile: ((workspace: string) => Promise<string | null>) | null;
  /** The server's environment, for `${VAR}`. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Whether a workspace's file may not learn this variable. */
  readonly isWithheld: (name: string) => boolean;
  readonly schemas: SchemaCompiler;
  readonly version: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly fetch?: typeof fetch;
}

export interface Mcp {
  /** The tools of a workspace. Starts its servers and waits for them within their limits. */
  tools(workspace: string): Promise<readonly McpTool[]>;
  /** The tools known so far; starts no server and waits for none. */
  knownTools(workspace: string): readonly McpTool[];
  /** Known problems of its servers. */
  problems(workspace: string): readonly ToolProblem[];
  /** Starts the servers of a workspace, without waiting, and keeps them until the returned function is called. */
  hold(workspace: string): () => void;
  /** Stops all waiting for servers: the program is shutting down. */
  stopWaiting(): void;
  /** Ends every server. */
  close(): Promise<void>;
}

interface Workspace {
  readonly path: string;
  readonly servers: Map<string, McpServer>;
  projectText: string | null;
  project: ReadonlyMap<string, McpServerConfig>;
  projectProblems: readonly string[];
  holds: number;
  idle: Timer | null;
}

export function createMcp(options: McpOptions): Mcp {
  const { servers: configured, projectFile, clock, log } = options;
  const workspaces = new Map<string, Workspace>();
  const leaving = new Set<Promise<void>>();
  const shutdown = new AbortController();
  let closed = false;

  return {
    async tools(root) {
      if (closed) return [];
      const workspace = workspaceAt(root);
      const release = hold(workspace);
      try {
        await wakeWorkspace(workspace);
        const ready = Promise.all([...workspace.servers.values()].map((server) => server.ready()));
        await orAbort(ready, shutdown.signal).catch(() => {});
        return collectTools(workspace);
      } finally {
        release();
      }
    },
    knownTools(root) {
      const workspace = workspaces.get(root);
      if (workspace === undefined) return [];
      return collectTools(workspace);
    },
    problems(root) {
      const workspace = workspaces.get(root);
      if (workspace === undefined) return [];
      const servers = [...workspace.servers].flatMap(([mcp_server, server]) =>
        server.problems().map((message) => ({ mcp_server, message })),
      );
      return [...workspace.projectProblems.map((message) => ({ mcp_server: null, message })), ...servers];
    },
    hold(root) {
      if (closed) return () => {};
      const workspace = workspaceAt(root);
      void wakeWorkspace(workspace).catch((err: unknown) =>
        log.warn({ err, workspace: root }, 'MCP servers were not started'),
      );
      return hold(workspace);
    },
    stopWaiting: () => shutdown.abort(),
    async close() {
      closed = true;
      for (const workspace of [...workspaces.values()]) closeWorkspace(workspace);
      await Promise.all(leaving);
    },
  };

  function workspaceAt(root: string): Workspace {
    let workspace = workspaces.get(root);
    if (workspace === undefined) {
      workspace = {
        path: root,
        servers: new Map(),
        projectText: null,
        project: new Map(),
        projectProblems: [],
        holds: 0,
        idle: null,
      };
      workspaces.set(root, workspace);
      useServers(workspace);
    }
    return workspace;
  }

  async function wakeWorkspace(workspace: Workspace): Promise<void> {
    await refresh(workspace);
    // The workspace may have been closed while its file was read.
    if (workspaces.get(workspace.path) !== workspace) return;
    for (const server of workspace.servers.values()) server.wake();
  }

  function hold(workspace: Workspace): () => void {
    workspace.holds += 1;
    workspace.idle?.cancel();
    workspace.idle = null;
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      workspace.holds -= 1;
      if (workspace.holds === 0 && !closed) workspace.idle = clock.after(IDLE_MS, () => closeWorkspace(workspace));
    };
  }

  function closeWorkspace(workspace: Workspace): void {
    workspaces.delete(workspace.path);
    for (const server of workspace.servers.values()) closeServer(server);
  }

  function closeServer(server: McpServer): void {
    const ending: Promise<void> = server
      .close()
      .catch((err: unknown) => log.warn({ err }, 'an MCP server did not close'))
      .finally(() => leaving.delete(ending));
    leaving.add(ending);
  }

  /** Reads the workspace's file; unchanged text changes nothing. */
  async function refresh(workspace: Workspace): Promise<void> {
    if (projectFile === null) return;
    const text = await projectFile(workspace.path);
    if (text === workspace.projectText || workspaces.get(workspace.path) !== workspace) return;
    workspace.projectText = text;
    const { servers, warnings } = text === null ? { servers: new Map(), warnings: [] } : readProjectServers(text);
    for (const warning of warnings) log.warn({ workspace: workspace.path }, `.mcp.json: ${warning}`);
    workspace.project = servers;
    workspace.projectProblems = warnings.slice(0, MAX_PROBLEMS);
    useServers(workspace);
  }

  /** The configuration's own come first; a server whose settings are the same goes on. */
  function useServers(workspace: Workspace): void {
    const own = new Set(Object.keys(configured).map(plainKey));
    const project = [...workspace.project].filter(([name]) => !own.has(plainKey(name)));
    const wanted = new Map([...project, ...Object.entries(configured)]);
    for (const [name, server] of workspace.servers) {
      const config = wanted.get(name);
      if (config !== undefined && JSON.stringify(config) === JSON.stringify(server.config)) continue;
      workspace.servers.delete(name);
      closeServer(server);
    }
    for (const [name, config] of wanted) {
      if (config.enabled === false || workspace.servers.has(name)) continue;
      const isProjectServer = !Object.hasOwn(configured, name);
      const server = createMcpServer({
        ...options,
        name,
        config,
        workspace: workspace.path,
        endpoint: () => resolveEndpoint(name, config, { workspace: workspace.path, foreign: isProjectServer }),
      });
      workspace.servers.set(name, server);
    }
  }

  /** By name; of two servers whose tools got one name the first by name has it. */
  function collectTools(workspace: Workspace): McpTool[] {
    const tools = new Map<string, McpTool>();
    for (const [, server] of [...workspace.servers].sort(([a], [b]) => compareText(a, b))) {
      for (const tool of server.tools()) {
        const { name } = tool.definition;
        const key = toolKey(name);
        if (tools.has(key)) log.debug({ workspace: workspace.path }, `two MCP servers offer ${name}; one is left out`);
        else tools.set(key, tool);
      }
    }
    return [...tools.values()];
  }

  function resolveEndpoint(
    name: string,
    config: McpServerConfig,
    { workspace, foreign }: { readonly workspace: string; readonly foreign: boolean },
  ): Endpoint {
    const lookup = (variable: string) => (foreign && options.isWithheld(variable) ? undefined : options.env[variable]);
    const { server, missing } = expandVariables(config, lookup);
    if (missing.length > 0) {
      const names = missing.slice(0, 5).join(', ');
      log.warn({ mcp_server: name }, `MCP server '${name}' is started without ${names}: not set, or withheld from it`);
    }
    const { transport, command = '', args = [], env = {}, url = '', headers = {} } = server;
    const reason = transport === 'stdio' ? command === '' && 'command' : !isWebAddress(url) && 'url';
    // The value is not shown: a variable may have put a secret into it.
    if (reason) throw new McpFault('unavailable', `has no usable ${reason} once its variables are filled in`);
    if (transport !== 'stdio') return { transport, url, headers, fetch: options.fetch ?? fetch };
    return {
      transport,
      command,
      args,
      cwd: path.resolve(workspace, config.cwd ?? '.'),
      env: { ...baseEnvironment(options.env), ...env },
      clock,
      onNoise: createNoiseLog(name, clock, log),
    };
  }
}

/** Never the server's whole environment, which holds keys. */
function baseEnvironment(env: Readonly<Record<string, string | undefined>>): Record<string, string> {
  const kept = BASE_ENV.map((name) => [name, env[name]] as const);
  return Object.fromEntries(kept.filter((entry): entry is [string, string] => entry[1] !== undefined));
}
