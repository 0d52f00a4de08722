// A home folder whose models answer by rules, and the doors of the command in it: in this process, or as processes of their own.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { Readable, Writable } from 'node:stream';
import {
  client,
  ndJsonStream,
  type RequestPermissionRequest,
  type RequestPermissionResponse,
  type SessionNotification,
} from '@agentclientprotocol/sdk';
import { Client, StreamableHTTPClientTransport, type Transport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { StdioServerTransport } from '@modelcontextprotocol/server/stdio';
import { afterAll, onTestFinished } from 'vitest';
import { createMetisClient, type MetisClient } from '#client/client.ts';
import { type StartedHere, startHere } from '../app/here.ts';
import { address, MAIN, NODE_FLAGS, PASSED_ON, type Started, start, temporaryHome } from '../app/metis.ts';
import { newDatabase } from './new-database.ts';
import { until } from './until.ts';

/** The revisions that clients speak: with a connection, and stateless. */
export const PROTOCOLS = ['2025-11-25', '2026-07-28'] as const;
export type ProtocolVersion = (typeof PROTOCOLS)[number];
export const ROADS = ['stdio', 'http'] as const;
export type Road = (typeof ROADS)[number];

export const usage = { input_tokens: 1000, output_tokens: 100 };
type Rule = Readonly<Record<string, unknown>>;

/** Takes what closes or removes something when it is over. */
type AtEnd = (close: () => void | Promise<void>) => void;

export interface Home {
  readonly path: string;
  readonly data: string;
  readonly workspace: string;
  readonly env: Record<string, string>;
  /** For what is started in it. */
  readonly atEnd: AtEnd;
}

/** For a home that the tests of one `describe` share: the last that was started is ended first. */
export function atSuiteEnd(): AtEnd {
  const closers: (() => void | Promise<void>)[] = [];
  afterAll(async () => {
    for (const close of closers.reverse()) await close();
  });
  return (close) => void closers.push(close);
}

/** Port 1 answers nobody: no server of this machine is met by chance. */
export function doorHome(
  rules: readonly Rule[],
  config: Readonly<Record<string, unknown>> = {},
  atEnd: AtEnd = onTestFinished,
): Home {
  const home = temporaryHome();
  atEnd(home.remove);
  const data = path.join(home.path, '.metis');
  const workspace = path.join(home.path, 'work');
  fs.mkdirSync(data);
  fs.mkdirSync(workspace);
  const capabilities = { max_context_tokens: 200_000, max_output_tokens: 32_000, supports_structured_output: true };
  const write = (name: string, content: object) => fs.writeFileSync(path.join(data, name), JSON.stringify(content));
  write('scenario.yaml', { version: 1, strict: false, defaults: { delay_ms: 0, chunk_delay_ms: 0 }, rules });
  write('registry.yaml', {
    adapters: { scripted: { type: 'scripted', scenario: 'scenario.yaml' } },
    models: Object.fromEntries(
      ['deep', 'balanced', 'fast'].map((tier) => [
        `scripted:${tier}`,
        { tier, aliases: [tier], can_delegate: true, capabilities },
      ]),
    ),
  });
  write('server.yaml', {
    ...config,
    shutdown: { drain_seconds: 0, ...(config.shutdown as object) },
    server: { port: 1, ...(config.server as object) },
    routing: { global_default_model: 'scripted:balanced', ...(config.routing as object) },
  });
  newDatabase(path.join(data, 'metis.db'));
  return { path: home.path, data, workspace, env: { ...PASSED_ON, HOME: home.path }, atEnd };
}

interface Served<Server> {
  readonly url: string;
  readonly client: MetisClient;
  readonly server: Server;
}

/** `metis serve` on the home's data, in this process. */
export function serveIn(home: Home, ...args: string[]): Promise<Served<StartedHere>> {
  return served(home, startHere(serveWords(args), { home: home.path }));
}

/** The same as a process of its own, for a test that kills it. */
export function serveProcessIn(home: Home, ...args: string[]): Promise<Served<Started>> {
  return served(home, start(serveWords(args), { home: home.path }));
}

const serveWords = (args: readonly string[]) => ['serve', '--port', '0', ...args];

async function served<Server extends Pick<Started, 'line' | 'stop'>>(home: Home, server: Server) {
  home.atEnd(async () => void (await server.stop('SIGKILL')));
  const url = await address(server);
  return { url, client: createMetisClient({ baseUrl: url }), server };
}

/** A client for the server that a door's process runs, as `server.json` tells it; null while there is none. */
export function clientOf(home: Home): MetisClient | null {
  const file = path.join(home.data, 'server.json');
  if (!fs.existsSync(file)) return null;
  const { url } = JSON.parse(fs.readFileSync(file, 'utf8')) as { url: string };
  return createMetisClient({ baseUrl: url });
}

export interface McpOptions {
  readonly protocol?: ProtocolVersion;
  readonly capabilities?: ConstructorParameters<typeof Client>[1] extends infer O
    ? O extends { capabilities?: infer C }
      ? C
      : never
    : never;
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Before it connects. */
  readonly prepare?: (client: Client) => void;
}

function mcpClient(home: Home, { protocol = '2025-11-25', capabilities, prepare }: McpOptions): Client {
  const client = new Client(
    { name: 'test', version: '1' },
    {
      capabilities: capabilities ?? {},
      versionNegotiation: { mode: protocol === '2026-07-28' ? { pin: protocol } : 'legacy' },
    },
  );
  prepare?.(client);
  home.atEnd(async () => void (await client.close().catch(() => {})));
  return client;
}

const mcpWords = (home: Home, { args = [] }: McpOptions) => ['mcp', '--workspace', home.workspace, ...args];

/** `metis mcp` in this process behind the official client: frames pass over its stdin and stdout. */
export async function mcpOverStdio(home: Home, options: McpOptions = {}) {
  const door = startHere(mcpWords(home, options), { home: home.path, env: { ...options.env } });
  home.atEnd(async () => {
    door.stdin.end();
    await door.finished;
  });
  const client = mcpClient(home, options);
  // Frames of both sides are the same.
  await client.connect(new StdioServerTransport(door.written, door.stdin) as unknown as Transport);
  return { client, stderr: () => door.output.stderr };
}

/** `metis mcp` as a process of its own, started by the official client. */
export async function mcpProcess(home: Home, options: McpOptions = {}) {
  const client = mcpClient(home, options);
  const transport = new StdioClientTransport({
    command: process.execPath,
    args: [...NODE_FLAGS, MAIN, ...mcpWords(home, options)],
    env: { ...home.env, ...options.env },
    cwd: home.path,
    stderr: 'pipe',
  });
  let stderr = '';
  transport.stderr?.on('data', (chunk) => {
    stderr += chunk;
  });
  await client.connect(transport);
  return { client, transport, stderr: () => stderr };
}

export async function mcpOverHttp(url: string, home: Home, options: McpOptions & { readonly token?: string } = {}) {
  const client = mcpClient(home, options);
  const target = new URL(`/mcp?workspace=${encodeURIComponent(home.workspace)}&budget_usd=5`, url);
  const headers = options.token === undefined ? {} : { authorization: `Bearer ${options.token}` };
  const transport = new StreamableHTTPClientTransport(target, { requestInit: { headers } });
  await client.connect(transport);
  return { client, transport };
}

/** Over either road; the server is the door's own, or one that serves. */
export async function mcpOver(road: Road, home: Home, options: McpOptions = {}) {
  if (road === 'stdio') {
    const { client } = await mcpOverStdio(home, { ...options, args: ['--budget', '5', ...(options.args ?? [])] });
    return { client, metis: () => until(() => clientOf(home)) };
  }
  const { url, client: metis } = await serveIn(home);
  const { client } = await mcpOverHttp(url, home, options);
  return { client, metis: async () => metis };
}

export interface AcpOptions {
  readonly args?: readonly string[];
  readonly permission?: (
    request: RequestPermissionRequest,
  ) => RequestPermissionResponse | Promise<RequestPermissionResponse>;
}

/** `metis acp` in this process behind the official client; what it was told so far, in order. */
export async function acpIn(home: Home, options: AcpOptions = {}) {
  const door = startHere(['acp', ...(options.args ?? [])], { home: home.path });
  const end = async () => {
    door.stdin.end();
    return (await door.finished).code;
  };
  home.atEnd(async () => void (await end()));
  return editor(home, options, { stdin: door.stdin, stdout: door.written, end });
}

/** `metis acp` as a process of its own. */
export async function acpProcess(home: Home, options: AcpOptions = {}) {
  const words = [...NODE_FLAGS, MAIN, 'acp', ...(options.args ?? [])];
  const child = spawn(process.execPath, words, { cwd: home.path, env: home.env });
  const gone = new Promise<number | null>((resolve) => child.once('close', resolve));
  child.stderr.resume();
  home.atEnd(async () => {
    child.kill('SIGKILL');
    await gone;
  });
  const end = () => {
    child.stdin.end();
    return gone;
  };
  return { child, ...(await editor(home, options, { stdin: child.stdin, stdout: child.stdout, end })) };
}

interface DoorProcess {
  readonly stdin: Writable;
  readonly stdout: Readable;
  /** The end of stdin, as when an editor closes; resolves with the exit code. */
  end(): Promise<number | null>;
}

async function editor(home: Home, { permission }: AcpOptions, { stdin, stdout, end }: DoorProcess) {
  const updates: SessionNotification[] = [];
  const app = client({ name: 'test' })
    .onNotification('session/update', ({ params }) => void updates.push(params))
    .onRequest('session/request_permission', ({ params }) =>
      permission ? permission(params) : { outcome: { outcome: 'cancelled' } },
    );
  const connection = app.connect(ndJsonStream(Writable.toWeb(stdin), Readable.toWeb(stdout) as never));
  const { agent } = connection;
  const about = await agent.request('initialize', {
    protocolVersion: 1,
    clientCapabilities: {},
    clientInfo: { name: 'an-editor', version: '1' },
  });
  return {
    agent,
    about,
    updates,
    end,
    open: (cwd = home.workspace) => agent.request('session/new', { cwd, mcpServers: [] }),
    say: (sessionId: string, text: string) =>
      agent.request('session/prompt', { sessionId, prompt: [{ type: 'text', text }] }),
  };
}

/** What an editor shows in the end: texts by message, and each call as it was told last. */
export function shown(updates: readonly SessionNotification[]) {
  const lines: string[] = [];
  const calls = new Map<string, Record<string, unknown>>();
  let speaker = '';
  for (const { update } of updates) {
    if ('content' in update && update.sessionUpdate.endsWith('_chunk')) {
      const { content } = update as { content: { type: string; text?: string } };
      if (speaker !== update.sessionUpdate) lines.push(`${update.sessionUpdate}: `);
      speaker = update.sessionUpdate;
      lines[lines.length - 1] += content.text ?? content.type;
    } else if (update.sessionUpdate === 'tool_call' || update.sessionUpdate === 'tool_call_update') {
      const { sessionUpdate: _, toolCallId, ...said } = update;
      if (update.sessionUpdate === 'tool_call') {
        speaker = '';
        lines.push(`call ${toolCallId}`);
      }
      calls.set(toolCallId, { ...calls.get(toolCallId), ...said });
    }
  }
  return { lines, calls: Object.fromEntries(calls) };
}
