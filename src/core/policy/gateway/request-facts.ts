// What the gateway reads of a request: the model asked for, the bound of the answer, and what routing asks (19 §2.2).
import type { ClientWire } from '#protocol/client-wire.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { CLIENT_BODY } from '../parsing/text-limits.ts';
import { isMapping } from '../parsing/yaml.ts';
import { MATCH_LIMIT } from '../routing/rules.ts';
import { includeUsage, type Member, objectMembers, type Splice } from './json-members.ts';
import { type ItemSize, type OtherModel, readCount, readParts } from './request-parts.ts';

export interface RequestFacts {
  readonly wire: ClientWire;
  /** Members of the body, each with its place. */
  readonly members: ReadonlyMap<string, Member>;
  readonly model: string;
  readonly stream: boolean;
  /** The provider answers at once and makes the answer later: only a fetch shows what it cost. */
  readonly background: boolean;
  readonly output: {
    /** The field that bounds the answer; null = none is given. */
    readonly key: string | null;
    /** Null = not given, or no count. */
    readonly tokens: number | null;
    /** Answers of one call. */
    readonly copies: number;
    /** Below this the provider would refuse the bound. */
    readonly least: number;
  };
  /** Null outside of `chat`. */
  readonly stream_options: {
    readonly include_usage: boolean;
    /** What asks for counts in the options that are there; null where they are no object. */
    readonly asking: Splice | null;
  } | null;
  readonly size: {
    /** Without the data of images. */
    readonly text_bytes: number;
    readonly images: number;
    /** Of each message with images or files, by its index. */
    readonly items: ReadonlyMap<number, ItemSize>;
    /** The provider adds to the prompt what no length of the body bounds. */
    readonly unbounded: boolean;
    /** The most expensive class that the prompt can be billed as. */
    readonly cache: 'none' | 'write' | 'write_1h';
  };
  readonly other_models: readonly OtherModel[];
  /** Tokens of the prompt from which the provider writes a summary of it first; null = never. */
  readonly compacted_from: number | null;
  readonly estimated_input_tokens: number;
  /** Of the last message of the user, as much as rules look at. */
  readonly text: string;
  readonly message_has_images: boolean;
  readonly has_tools: boolean;
  readonly has_system: boolean;
  readonly structured: boolean;
  readonly document_media_types: readonly string[];
}

/** Models are called by less. */
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
  const scanned = objectMembers(bytes, CLIENT_BODY);
  if (!scanned.ok) return err(`the body ${scanned.error}`);
  const text = bytes.toString('utf8');
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    return err('the body is not valid JSON');
  }
  if (!isMapping(body)) return err('the body must be a JSON object');
  const members = new Map(scanned.value.map((member) => [member.key, member]));
  const { model } = body;
  if (typeof model !== 'string' || model === '' || model.length > MAX_NAME || NOT_IN_NAMES.test(model))
    return err(`model: must be a name of at most ${MAX_NAME} characters without spaces and control characters`);
  const given = BOUND_KEYS[wire].filter((key) => body[key] != null);
  if (given.length > 1) return err(`${given.join(' and ')}: give one of them`);
  const copies = wire === 'chat' && body.n != null ? readCount(body.n) : 1;
  // Who reads it as a count all the same would give as many answers, and one is reserved for.
  if (copies === null) return err('n: must be a whole number from 1');
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
      copies,
      least: readThinkingBudget(body) + 1,
    },
    stream_options: options.value,
    size: {
      text_bytes,
      images: parts.images,
      items: parts.items,
      unbounded: parts.unbounded,
      cache: readCacheClass(wire, text),
    },
    other_models: parts.other_models,
    compacted_from: parts.compacted_from,
    estimated_input_tokens: Math.max(1, Math.floor(text_bytes / 4)),
    text: copyText(parts.text, MATCH_LIMIT),
    message_has_images: parts.message_has_images,
    has_tools: Array.isArray(body.tools) && body.tools.length > 0,
    has_system: parts.has_system,
    structured: parts.structured,
    document_media_types: parts.document_media_types,
  });
}

/** A slice would hold all of the text that it was cut from, for as long as the call waits. */
function copyText(text: string, most: number): string {
  return text.length <= most ? text : Buffer.from(text.slice(0, most), 'utf16le').toString('utf16le');
}

/** OpenAI's models write to their caches unasked. A request that may write for an hour has a field for it. */
function readCacheClass(wire: ClientWire, text: string): RequestFacts['size']['cache'] {
  const hidden = HIDDEN_WORD.test(text);
  if (wire === 'messages' && (hidden || /"ttl"\s*:\s*"1h"/.test(text))) return 'write_1h';
  return wire !== 'messages' || /"cache_control"\s*:/.test(text) ? 'write' : 'none';
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
  const inner = objectMembers(bytes, CLIENT_BODY, place);
  if (!inner.ok) return err(`stream_options ${inner.error}`);
  return ok({
    include_usage: stream_options.include_usage === true,
    asking: includeUsage(place, inner.value),
  });
}

function readThinkingBudget({ thinking }: Readonly<Record<string, unknown>>): number {
  return isMapping(thinking) ? (readCount(thinking.budget_tokens) ?? 0) : 0;
}
