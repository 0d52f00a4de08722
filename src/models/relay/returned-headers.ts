// Headers of a provider's answer that a client gets: none that speaks for this server's connection, address or pages (19 §2.2).
import type { RelayHeaders } from '#core/ports/relay.ts';

/** They concern one connection only. */
export const HOP_BY_HOP = [
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
];

/** Browsers apply these to the address that they called, which is this server's; caching is this server's decision. */
const OF_THE_ADDRESS = [
  'accept-ch',
  'age',
  'alt-svc',
  'cache-control',
  'clear-site-data',
  'critical-ch',
  'expect-ct',
  'expires',
  'feature-policy',
  'link',
  'location',
  'nel',
  'origin-agent-cluster',
  'origin-trial',
  'permissions-policy',
  'pragma',
  'public-key-pins',
  'public-key-pins-report-only',
  'referrer-policy',
  'refresh',
  'report-to',
  'reporting-endpoints',
  'service-worker-allowed',
  'set-cookie',
  'set-cookie2',
  'set-login',
  'sourcemap',
  'speculation-rules',
  'strict-transport-security',
  'supports-loading-mode',
  'timing-allow-origin',
  'www-authenticate',
  'x-content-type-options',
  'x-dns-prefetch-control',
  'x-frame-options',
  'x-permitted-cross-domain-policies',
  'x-sourcemap',
  'x-xss-protection',
];
/** Families of them, and what clients read of this server. */
const PREFIXES = ['access-control-', 'content-security-policy', 'cross-origin-', 'document-policy', 'x-metis-'];
const NOT_RETURNED = new Set([...HOP_BY_HOP, ...OF_THE_ADDRESS, 'content-length', 'vary']);

/** @param decoded the coding of the body was taken off here */
export function returnedHeaders(headers: RelayHeaders, decoded: boolean): RelayHeaders {
  const ofConnection = namedByConnection(headers);
  return headers.filter(([name]) => {
    if (NOT_RETURNED.has(name) || ofConnection.has(name) || (decoded && name === 'content-encoding')) return false;
    return !PREFIXES.some((prefix) => name.startsWith(prefix));
  });
}

/** Headers that belong to the connection because its own header names them. */
export function namedByConnection(headers: RelayHeaders): ReadonlySet<string> {
  const values = headers.filter(([name]) => name === 'connection').flatMap(([, value]) => value.split(','));
  return new Set(values.map((name) => name.trim().toLowerCase()));
}
