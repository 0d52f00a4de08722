// Routes outside the OpenAPI document: the dashboard at `/`, and `/mcp` (05 §3.7, 17 §3, 19 §3).

import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { parseBearer } from '../access.ts';
import type { HttpApp, RouteDeps } from '../http-app.ts';

/** Approvals are given on this page: nothing foreign runs on it, and no other page holds it in a frame. */
const HEADERS = {
  'content-security-policy': "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
};
const FOR_EVER = 'public, max-age=31536000, immutable';

export function dashboardRoutes(app: HttpApp, { dashboard }: RouteDeps): void {
  for (const { path, mediaType, read } of dashboard ?? []) {
    app.get(
      path,
      { config: { open: 'everywhere', unlimited: true }, schema: { hide: true } },
      async (request, reply) => {
        const { body, etag } = read();
        reply.headers(HEADERS).header('etag', etag);
        reply.header('cache-control', isHashed(path) ? FOR_EVER : 'no-cache');
        if (matchesEtag(request.headers['if-none-match'], etag)) return reply.status(304).send();
        return reply.type(mediaType).send(body);
      },
    );
  }
}

/** The page itself and the documents keep their names from version to version. */
function isHashed(path: string): boolean {
  return path !== '/' && !path.endsWith('.md');
}

function matchesEtag(header: string | undefined, etag: string): boolean {
  const known = header?.split(',').map((one) => one.trim().replace(/^W\//, '')) ?? [];
  return known.includes(etag) || known.includes('*');
}

/** `/mcp`: MCP clients over HTTP (19 §3). */
export function mcpRoutes(app: HttpApp, { mcp, turnBodyLimit, owners, hub }: RouteDeps): void {
  if (mcp === undefined) return;
  app.route({
    method: ['GET', 'POST', 'DELETE'],
    url: '/mcp',
    bodyLimit: turnBodyLimit,
    schema: { hide: true },
    handler: async (request, reply) => {
      const node = parseNode(request.headers['mcp-session-id']);
      if (node !== null && (await owners.answerAt(request, reply, node))) return reply;
      const gone = new AbortController();
      reply.raw.once('close', () => gone.abort());
      const { person, tokenHash: digest } = request;
      const unguard = hub.guard({ person, digest, sessionId: null, end: () => reply.raw.destroy() });
      reply.raw.once('close', unguard);
      const answer = await mcp(
        asWebRequest(request, gone.signal),
        parseBearer(request.headers.authorization),
        request.body,
      );
      await sendResponse(reply, answer);
      return reply;
    },
  });
}

/** The node that holds a connection of the older protocols, read from its id (19 §3.2). */
function parseNode(session: string | string[] | undefined): string | null {
  return /\.([0-9A-Z]{26})$/.exec(String(session ?? ''))?.[1] ?? null;
}

/** Its body has been read: it goes beside it. */
function asWebRequest(request: FastifyRequest, signal: AbortSignal): Request {
  const headers = new Headers();
  for (const [name, value] of Object.entries(request.headers))
    for (const one of [value].flat()) if (one !== undefined) headers.append(name, one);
  return new Request(new URL(request.raw.url ?? '/', 'http://localhost'), { method: request.method, headers, signal });
}

async function sendResponse(reply: FastifyReply, answer: Response): Promise<void> {
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
