// Input tokens that providers reported, by the prompt they were reported for: in memory only, empty after a restart (14 §2).

import { type KnownPrompt, type Prompt, promptChains } from '#core/policy/pricing/prompt.ts';
import type { SessionId } from '#protocol/ids.ts';

/** A prompt by its hashes. */
export interface PromptTrace {
  readonly session: SessionId;
  /** Model, settings and all messages. */
  readonly chain: string;
  /** Model and settings. */
  readonly start: string;
  readonly messages: number;
  readonly head: ReadonlySet<string>;
  /** Keys of the parts by which other sessions find this head. */
  readonly large: readonly string[];
}

interface KnownChain extends KnownPrompt {
  readonly chain: string;
}

export interface KnownPrompts {
  /** The session used last at the end. */
  readonly sessions: Map<SessionId, readonly KnownChain[]>;
  /** By model, settings and one large part; the one used last at the end. */
  readonly heads: Map<string, KnownPrompt>;
}

const MAX_SESSIONS = 2048;
/** Clients of one session take turns: its own conversation, its title, its small questions. */
const MAX_CHAINS = 8;
const MAX_HEADS = 4096;
const LARGE_PART_BYTES = 1024;

export function createKnownPrompts(): KnownPrompts {
  return { sessions: new Map(), heads: new Map() };
}

/** What is known of this prompt in its session, and of its head in any other; and its trace. */
export function lookUpPrompt(
  memory: KnownPrompts,
  session: SessionId,
  modelId: string,
  prompt: Prompt,
): { readonly known: readonly KnownPrompt[]; readonly trace: PromptTrace } {
  const own = memory.sessions.get(session) ?? [];
  const { length } = prompt.messages;
  const chains = promptChains(modelId, prompt, new Set([0, length, ...own.map(({ messages }) => messages)]));
  const start = chains.get(0)!;
  const large = prompt.head.flatMap(({ key, bytes }) => (bytes >= LARGE_PART_BYTES ? [`${start} ${key}`] : []));
  const known: KnownPrompt[] = own.filter(({ messages, chain }) => chains.get(messages) === chain);
  for (const key of large) {
    const head = memory.heads.get(key);
    if (head !== undefined) known.push(head);
  }
  if (own.length > 0) keep(memory.sessions, session, own, MAX_SESSIONS);
  const head = new Set(prompt.head.map(({ key }) => key));
  return { known, trace: { session, chain: chains.get(length)!, start, messages: length, head, large } };
}

/** @param tokens that the provider reported for all of the prompt */
export function rememberPrompt(memory: KnownPrompts, trace: PromptTrace, tokens: number): void {
  const { session, chain, messages, large } = trace;
  const own = memory.sessions.get(session) ?? [];
  const head = own.find((known) => isSame(known.head, trace.head))?.head ?? trace.head;
  const others = own.filter((known) => known.chain !== chain);
  keep(memory.sessions, session, [...others, { chain, messages, head, tokens }].slice(-MAX_CHAINS), MAX_SESSIONS);
  for (const key of large) {
    const known = memory.heads.get(key);
    const least = known !== undefined && known.tokens <= tokens ? known : { tokens, head, messages: 0 };
    keep(memory.heads, key, least, MAX_HEADS);
  }
}

function isSame(a: ReadonlySet<string>, b: ReadonlySet<string>): boolean {
  return a.size === b.size && [...a].every((key) => b.has(key));
}

/** The key used longest ago makes room. */
function keep<Key, Value>(map: Map<Key, Value>, key: Key, value: Value, most: number): void {
  map.delete(key);
  map.set(key, value);
  if (map.size > most) map.delete(map.keys().next().value!);
}
