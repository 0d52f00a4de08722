// Splits a client's request into the parts of its prompt, each identified by its bytes (14 §2, 19 §2.5).
import { createHash, hash } from 'node:crypto';
import type { ClientWire } from '#protocol/client-wire.ts';
import { CLIENT_BODY } from '../parsing/text-limits.ts';
import { isMapping } from '../parsing/yaml.ts';
import { collectTexts, type Prompt, type PromptPart } from '../pricing/prompt-tokens.ts';
import { findArrayElements, type Member } from './json-members.ts';
import type { RequestFacts } from './request-facts.ts';
import type { ItemSize } from './request-parts.ts';

type Place = Pick<Member, 'from' | 'to'>;

const CONVERSATION: Readonly<Record<ClientWire, string>> = {
  messages: 'messages',
  chat: 'messages',
  responses: 'input',
};
const HEAD: Readonly<Record<ClientWire, readonly string[]>> = {
  messages: ['system', 'tools'],
  chat: ['tools'],
  responses: ['instructions', 'tools'],
};
/** Members that are not part of the prompt. Every other member counts as a setting. */
const NOT_READ: ReadonlySet<string> = new Set([
  'model',
  'max_tokens',
  'max_completion_tokens',
  'max_output_tokens',
  'stream',
  'stream_options',
  'metadata',
  'temperature',
  'top_p',
  'top_k',
  'stop',
  'stop_sequences',
  'n',
  'seed',
  'user',
  'safety_identifier',
  'prompt_cache_key',
  'service_tier',
  'store',
]);
/** Tokens that a provider adds to the prompt for one of its tools that the client runs, such as a text editor. */
const PROVIDER_TOOL_TOKENS = 1500;

/** A breakpoint of the prompt cache: it moves with each call, and no model reads it. No string of JSON can hold these bytes. */
const BREAKPOINT = /,?"cache_control":\{"type":"ephemeral"(?:,"ttl":"(?:5m|1h)")?\}/g;
const BREAKPOINT_KEY = '"cache_control"';

/** More messages or tools than these count as one part: each costs microseconds. */
const MAX_PARTS = 5000;

/** The facts of a request that are read before its prompt. */
export type PromptFacts = Pick<RequestFacts, 'wire' | 'members' | 'size'>;

/** @param facts of these bytes */
export function clientPrompt(bytes: Buffer, { wire, members, size }: PromptFacts): Prompt {
  const unkeyed = { bytes: 0, images: size.images };
  const settings = createHash('sha1');
  const head: PromptPart[] = [];
  const seen = new Map<string, number>();
  let messages: readonly PromptPart[] = [];
  let partBytes = 0;
  let tools: ReadonlyMap<string, LoadedTool> | null = null;

  function keyBytes({ from, to }: Place): Buffer {
    const own = bytes.subarray(from, to);
    if (!own.includes(BREAKPOINT_KEY)) return own;
    const text = own.toString('latin1');
    const bare = text.replace(BREAKPOINT, '');
    unkeyed.bytes += text.length - bare.length;
    return Buffer.from(bare, 'latin1');
  }

  function keyHash(place: Place): string {
    return hash('sha1', keyBytes(place), 'base64');
  }

  /** @param unbounded true where a member can add text that its bytes do not bound; its content is not read */
  function wholePart(place: Place, unbounded: boolean): PromptPart {
    const length = place.to - place.from;
    partBytes += length;
    return { key: keyHash(place), bytes: length, images: 0, unbounded, texts: null };
  }

  /** The parts of a list; one for all of them where there are too many. */
  function readPlaces(
    member: Place,
    unbounded: boolean,
    readPart: (place: Place, index: number) => PromptPart,
  ): readonly PromptPart[] {
    const places = findArrayElements(bytes, CLIENT_BODY, member) ?? [member];
    if (places.length > MAX_PARTS) return [wholePart(member, unbounded)];
    return places.map(readPart);
  }

  function headPart(kind: string, place: Place): PromptPart {
    const own = `${kind} ${keyHash(place)}`;
    const times = seen.get(own) ?? 0;
    seen.set(own, times + 1);
    const length = place.to - place.from;
    partBytes += length;
    const part = { key: `${own} ${times}`, images: 0, unbounded: false };
    if (kind !== 'tools') return { ...part, bytes: length, texts: () => collectTexts(parsePlace(bytes, place)) };
    const isProviders = isProviderTool(parsePlace(bytes, place));
    return { ...part, bytes: length + (isProviders ? PROVIDER_TOOL_TOKENS : 0), texts: null };
  }

  function messagePart(place: Place, index: number): PromptPart {
    const item = size.items.get(index) ?? NO_FILES;
    const own = Math.max(0, place.to - place.from - item.data_bytes);
    // The content at a URL may be larger the next time.
    const images = item.images - item.remote_images;
    unkeyed.images -= images;
    partBytes += own;
    const loaded = item.loaded_tools.flatMap((name) => toolsByName().get(name) ?? []);
    const isText = item.images === 0 && !item.unbounded && loaded.length === 0;
    let key = keyHash(place);
    if (loaded.length > 0) key = hash('sha1', [key, ...loaded.map((tool) => tool.hash)].join(' '), 'base64');
    return {
      key,
      bytes: loaded.reduce((sum, tool) => sum + tool.bytes, own),
      images,
      unbounded: item.unbounded,
      texts: isText ? () => collectTexts(parsePlace(bytes, place)) : null,
    };
  }

  /** A provider leaves a deferred tool out of the prompt until a message loads it, and writes it there then. */
  function toolsByName(): ReadonlyMap<string, LoadedTool> {
    if (tools !== null) return tools;
    const found = new Map<string, LoadedTool>();
    const member = members.get('tools');
    let places = (member && findArrayElements(bytes, CLIENT_BODY, member)) ?? [];
    // With more parts, all of them together are unbounded.
    if (places.length > MAX_PARTS) places = [];
    for (const place of places) {
      const tool = parsePlace(bytes, place);
      const name = isMapping(tool) ? String(tool.name) : '';
      const before = found.get(name) ?? NO_TOOL;
      const both = hash('sha1', `${before.hash} ${keyHash(place)}`, 'base64');
      found.set(name, { bytes: before.bytes + place.to - place.from, hash: both });
    }
    tools = found;
    return found;
  }

  for (const member of members.values()) {
    const { key } = member;
    if (key === CONVERSATION[wire]) {
      messages = readPlaces(member, size.items.size > 0, messagePart);
    } else if (HEAD[wire].includes(key)) {
      head.push(...readPlaces(member, key === 'tools', (place) => headPart(key, place)));
    } else if (!NOT_READ.has(key))
      settings
        .update(`${JSON.stringify(key)}\n`)
        .update(keyBytes(member))
        .update('\n');
  }
  return {
    settings: settings.digest('base64'),
    head,
    messages,
    frame_bytes: Math.max(0, size.text_bytes - partBytes),
    unkeyed,
    unbounded: size.unbounded,
  };
}

const NO_FILES: ItemSize = { images: 0, remote_images: 0, data_bytes: 0, unbounded: false, loaded_tools: [] };

interface LoadedTool {
  readonly bytes: number;
  readonly hash: string;
}
const NO_TOOL: LoadedTool = { bytes: 0, hash: '' };

/** It runs at the client, and its description is the provider's own. */
function isProviderTool(tool: unknown): boolean {
  return isMapping(tool) && typeof tool.type === 'string' && tool.type !== 'custom' && tool.type !== 'function';
}

function parsePlace(bytes: Buffer, { from, to }: Place): unknown {
  return JSON.parse(bytes.toString('utf8', from, to));
}
