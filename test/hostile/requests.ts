// Requests and WebSocket frames made from the OpenAPI document, most of them made worse.
import { STREAM_TYPES } from '#http/stream/subscription.ts';
import { operations } from '../support/contract.ts';
import type { Parsed } from '../support/http.ts';
import { type Chance, createChance } from './chance.ts';

/** What exists on the server at this moment, so that not every question is about nothing. */
export interface Known {
  readonly workspace: string;
  readonly sessions: readonly string[];
  readonly turns: readonly { readonly session: string; readonly turn: string }[];
  readonly events: readonly string[];
}

export type FuzzCase =
  | {
      readonly kind: 'request';
      readonly method: string;
      readonly target: string;
      readonly headers: Readonly<Record<string, string>>;
      readonly body: string | null;
    }
  | { readonly kind: 'bytes'; readonly bytes: Buffer }
  | { readonly kind: 'socket'; readonly target: string; readonly frames: readonly (string | Buffer)[] };

const NOBODY = '01ARZ3NDEKTSV4RRFFQ69G5FAV';
/** Where a value stands: what breaks readers. */
const WRONG: readonly unknown[] = [
  null,
  true,
  -1,
  0,
  1e308,
  9_007_199_254_740_992,
  0.1,
  '',
  ' ',
  '\0',
  '\ud800',
  'x'.repeat(9000),
  '../../etc/passwd',
  '/dev/zero',
  '@opus',
  '%00',
  '0.0000000000001',
  '-5',
  '1e400',
  [],
  {},
  [[]],
  { type: 'text' },
  Array(2000).fill(0),
  nested(60),
];
const METHODS = ['GET', 'POST', 'PATCH', 'DELETE', 'PUT', 'OPTIONS', 'HEAD', 'PROPFIND'];

function nested(depth: number): object {
  return depth === 0 ? {} : { a: nested(depth - 1) };
}

/** The same seed and the same knowledge give the same cases. */
export function createFuzz(seed: number): (known: Known) => FuzzCase {
  const chance = createChance(seed);
  const { below, pick, random } = chance;
  return (known) => {
    if (random() < 0.12) return socketCase(chance, known);
    const request = requestCase(chance, known);
    return random() < 0.06 ? bytesCase(chance, request) : request;
  };

  function requestCase(_: Chance, known: Known): Extract<FuzzCase, { kind: 'request' }> {
    const { method, url, item } = pick(operations);
    const at = known.turns.length > 0 && random() < 0.8 ? pick(known.turns) : null;
    const ids: Record<string, string | undefined> = {
      session_id: at?.session ?? known.sessions.at(below(known.sessions.length)),
      turn_id: at?.turn,
    };
    const value = (name: string, schema: Parsed) =>
      random() < 0.2 ? String(pick(WRONG)) : String(sample(chance, name, schema, known));
    const filled = url.replace(/\{(\w+)\}/g, (_match, name: string) =>
      encodeURIComponent(
        random() < 0.1 ? value(name, { type: 'string' }).replaceAll('\ud800', '') : (ids[name] ?? NOBODY),
      ),
    );
    const query = (item.parameters ?? [])
      .filter((parameter: Parsed) => parameter.in === 'query' && random() < 0.3)
      .map(({ name, schema }: Parsed) => `${name}=${encodeURIComponent(wellFormed(value(name, schema)))}`);
    if (random() < 0.05)
      query.push(pick(['x=1', 'limit=1&limit=2', '__proto__=1', '%', 'cursor=%FF', 'a[b]=c', '&&=']));
    const target = `${filled}${query.length > 0 ? `?${query.join('&')}` : ''}`;
    const schema = item.requestBody?.content['application/json'].schema;
    return {
      kind: 'request',
      method: random() < 0.04 ? pick(METHODS) : method,
      target: random() < 0.03 ? chance.changed(target, '/sessions/').slice(0, 20_000) : target,
      headers: headersFor(schema !== undefined),
      body: schema === undefined ? (random() < 0.03 ? '{"a":1}' : null) : bodyOf(schema, known),
    };
  }

  function bodyOf(schema: Parsed, known: Known): string | null {
    const value = sample(chance, '', schema, known);
    const dice = random();
    if (dice < 0.3) return JSON.stringify(value);
    if (dice < 0.75) return JSON.stringify(worse(chance, value));
    if (dice < 0.77) return null;
    return chance.changed(JSON.stringify(value), '{"content":"go"}').slice(0, 200_000);
  }

  function headersFor(hasBody: boolean): Record<string, string> {
    const headers: Record<string, string> = {};
    if (hasBody && random() < 0.97) headers['content-type'] = 'application/json';
    if (random() < 0.1) headers['content-type'] = pick(['text/plain', 'application/json; charset=latin1', 'x', '']);
    if (random() < 0.1) headers.accept = pick(['text/event-stream', '*/*', 'application/xml', 'x'.repeat(4000)]);
    if (random() < 0.1)
      headers.prefer = pick(['wait=0', 'wait=1', 'wait=-1', 'wait=999999999999', 'respond-async', ',,;=']);
    if (random() < 0.1) headers['idempotency-key'] = pick(['a', 'b', 'k'.repeat(300), 'é', ' ']);
    if (random() < 0.05) headers['last-event-id'] = pick(['', 'x', NOBODY, '0'.repeat(26)]);
    if (random() < 0.05) headers.authorization = pick(['Bearer x', 'Basic eDp5', 'Bearer', 'x'.repeat(8000)]);
    if (random() < 0.04) headers.origin = pick(['null', 'https://evil.example', 'http://', '%%%']);
    if (random() < 0.03) headers.host = pick(['evil.example', '', 'localhost', '[::1', 'a:99999999']);
    if (random() < 0.03) headers.expect = pick(['100-continue', 'x']);
    if (random() < 0.03) headers.traceparent = pick(['00-x', `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`, '\t']);
    return headers;
  }
}

