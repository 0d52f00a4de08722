// Which headers of a request go on to another node, and which of its answer come back (16 §5.2).
import type { FastifyReply, FastifyRequest } from 'fastify';
import { HOP_BY_HOP } from '#core/ports/gateway-relay.ts';

/** The epoch at which the receiver owns the tree; 0 = it is to claim it. */
export const FORWARDED = 'x-metis-forwarded';
/** On an answer between nodes: nothing of the request was begun, and another may take it; `perhaps` = or it was cut off. */
export const NOT_TAKEN = 'x-metis-not-taken';

/** The receiving node has another name, so it cannot check these; this node has checked them. */
const CHECKED_HERE = ['host', 'origin', 'expect', FORWARDED];
const NOT_SENT = new Set([...HOP_BY_HOP, ...CHECKED_HERE]);
const NOT_RETURNED = new Set([...HOP_BY_HOP, NOT_TAKEN]);

/** Reports to the forwarding node that another node may take the request. */
export function markNotTaken({ headers }: FastifyRequest, reply: FastifyReply, mark: '1' | 'perhaps' = '1'): void {
  if (headers[FORWARDED] !== undefined) reply.header(NOT_TAKEN, mark);
}

/**
 * Names and values in turn, as undici takes them.
 * @param bytes of a body that was made anew; null = as the request states
 */
export function buildSentHeaders({ raw }: FastifyRequest, epoch: number, bytes: number | null): string[] {
  const named = parseConnectionHeader(raw.headers.connection);
  const headers = [FORWARDED, String(epoch), ...(bytes === null ? [] : ['content-length', String(bytes)])];
  for (let i = 0; i + 1 < raw.rawHeaders.length; i += 2) {
    const name = raw.rawHeaders[i]!.toLowerCase();
    const replaced = bytes !== null && name === 'content-length';
    if (!NOT_SENT.has(name) && !named.has(name) && !replaced && !name.startsWith('sec-fetch-'))
      headers.push(raw.rawHeaders[i]!, raw.rawHeaders[i + 1]!);
  }
  return headers;
}

type Head = Readonly<Record<string, string | string[] | undefined>>;

/** The headers of the answer, and those that this node adds for the caller's page. */
export function buildReturnedHeaders(reply: FastifyReply, head: Head): Record<string, string | string[]> {
  const named = parseConnectionHeader(head.connection);
  const headers: Record<string, string | string[]> = {};
  for (const [name, value] of Object.entries(reply.getHeaders()))
    if (name === 'vary' || name === 'connection' || name.startsWith('access-control-')) headers[name] = String(value);
  for (const [name, value] of Object.entries(head))
    if (value !== undefined && !NOT_RETURNED.has(name) && !named.has(name)) headers[name] = value;
  return headers;
}

/** Headers that the `Connection` header assigns to the connection. */
function parseConnectionHeader(connection: string | string[] | undefined): ReadonlySet<string> {
  const names = [connection ?? ''].flat().join(',').split(',');
  return new Set(names.map((name) => name.trim().toLowerCase()).filter((name) => name !== ''));
}
