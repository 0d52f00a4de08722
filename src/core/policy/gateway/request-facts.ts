// The facts that the gateway reads from a request: requested model, bound of the answer, inputs of routing (19 §2.2).
import type { ClientWire } from '#protocol/client-wire.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { CLIENT_BODY } from '../parsing/text-limits.ts';
import { isMapping } from '../parsing/yaml.ts';
import { MATCH_LIMIT } from '../routing/rules.ts';
import { readStatedEffort, type StatedEffort } from './call-effort.ts';
import { findObjectMembers, includeUsage, type Member, type Splice, scanObject } from './json-members.ts';
import { type ProviderWork, readCount } from './provider-work.ts';
import { type ItemSize, readParts } from './request-parts.ts';

export interface RequestFacts {
  readonly wire: ClientWire;
  /** Members of the body with their positions. */
  readonly members: ReadonlyMap<string, Member>;
  readonly model: string;
  readonly stream: boolean;
  /** The provider responds at once and makes the answer in the background: its cost is known when it is fetched. */
  readonly background: boolean;
  readonly output: {
    /** The field that bounds the answer; null = none is given. */
    readonly key: string | null;
    /** Null = not given, or no count. */
    readonly tokens: number | null;
    /** Number of answers in one call. */
    readonly copies: number;
    /** Tokens that the client predicts, which are billed as answer also where the model writes others. */
    readonly predicted: number;
    /** The smallest bound that the provider accepts. */
    readonly least: number;
  };
  /** The effort that the client names; null = nothing. */
  readonly effort: StatedEffort | null;
  /** Null outside of `chat`. */
  readonly stream_options: {
    readonly include_usage: boolean;
    /** The splice that requests counts in the given stream options; null where they are no object. */
    readonly asking: Splice | null;
  } | null;
  readonly size: {
    /** Bytes without the data of images. */
    readonly text_bytes: number;
    readonly images: number;
    /** Of each message with images or files, by its index. */
    readonly items: ReadonlyMap<number, ItemSize>;
    /** The provider adds content to the prompt that the size of the body does not bound. */
    readonly unbounded: boolean;
    /** The most expensive class that the prompt can be billed as. */
    readonly cache: 'none' | 'write' | 'write_1h';
  };
  readonly work: ProviderWork;
  /** An object within the body has a key twice: two readers could choose differently. */
  readonly has_key_twice: boolean;
  readonly estimated_input_tokens: number;
  /** Of the last message of the user, as much as rules look at. */
  readonly text: string;
  readonly message_has_images: boolean;
  readonly has_tools: boolean;
  readonly has_system: boolean;
  readonly structured: boolean;
  readonly document_media_types: readonly string[];
}

/** Maximum characters of a model's name. */
const MAX_NAME = 256;
/** White space, control and format characters, halves of surrogate pairs. */
const NOT_IN_NAMES = /[\s\p{C}]/u;
const BOUND_KEYS: Readonly<Record<ClientWire, readonly string[]>> = {
  messages: ['max_tokens'],
  chat: ['max_completion_tokens', 'max_tokens'],
  responses: ['max_output_tokens'],
};

/** An ASCII letter, digit or underscore written as an escape may hide a word that the price depends on. */
const HIDDEN_WORD = /\\u00[2-7]/;

