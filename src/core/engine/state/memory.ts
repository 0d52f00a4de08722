// Money of running calls, warned limits, open approvals, routing and prompt memory: in memory only, rebuilt after a restart (14).

import { hashPromptChains, type KnownPrompt, type Prompt } from '#core/policy/pricing/prompt-tokens.ts';
import { type Availability, emptyAvailability } from '#core/policy/registry/availability.ts';
import { type PolicyLayer, UNREAD } from '#core/policy/routing/policy-layers.ts';
import type { Clock } from '#protocol/clock.ts';
import type { Answer } from '#protocol/confirmation.ts';
import type { Issue } from '#protocol/errors.ts';
import type { ConfirmationId, EventId, SessionId, ToolUseId } from '#protocol/ids.ts';
import type { Pusd } from '#protocol/money.ts';
import type { OnReached } from '#protocol/scalars.ts';

export type BudgetScope = 'session' | 'delegation' | 'experiment' | 'owner' | 'day' | 'key';

/** The limit of one delegation: covers its worker and everything below. */
export interface DelegationCap {
  readonly tool_use_id: ToolUseId;
  readonly session_id: SessionId;
  readonly limit: Pusd;
}

/** A limit and the money that counts against it, at one moment. */
export interface BudgetAmounts {
  readonly limit: Pusd;
  readonly spent: Pusd;
  readonly reserved: Pusd;
  /** The most that the refused call may cost. */
  readonly needed: Pusd;
}

/** Why a call was refused. */
export interface BudgetRefusal extends BudgetAmounts {
  readonly scope: BudgetScope;
  readonly key: string;
  readonly on_reached: OnReached;
  /** The missing money is held by other nodes: what of it they do not spend comes back. */
  readonly is_held_elsewhere: boolean;
}

/** Reservations are in memory only: after a crash every open call is closed before anything runs. */
export interface Budget {
  /** Reserved money by pool. */
  readonly reserved: Map<string, Pusd>;
  /** Number of settlements, changed limits and waiters that left. A check that read before a change of this number is repeated. */
  settlements: number;
  /** Callbacks of waiting calls, called after each change of `settlements`. */
  readonly waiters: Set<() => void>;
  /** Paused trees with the limit that refused a call; each waits for a higher one. Rebuilt from turns after a restart (14 §3). */
  readonly paused: Map<SessionId, Pusd>;
  /** Limits that were warned about, by key, with the amount at that time. */
  readonly warned: Map<string, Pusd>;
}

export function createBudget(): Budget {
  return { reserved: new Map(), settlements: 0, waiters: new Set(), paused: new Map(), warned: new Map() };
}

// Approvals that wait for an answer in this process. The row in the store is the truth; these are only the waiters.

export interface OpenApproval {
  /** The answer that is being stored; a second answer waits until storing it has settled. */
  claim: Promise<void> | null;
  /** The `tool.confirmation_requested` event: parent of its resolution. */
  readonly request_event: EventId;
  /** Checks an edited input as the original was checked. */
  recheck(input: Readonly<Record<string, unknown>>): Promise<readonly Issue[]>;
  settle(answer: Answer): void;
  /** The approval could not even be closed in the store. */
  fail(error: unknown): void;
  /** The server stops: no answer is possible any more, and the next start requests the approval again. */
  interrupt(): void;
  /** Called when storing the answer failed: a deadline or a cancellation that occurred meanwhile now takes effect. */
  releaseClaim(): void;
}

/** Claims an open approval at once, until `store` has settled. */
export async function claim<T>(open: OpenApproval, store: () => Promise<T>): Promise<T> {
  let endClaim = () => {};
  open.claim = new Promise((resolve) => {
    endClaim = resolve;
  });
  try {
    return await store();
  } finally {
    open.claim = null;
    endClaim();
  }
}

export type OpenApprovals = Map<ConfirmationId, OpenApproval>;

export function createOpenApprovals(): OpenApprovals {
  return new Map();
}

// Routing state between turns: provider availability and the policy files. In memory; every provider starts as available.

export interface RouteMemory {
  availability: Availability;
  /** The global file, one for all workspaces. */
  global: PolicyLayer;
  /** Each workspace's own file, the one used last at the end. */
  readonly workspaces: Map<string, PolicyLayer>;
}

/** A workspace beyond it is read anew at its next use, without its last good parse. */
const MAX_WORKSPACES = 1000;

export function createRouteMemory(): RouteMemory {
  return { availability: emptyAvailability(), global: UNREAD, workspaces: new Map() };
}

