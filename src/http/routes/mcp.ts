// `/mcp`: the way in for MCP clients over HTTP. What answers there is handed in (19 §3).
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { HttpApp } from '../app.ts';
import { bearerOf } from '../auth.ts';
import type { RouteDeps } from '../deps.ts';

export function mcpRoutes(app: HttpApp, { mcp, turnBodyLimit, owners }: RouteDeps): void {
  if (mcp === undefined) return;
  app.route({
    method: ['GET', 'POST', 'DELETE'],
    url: '/mcp',
    bodyLimit: turnBodyLimit,
    schema: { hide: true },
    handler: async (request, reply) => {
      const node = nodeOf(request.headers['mcp-session-id']);
      if (node !== null && (await owners.answerAt(request, reply, node))) return reply;
      const gone = new AbortController();
      reply.raw.once('close', () => gone.abort());
      const answer = await mcp(
        asWebRequest(request, gone.signal),
        bearerOf(request.headers.authorization),
        request.body,
      );
      await send(reply, answer);
      return reply;
    },
  });
}

/** Where a connection of the older protocols lives: its name says it (19 §3.2). */
function nodeOf(session: string | string[] | undefined): string | null {
  return /\.([0-9A-Z]{26})$/.exec(String(session ?? ''))?.[1] ?? null;
}

/** Its body has been read: it goes beside it. */
function asWebRequest(request: FastifyRequest, signal: AbortSignal): Request {
  const headers = new Headers();
  for (const [name, value] of Object.entries(request.headers))
    for (const one of [value].flat()) if (one !== undefined) headers.append(name, one);
  return new Request(new URL(request.raw.url ?? '/', 'http://localhost'), { method: request.method, headers, signal });
}

async function send(reply: FastifyReply, answer: Response): Promise<void> {
  reply.hijack();
  const response = reply.raw;
  for (const [name, value] of Object.entries(reply.getHeaders()))
    if (value !== undefined) response.setHeader(name, value);
  response.writeHead(answer.status, Object.fromEntries(answer.headers));
  if (answer.body === null) {
    response.end();
    return;
  }
  response.flushHeaders();
  // Who leaves ends it, which is no fault.
  await pipeline(Readable.fromWeb(answer.body as Parameters<typeof Readable.fromWeb>[0]), response).catch(() => {});
}