/** A value that the schema allows, as far as the schema says; ids and paths are those that exist. */
function sample(chance: Chance, name: string, schema: Parsed, known: Known): unknown {
  const { pick, below, random } = chance;
  if (name === 'workspace_path') return known.workspace;
  if (/since|until|before|after/.test(name)) return known.events.length > 0 ? pick(known.events) : NOBODY;
  if (name === 'session_id' || name === 'session') return known.sessions.length > 0 ? pick(known.sessions) : NOBODY;
  if (/model|baseline|override/.test(name) && random() < 0.7) return pick(['plan', 'work', 'plan:planner', 'nope']);
  if (name === 'max_cost_usd') return pick(['1', '0.000001', '9999999', null]);
  const choices = schema.enum ?? schema.anyOf ?? schema.oneOf;
  if (schema.enum !== undefined) return pick(schema.enum);
  if (schema.const !== undefined) return schema.const;
  if (choices !== undefined) return sample(chance, name, pick(choices), known);
  switch ([schema.type].flat()[0]) {
    case 'object':
      return Object.fromEntries(
        Object.entries<Parsed>(schema.properties ?? {})
          .filter(([key]) => schema.required?.includes(key) === true || random() < 0.4)
          .map(([key, inner]) => [key, sample(chance, key, inner, known)]),
      );
    case 'array':
      return Array.from({ length: 1 + below(3) }, () => sample(chance, name, schema.items ?? {}, known));
    case 'integer':
    case 'number':
      return pick([0, 1, 2, 30, schema.maximum ?? 7]);
    case 'boolean':
      return random() < 0.5;
    default:
      return pick([
        'go',
        'true',
        '1',
        'all',
        'model',
        '2026-01-01T00:00:00Z',
        'none',
        'turn.started',
        'schema_version: 1',
      ]);
  }
}

/** The value with one thing in it gone, added, or of another kind. */
function worse(chance: Chance, value: unknown): unknown {
  const { pick, random } = chance;
  if (typeof value !== 'object' || value === null || random() < 0.1) return pick(WRONG);
  if (Array.isArray(value)) {
    if (value.length === 0 || random() < 0.2) return Array(500).fill(value[0] ?? 'x');
    return value.map((item, i) => (i === 0 ? worse(chance, item) : item));
  }
  const entries = Object.entries(value);
  if (entries.length === 0 || random() < 0.15) {
    return { ...value, [pick(['extra', 'constructor', 'toString', 'x'.repeat(500), ''])]: pick(WRONG) };
  }
  const [key, inner] = pick(entries);
  const { [key]: _, ...rest } = value as Record<string, unknown>;
  return random() < 0.2 ? rest : { ...rest, [key]: worse(chance, inner) };
}

/** A request as its bytes, some of them others. */
function bytesCase({ below, pick }: Chance, request: Extract<FuzzCase, { kind: 'request' }>): FuzzCase {
  const { method, target, headers, body } = request;
  const lines = Object.entries({ host: 'localhost', ...headers }).map(([name, value]) => `${name}: ${value}\r\n`);
  const length = body === null ? '' : `content-length: ${Buffer.byteLength(body) + pick([0, 0, 1, -1])}\r\n`;
  const bytes = Buffer.from(`${method} ${target} HTTP/1.1\r\n${lines.join('')}${length}\r\n${body ?? ''}`);
  for (let flips = below(6); flips > 0; flips--)
    bytes[below(bytes.length)] = pick([0, 10, 13, 32, 58, 255, below(256)]);
  return { kind: 'bytes', bytes: bytes.subarray(0, pick([bytes.length, below(bytes.length)])) };
}

function socketCase(chance: Chance, known: Known): FuzzCase {
  const { pick, below, random } = chance;
  const session = known.sessions.length > 0 && random() < 0.9 ? pick(known.sessions) : `sess_${NOBODY}`;
  const query = pick([
    '',
    '',
    '?preset=chat',
    '?snapshot=true&include_worker_sessions=true',
    '?types=x',
    '?since=x',
    '?token=a',
  ]);
  return {
    kind: 'socket',
    target: `/sessions/${session}/stream${query}`,
    frames: Array.from({ length: 1 + below(4) }, () => frame()),
  };

  function frame(): string | Buffer {
    const subscribe: Record<string, unknown> = { type: 'subscribe' };
    if (random() < 0.4) subscribe.types = [pick(STREAM_TYPES), pick(STREAM_TYPES)];
    if (random() < 0.3) subscribe.preset = 'chat';
    if (random() < 0.5) subscribe.snapshot = random() < 0.7;
    if (random() < 0.3) subscribe.since = known.events.length > 0 ? pick(known.events) : NOBODY;
    if (random() < 0.3) subscribe.include_worker_sessions = true;
    const text = JSON.stringify(subscribe);
    const dice = random();
    if (dice < 0.3) return text;
    if (dice < 0.6) return JSON.stringify(worse(chance, subscribe));
    if (dice < 0.9) return wellFormed(chance.changed(text, text)).slice(0, pick([1000, 70_000]));
    return Buffer.alloc(below(2000), below(256));
  }
}

/** Without halves of a pair, which no UTF-8 can carry. */
function wellFormed(text: string): string {
  return text.replace(/[\ud800-\udfff]/g, '\ufffd');
}