/** A copy for a decision that must change nothing. */
export function forkMemory(memory: RouteMemory): RouteMemory {
  return { ...memory, workspaces: new Map(memory.workspaces) };
}

export function rememberWorkspace({ workspaces }: RouteMemory, path: string, layer: PolicyLayer): void {
  workspaces.delete(path);
  workspaces.set(path, layer);
  if (workspaces.size > MAX_WORKSPACES) workspaces.delete(workspaces.keys().next().value!);
}

// Start of sessions by the monotonic clock: a changed wall clock changes no duration within one process.

/** Monotonic milliseconds by session, the oldest first. Forgotten with the session's end. */
export type SessionStarts = Map<SessionId, number>;

interface Timed {
  readonly starts: SessionStarts;
  readonly clock: Clock;
}

/** Sessions beyond it use the wall clock, as sessions of an earlier process do. */
const MAX_STARTS = 10_000;

export function noteStart({ starts, clock }: Timed, id: SessionId): void {
  starts.set(id, clock.monotonic());
  if (starts.size > MAX_STARTS) starts.delete(starts.keys().next().value!);
}

/** Seconds, never negative. @param createdAt wall time, used where no monotonic time is kept */
export function secondsSince({ starts, clock }: Timed, id: SessionId | null, createdAt: number): number {
  const began = id === null ? undefined : starts.get(id);
  const elapsed = began === undefined ? clock.now() - createdAt : clock.monotonic() - began;
  return Math.max(0, Math.round(elapsed)) / 1000;
}

// Input tokens that providers reported, by their prompt: in memory only, empty after a restart (14 §2).

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
  /** Heads by model, settings and one large part, in order of use. */
  readonly heads: Map<string, KnownPrompt>;
}

const MAX_SESSIONS = 2048;
/** Prompts per session: a client mixes its own conversation, its title and small requests in one session. */
const MAX_CHAINS = 8;
const MAX_HEADS = 4096;
const LARGE_PART_BYTES = 1024;

export function createKnownPrompts(): KnownPrompts {
  return { sessions: new Map(), heads: new Map() };
}

/** Known counts of this prompt in its session, and of its head in any other; and its trace. */
export function lookUpPrompt(
  memory: KnownPrompts,
  session: SessionId,
  modelId: string,
  prompt: Prompt,
): { readonly known: readonly KnownPrompt[]; readonly trace: PromptTrace } {
  const own = memory.sessions.get(session) ?? [];
  const { length } = prompt.messages;
  const chains = hashPromptChains(modelId, prompt, new Set([0, length, ...own.map(({ messages }) => messages)]));
  const start = chains.get(0)!;
  const large = prompt.head.filter(({ bytes }) => bytes >= LARGE_PART_BYTES).map(({ key }) => `${start} ${key}`);
  const known: KnownPrompt[] = own.filter(({ messages, chain }) => chains.get(messages) === chain);
  for (const key of large) {
    const head = memory.heads.get(key);
    if (head !== undefined) known.push(head);
  }
  if (own.length > 0) putLast(memory.sessions, session, own, MAX_SESSIONS);
  const head = new Set(prompt.head.map(({ key }) => key));
  return { known, trace: { session, chain: chains.get(length)!, start, messages: length, head, large } };
}

/** @param tokens that the provider reported for all of the prompt */
export function rememberPrompt(memory: KnownPrompts, trace: PromptTrace, tokens: number): void {
  const { session, chain, messages, large } = trace;
  const own = memory.sessions.get(session) ?? [];
  const head = own.find((known) => isSame(known.head, trace.head))?.head ?? trace.head;
  const others = own.filter((known) => known.chain !== chain);
  putLast(memory.sessions, session, [...others, { chain, messages, head, tokens }].slice(-MAX_CHAINS), MAX_SESSIONS);
  for (const key of large) {
    const known = memory.heads.get(key);
    const least = known !== undefined && known.tokens <= tokens ? known : { tokens, head, messages: 0 };
    putLast(memory.heads, key, least, MAX_HEADS);
  }
}

function isSame(a: ReadonlySet<string>, b: ReadonlySet<string>): boolean {
  return a.size === b.size && [...a].every((key) => b.has(key));
}

/** Drops the least recently used key. */
function putLast<Key, Value>(map: Map<Key, Value>, key: Key, value: Value, most: number): void {
  map.delete(key);
  map.set(key, value);
  if (map.size > most) map.delete(map.keys().next().value!);
}
