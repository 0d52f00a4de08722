// MCP tasks through the official client: requests that it sends, and answers that it has no type for.
import type { Client, JSONRPCMessage } from '@modelcontextprotocol/client';
import { z } from 'zod';
import { type Home, type McpOptions, mcpOverHttp, mcpProcess, type Road, serveProcessIn } from './doors.ts';

export const TASKS = 'io.modelcontextprotocol/tasks';
const Anything = z.looseObject({});

/** The fields of all answers that tests look into. */
export interface Answered {
  readonly taskId: string;
  readonly status: string;
  readonly statusMessage: string;
  readonly createdAt: string;
  readonly pollInterval: number;
  readonly task: Answered;
  readonly tasks: readonly Answered[];
  readonly nextCursor?: string;
  readonly inputRequests: Readonly<Record<string, unknown>>;
  readonly structuredContent: { readonly worker_session_id: string };
  readonly result: Answered;
}

/** The answer as it stands, by the client's own request method. */
export function ask(client: Client, method: string, params: Record<string, unknown> = {}): Promise<Answered> {
  return client.request({ method, params }, Anything) as unknown as Promise<Answered>;
}

/** The answer of a request that is written on the client's transport: the client refuses results of type `task`. */
export async function askRaw(
  client: Client,
  method: string,
  params: Record<string, unknown>,
  capabilities: object = {},
): Promise<Answered> {
  const transport = client.transport!;
  const id = `raw-${crypto.randomUUID()}`;
  const deliver = transport.onmessage!;
  const answered = new Promise<Answered>((resolve, reject) => {
    transport.onmessage = (message: JSONRPCMessage, ...rest: []) => {
      if (!('id' in message) || message.id !== id || 'method' in message) return deliver(message, ...rest);
      transport.onmessage = deliver;
      if ('error' in message) reject(Object.assign(new Error(message.error.message), message.error));
      else resolve(message.result as unknown as Answered);
    };
  });
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientInfo': { name: 'test', version: '1' },
    'io.modelcontextprotocol/clientCapabilities': capabilities,
  };
  await transport.send({ jsonrpc: '2.0', id, method, params: { ...params, _meta } } as JSONRPCMessage);
  return answered;
}

/** A server of the road in a process of its own, a client of it, and the kill of that process. */
export async function startDoor(road: Road, home: Home, options: McpOptions = {}) {
  if (road === 'stdio') {
    const { client, transport } = await mcpProcess(home, options);
    return { client, connect: async () => client, kill: async () => kill(transport.pid!) };
  }
  const { url, server } = await serveProcessIn(home);
  const connect = async () => (await mcpOverHttp(url, home, options)).client;
  return { client: await connect(), connect, kill: async () => void (await server.stop('SIGKILL')) };
}

async function kill(pid: number): Promise<void> {
  process.kill(pid, 'SIGKILL');
}
