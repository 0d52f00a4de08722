// A server with its gateway before a fake provider, and the official clients pointed at it.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import Anthropic from '@anthropic-ai/sdk';
import Database from 'better-sqlite3';
import OpenAI from 'openai';
import { onTestFinished } from 'vitest';
import { type RealOptions, type RealServer, startReal } from '../../support/real-server.ts';
import { registryAt, shippedAt } from '../../support/registry-at.ts';
import { type ByteProvider, type Received, type Said, startByteProvider } from './provider.ts';

export interface GatewayWorld {
  readonly provider: ByteProvider;
  readonly server: RealServer;
  readonly folder: string;
  /** Anthropic's own client with these headers. */
  anthropic(headers?: Readonly<Record<string, string>>): Anthropic;
  openai(headers?: Readonly<Record<string, string>>): OpenAI;
  /** As it is, without the look at the contract. */
  post(path: string, body: unknown, headers?: Readonly<Record<string, string>>): Promise<Response>;
}

export type AnswerTo = (call: Received) => Said | Promise<Said>;

export interface GatewayOptions extends Partial<RealOptions> {
  /** Lines of the registry behind its models. */
  readonly models?: string;
  /** With the registry and the prices that ship with the package. */
  readonly shipped?: boolean;
}

export async function startGateway(
  answer: AnswerTo = () => ({}),
  { models = '', shipped = false, ...options }: GatewayOptions = {},
): Promise<GatewayWorld> {
  const provider = await startByteProvider(answer);
  onTestFinished(() => provider.close());
  const folder = options.folder ?? fs.mkdtempSync(path.join(os.tmpdir(), 'metis-gateway-'));
  const server = await startReal({
    folder,
    ...(shipped ? shippedAt(provider) : { registry: registryAt(provider, models) }),
    ...options,
  });
  const { url } = server;
  return {
    provider,
    server,
    folder,
    anthropic: (headers = {}) =>
      new Anthropic({ baseURL: url, apiKey: 'of-the-client', maxRetries: 0, defaultHeaders: headers }),
    openai: (headers = {}) =>
      new OpenAI({ baseURL: `${url}/v1`, apiKey: 'of-the-client', maxRetries: 0, defaultHeaders: headers }),
    post: (target, body, headers = {}) =>
      fetch(`${url}${target}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: typeof body === 'string' || body instanceof Uint8Array ? (body as string) : JSON.stringify(body),
      }),
  };
}

/** What an answer says, looked into freely. */
export async function jsonOf(answer: Response): Promise<ReturnType<typeof JSON.parse>> {
  return answer.json();
}

/** Claude Code's headers for an agent. */
export function claudeCode(session: string, agent?: string, parent?: string, type?: string): Record<string, string> {
  return {
    'x-claude-code-session-id': session,
    'user-agent': 'claude-cli/2.1.0 (external, cli)',
    ...(agent === undefined ? {} : { 'x-claude-code-agent-id': agent }),
    ...(parent === undefined ? {} : { 'x-claude-code-parent-agent-id': parent }),
    ...(type === undefined ? {} : { 'x-claude-code-agent-type': type }),
  };
}

/** Every byte that the server has stored, logged or published; it is closed for that. */
export async function everything(world: GatewayWorld): Promise<string> {
  const { events, deltas, log } = world.server;
  const said = JSON.stringify({ events, deltas, log });
  await world.server.close();
  const db = new Database(path.join(world.folder, 'metis.db'), { readonly: true });
  const tables = db.prepare("SELECT name FROM sqlite_master WHERE type = 'table'").pluck().all() as string[];
  const rows = tables.map((table) =>
    JSON.stringify(db.prepare(`SELECT * FROM "${table}"`).safeIntegers().all(), (_, v) =>
      typeof v === 'bigint' ? String(v) : v,
    ),
  );
  db.close();
  return said + rows.join('\n');
}