/** Error: one line that names what is wrong. */
export function readRequestFacts(wire: ClientWire, bytes: Buffer): Result<RequestFacts, string> {
  const scanned = scanObject(bytes, CLIENT_BODY);
  if (!scanned.ok) return err(`the body ${scanned.error}`);
  const text = bytes.toString('utf8');
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    return err('the body is not valid JSON');
  }
  if (!isMapping(body)) return err('the body must be a JSON object');
  const members = new Map(scanned.value.members.map((member) => [member.key, member]));
  const { model } = body;
  if (typeof model !== 'string' || model === '' || model.length > MAX_NAME || NOT_IN_NAMES.test(model))
    return err(`model: must be a name of at most ${MAX_NAME} characters without spaces and control characters`);
  const given = BOUND_KEYS[wire].filter((key) => body[key] != null);
  if (given.length > 1) return err(`${given.join(' and ')}: give one of them`);
  // A provider that reads the value as a count would give as many answers, while money is reserved for one.
  for (const key of ['n', 'best_of'])
    if (wire === 'chat' && body[key] != null && readCount(body[key]) === null)
      return err(`${key}: must be a whole number from 1`);
  const options = readStreamOptions(wire, bytes, members, body);
  if (!options.ok) return options;

  const parts = readParts(wire, body);
  const text_bytes = Math.max(0, bytes.length - parts.data_bytes);
  const key = given[0] ?? null;
  return ok({
    wire,
    members,
    model,
    stream: body.stream === true,
    background: wire === 'responses' && body.background != null && body.background !== false,
    output: {
      key,
      tokens: key === null ? null : readCount(body[key]),
      copies: wire === 'chat' ? Math.max(readCount(body.n) ?? 1, readCount(body.best_of) ?? 1) : 1,
      predicted: measureMember(members.get('prediction')),
      least: readThinkingBudget(body) + 1,
    },
    effort: readStatedEffort(wire, body),
    stream_options: options.value,
    size: {
      text_bytes,
      images: parts.images,
      items: parts.items,
      unbounded: parts.unbounded,
      cache: readCacheClass(wire, text),
    },
    work: parts.work,
    has_key_twice: countInnerKeys(body) < scanned.value.keys,
    estimated_input_tokens: Math.max(1, Math.floor(text_bytes / 4)),
    text: copyText(parts.text, MATCH_LIMIT),
    message_has_images: parts.message_has_images,
    has_tools: Array.isArray(body.tools) && body.tools.length > 0,
    has_system: parts.has_system,
    structured: parts.structured,
    document_media_types: parts.document_media_types,
  });
}

/** Keys of all values of the body; a key that stands twice in an object counts once. */
function countInnerKeys(body: Readonly<Record<string, unknown>>): number {
  let keys = 0;
  const open = Object.values(body);
  while (open.length > 0) {
    const value = open.pop();
    if (typeof value !== 'object' || value === null) continue;
    const inner = Object.values(value);
    if (!Array.isArray(value)) keys += inner.length;
    for (const one of inner) if (typeof one === 'object' && one !== null) open.push(one);
  }
  return keys;
}

/** Copies the text: a slice would keep the whole source string in memory while the call waits. */
function copyText(text: string, most: number): string {
  if (text.length <= most) return text;
  return Buffer.from(text.slice(0, most), 'utf16le').toString('utf16le');
}

/** OpenAI's models write to their caches without a request. A one-hour cache has to be requested in a field. */
function readCacheClass(wire: ClientWire, text: string): RequestFacts['size']['cache'] {
  const hidden = HIDDEN_WORD.test(text);
  if (wire === 'messages' && (hidden || /"ttl"\s*:\s*"(?!5m")/i.test(text))) return 'write_1h';
  // An advisor has a cache of its own, `caching`.
  if (wire !== 'messages' || /"(?:cache_?control|caching)"\s*:/i.test(text)) return 'write';
  return 'none';
}

function readStreamOptions(
  wire: ClientWire,
  bytes: Buffer,
  members: ReadonlyMap<string, Member>,
  body: Readonly<Record<string, unknown>>,
): Result<RequestFacts['stream_options'], string> {
  if (wire !== 'chat') return ok(null);
  const { stream_options } = body;
  if (!isMapping(stream_options)) return ok({ include_usage: false, asking: null });
  const place = members.get('stream_options')!;
  const inner = findObjectMembers(bytes, CLIENT_BODY, place);
  if (!inner.ok) return err(`stream_options ${inner.error}`);
  return ok({
    include_usage: stream_options.include_usage === true,
    asking: includeUsage(place, inner.value),
  });
}

/** Bytes of a value: no text has more tokens. */
function measureMember(member: Member | undefined): number {
  if (member === undefined) return 0;
  return member.to - member.from;
}

function readThinkingBudget({ thinking }: Readonly<Record<string, unknown>>): number {
  if (isMapping(thinking)) return readCount(thinking.budget_tokens) ?? 0;
  return 0;
}
