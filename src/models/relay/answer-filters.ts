// Filters of a relayed answer: headers, credentials, and the usage chunk that the client did not request (19 §2.2, §2.7).

// Headers: none that would apply to this server's connection, address or pages reaches the client (19 §2.2).

import { isMapping } from '#core/policy/parsing/yaml.ts';
import { HOP_BY_HOP, type RelayHeaders } from '#core/ports/gateway-relay.ts';
import { REDACTED } from '#protocol/text/scrub.ts';
import { EVENT_CHARACTERS, tryEventData } from '../wire/provider-values.ts';

/** Browsers apply these headers to the called address, which is this server's; caching is this server's decision. */
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
/** Prefixes of such headers, and of this server's own headers. */
const NOT_RETURNED_PREFIXES = [
  'access-control-',
  'content-security-policy',
  'cross-origin-',
  'document-policy',
  'x-metis-',
];
const NOT_RETURNED = new Set([...HOP_BY_HOP, ...OF_THE_ADDRESS, 'content-length', 'vary']);

/** @param decoded whether the relay has decoded the body */
export function filterHeaders(headers: RelayHeaders, decoded: boolean): RelayHeaders {
  const ofConnection = connectionHeaders(headers);
  return headers.filter(([name]) => {
    if (NOT_RETURNED.has(name) || ofConnection.has(name) || (decoded && name === 'content-encoding')) return false;
    return !NOT_RETURNED_PREFIXES.some((prefix) => name.startsWith(prefix));
  });
}

/** Headers that the `connection` header lists. */
export function connectionHeaders(headers: RelayHeaders): ReadonlySet<string> {
  const values = headers.filter(([name]) => name === 'connection').flatMap(([, value]) => value.split(','));
  return new Set(values.map((name) => name.trim().toLowerCase()));
}

// Credentials of the relayed request, removed wherever the answer repeats them (01 §10.3, 19 §2.7).

/** Shorter values are not secret and would match by chance. */
const SHORTEST = 8;
const CREDENTIAL_HEADER = /authorization|api-?key|token|secret/;
const MARK = Buffer.from(REDACTED);

export interface SentCredentials {
  readonly values: readonly string[];
  isContainedIn(text: string): boolean;
  /** Removes the values from a body that arrives in pieces; all other bytes pass unchanged and at once. */
  createFilter(): BodyFilter;
}

interface BodyFilter {
  pass(piece: Uint8Array): Uint8Array;
  /** Bytes held back as the possible start of a credential. */
  rest(): Uint8Array;
}

/** @param headers as they were sent, names in lower case */
export function readSentCredentials(headers: RelayHeaders): SentCredentials {
  const values = headers
    .filter(([name]) => CREDENTIAL_HEADER.test(name))
    .map(([, value]) => value.slice(value.lastIndexOf(' ') + 1))
    .filter(({ length }) => length >= SHORTEST);
  return {
    values,
    isContainedIn: (text) => values.some((value) => text.includes(value)),
    createFilter: () => createFilter(values.map((value) => Buffer.from(value, 'latin1'))),
  };
}

function createFilter(values: readonly Buffer[]): BodyFilter {
  let held: Buffer = Buffer.alloc(0);
  return {
    pass(piece) {
      let bytes: Buffer = held.length === 0 ? Buffer.from(piece) : Buffer.concat([held, piece]);
      for (const value of values) bytes = replaceAll(bytes, value);
      const open = Math.max(0, ...values.map((value) => openLength(bytes, value)));
      held = bytes.subarray(bytes.length - open);
      return bytes.subarray(0, bytes.length - open);
    },
    rest: () => held,
  };
}

function replaceAll(bytes: Buffer, value: Buffer): Buffer {
  let at = bytes.indexOf(value);
  if (at < 0) return bytes;
  const parts: Buffer[] = [];
  let from = 0;
  for (; at >= 0; at = bytes.indexOf(value, from)) {
    parts.push(bytes.subarray(from, at), MARK);
    from = at + value.length;
  }
  return Buffer.concat([...parts, bytes.subarray(from)]);
}

/** Length of the longest end of `bytes` that is a start of `value`. */
function openLength(bytes: Buffer, value: Buffer): number {
  const from = Math.max(0, bytes.length - value.length + 1);
  for (let at = bytes.indexOf(value[0]!, from); at >= 0; at = bytes.indexOf(value[0]!, at + 1))
    if (value.subarray(0, bytes.length - at).equals(bytes.subarray(at))) return bytes.length - at;
  return 0;
}

// The usage chunk of a chat stream, removed if the client did not request it (19 §2.2).

const LF = 0x0a;
const CR = 0x0d;

interface UsageFilter {
  /** The bytes to pass on now: whole events, or everything if the stream has no events. */
  pass(bytes: Uint8Array): Uint8Array;
  /** The remaining bytes at the end of the stream. */
  rest(): Uint8Array;
}

export function createUsageFilter(): UsageFilter {
  let waiting: Buffer = Buffer.alloc(0);
  return {
    pass(bytes) {
      waiting = Buffer.concat([waiting, bytes]);
      const kept: Buffer[] = [];
      let from = 0;
      for (let end = endOfEvent(waiting, from); end >= 0; end = endOfEvent(waiting, from)) {
        const event = waiting.subarray(from, end);
        if (!isUsageChunk(event)) kept.push(event);
        from = end;
      }
      waiting = waiting.subarray(from);
      // An endless event is passed on unchanged.
      if (waiting.length > EVENT_CHARACTERS) {
        kept.push(waiting);
        waiting = Buffer.alloc(0);
      }
      if (kept.length === 1) return kept[0]!;
      return Buffer.concat(kept);
    },
    rest: () => (isUsageChunk(waiting) ? Buffer.alloc(0) : waiting),
  };
}

/** Position after the blank line that ends the event; -1 = not yet received. */
function endOfEvent(bytes: Buffer, from: number): number {
  for (let at = bytes.indexOf(LF, from); at >= 0; at = bytes.indexOf(LF, at + 1)) {
    if (bytes[at + 1] === LF) return at + 2;
    if (bytes[at + 1] === CR && bytes[at + 2] === LF) return at + 3;
  }
  return -1;
}

function isUsageChunk(event: Buffer): boolean {
  if (!event.includes('"usage"')) return false;
  const data = event
    .toString('utf8')
    .split(/\r?\n/)
    .filter((line) => line.startsWith('data:'))
    .map((line) => line.slice(5))
    .join('\n');
  const chunk = tryEventData(data);
  return isMapping(chunk) && isMapping(chunk.usage) && Array.isArray(chunk.choices) && chunk.choices.length === 0;
}
