// A server with its gateway before a fake provider, and the official clients pointed at it.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { onTestFinished } from 'vitest';
import { type RealOptions, type RealServer, startReal } from '../../support/real-server.ts';
import { registryAt } from '../../support/registry-at.ts';
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

export async function startGateway(
  answer: AnswerTo = () => ({}),
  options: Partial<RealOptions> = {},
): Promise<GatewayWorld> {
  const provider = await startByteProvider(answer);
  onTestFinished(() => provider.close());
  const folder = options.folder ?? fs.mkdtempSync(path.join(os.tmpdir(), 'metis-gateway-'));
  const server = await startReal({ folder, registry: registryAt(provider), ...options });
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
