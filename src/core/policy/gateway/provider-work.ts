// What a request lets its provider do by itself: other models, tools, summaries, and what nothing bounds (22 §3).
import type { ClientWire } from '#protocol/client-wire.ts';
import { TERMS, type Terms } from '#protocol/usage.ts';
import { shownName } from '../cut.ts';
import { isMapping, toList } from '../parsing/yaml.ts';
import type { FeeTool } from '../pricing/fees.ts';
import { BILLED_MEMBERS, findToolWork, getWireTools, UNBOUNDED_FIELDS } from './provider-tools.ts';

/** As many as a value in no form that is known could mean: the maximum of the model counts. */
const ANY_NUMBER = Number.MAX_SAFE_INTEGER;

export interface OtherModel {
  /** Empty where the provider or the model of the call chooses it. */
  readonly name: string;
  /** `advisor` is asked in the midst of the answer, `fallback` in place of the model of the call. */
  readonly role: 'advisor' | 'fallback';
  /** How often it may be asked; null = as often as the model of the call likes. */
  readonly uses: number | null;
  /** Bound of its answer; null = the model's own, for a fallback that of the request. */
  readonly output_tokens: number | null;
  /** The member of the body that names it. */
  readonly member: string;
}

/** A part of the request whose bill nothing in the request bounds. */
export interface UnboundedPart {
  /** The member of the body; empty = the body itself. */
  readonly member: string;
  readonly why: string;
  readonly remedy: string;
}

interface ToolFee {
  readonly tool: FeeTool;
  /** At most; null = the loop of the provider bounds them. */
  readonly uses: number | null;
  /** Its uses cost nothing where the price table names no fee. */
  readonly free: boolean;
}

/** Tools that the provider runs. */
interface HostedTools {
  readonly samplings: number;
  readonly fees: readonly ToolFee[];
  /** The uses are those of all tools together. */
  readonly shared: boolean;
}

export interface ProviderWork {
  readonly other_models: readonly OtherModel[];
  /** Null = none. */
  readonly hosted: HostedTools | null;
  /** Tokens of the prompt from which the provider writes a summary of it first; null = never. */
  readonly compacted_from: number | null;
  /** As requested; null = not named, or in no form that is known. */
  readonly terms: Terms;
  readonly unbounded: readonly UnboundedPart[];
}

type Json = Readonly<Record<string, unknown>>;

/** Tokens of a prompt from which a provider summarises it, where the request does not say. */
const LEAST_COMPACTED = 50_000;
/** Blocks within blocks. */
const MAX_DEPTH = 8;
/** Parts that are reported at most: the first one names the remedy. */
const MAX_PARTS = 16;

/** @param items the conversation, which may define tools too */
export function readProviderWork(wire: ClientWire, body: Json, items: readonly unknown[]): ProviderWork {
  const found: Found = { wire, body, fees: [], uses: 0, loops: false, other_models: [], unbounded: [] };
  for (const [member, { why, remedy }] of Object.entries(UNBOUNDED_FIELDS))
    if (isInUse(body[member])) report(found, { member, why, remedy });
  checkMembers(body, found);
  readTools(body.tools, found, 'tools', 0);
  for (const item of items) readItemTools(item, found, 0);
  for (const member of ['fallbacks', 'models'] as const) readNamedModels(member, found);
  if (isInUse(body.background) && body.store === false)
    report(found, {
      member: 'store',
      why: 'an answer that is not stored cannot be fetched',
      remedy: 'leave store out',
    });
  readForms(body, found);
  if (isMapping(body.thread) && body.thread.type !== 'create')
    report(found, {
      member: 'thread',
      why: 'the provider keeps what the thread may do',
      remedy: 'send the conversation itself',
    });
  return {
    other_models: found.other_models,
    hosted: countHosted(found),
    compacted_from: readCompactionThreshold(found),
    terms: readTerms(body),
    unbounded: found.unbounded,
  };
}

/** Forms of an answer whose tokens are billed at other rates, or beyond the bound of the answer. */
function readForms({ modalities, reasoning }: Json, found: Found): void {
  const forms = toList(modalities);
  if (modalities != null && (!Array.isArray(modalities) || forms.some((form) => form !== 'text')))
    report(found, {
      member: 'modalities',
      why: 'the price table has the rates of text alone',
      remedy: 'ask for text, or leave modalities out',
    });
  if (!isMapping(reasoning)) return;
  checkMembers(reasoning, found);
  if (reasoning.mode != null && reasoning.mode !== 'standard')
    report(found, {
      member: 'reasoning',
      why: `nothing bounds what the mode ${shownName(String(reasoning.mode))} generates`,
      remedy: 'set reasoning.mode to standard, or leave it out',
    });
}

interface Found {
  readonly wire: ClientWire;
  readonly body: Json;
  readonly fees: ToolFee[];
  uses: number;
  /** A tool is used as often as the loop of the provider allows. */
  loops: boolean;
  readonly other_models: OtherModel[];
  readonly unbounded: UnboundedPart[];
}

function report({ unbounded }: Found, part: UnboundedPart): void {
  if (unbounded.length < MAX_PARTS) unbounded.push(part);
}

/** A value that switches something on, in whatever form. */
function isInUse(value: unknown): boolean {
  if (value == null || value === false) return false;
  if (Array.isArray(value)) return value.length > 0;
  return !isMapping(value) || value.enabled !== false;
}

/** No other case of it means the same. */
const PLAIN_KEY = /^[a-z0-9_]*$/;

/** One spelling for all cases of a name: `maxTokens`, `Max-Tokens` and `max_tokens` are the same. */
function foldCase(name: string): string {
  return name
    .toUpperCase()
    .toLowerCase()
    .replaceAll(/[^a-z0-9]/g, '');
}

const BILLED_NAMES: ReadonlyMap<string, string> = new Map([...BILLED_MEMBERS].map((name) => [foldCase(name), name]));

/** A server that reads names in any case would take such a member for the one that is bounded here. */
function checkMembers(value: Json, found: Found): void {
  for (const key of Object.keys(value)) {
    if (PLAIN_KEY.test(key)) continue;
    const name = BILLED_NAMES.get(foldCase(key));
    if (name !== undefined)
      report(found, {
        member: shownName(key),
        why: `a server may read it as ${name}`,
        remedy: `write ${name}, or leave it out`,
      });
  }
}

function readTools(given: unknown, found: Found, member: string, depth: number): void {
  if (given == null) return;
  if (!Array.isArray(given) || depth > MAX_DEPTH) {
    report(found, { member, why: 'its tools are in no form that is known', remedy: 'send a list of tools' });
    return;
  }
  for (const tool of given) readTool(tool, found, member, depth);
}

function readTool(tool: unknown, found: Found, member: string, depth: number): void {
  if (!isMapping(tool)) {
    report(found, { member, why: 'a tool is no object', remedy: 'send a list of tools' });
    return;
  }
  checkMembers(tool, found);
  const { type } = tool;
  readTools(tool.tools, found, member, depth + 1);
  if (type == null || isRunByClient(tool)) return;
  const work = typeof type === 'string' ? findToolWork(found.wire, type) : null;
  const name = shownName(String(type));
  if (work === null)
    report(found, { member, why: `the tool type ${name} is not known here`, remedy: 'leave that tool out' });
  else if (work.by === 'unbounded')
    report(found, { member, why: `nothing bounds the uses of ${name}`, remedy: 'leave that tool out' });
  else if (work.by === 'chosen_model')
    report(found, {
      member,
      why: `the provider chooses the model of ${member}`,
      remedy: 'name a model that GET /v1/models shows',
    });
  else if (work.by === 'advisor') found.other_models.push(readAdvisor(tool, member));
  else if (work.by === 'loop') {
    found.loops = true;
    found.fees.push({ tool: work.fee, uses: null, free: true });
  } else if (work.by === 'provider') readHosted(tool, work, { found, member });
}

/** A tool that runs at the provider unless the request sets another place. */
function isRunByClient({ type, environment, execution }: Json): boolean {
  if (type === 'tool_search') return execution === 'client';
  return type === 'shell' && isMapping(environment) && environment.type === 'local';
}

function readHosted(
  tool: Json,
  { fee, free }: { readonly fee: FeeTool; readonly free: boolean },
  { found, member }: { readonly found: Found; readonly member: string },
): void {
  const { field, of } = getWireTools(found.wire).uses;
  const uses = readCount(of === 'tool' ? tool[field] : found.body[field]);
  const type = shownName(String(tool.type));
  if (fee === 'code_interpreter_container') readContainer(tool, { found, member });
  if (uses === null) {
    report(found, { member, why: `${type} may be used without end`, remedy: `set ${field} to a whole number from 1` });
    return;
  }
  found.uses = of === 'body' ? uses : Math.min(found.uses + uses, Number.MAX_SAFE_INTEGER);
  found.fees.push({ tool: fee, uses, free });
}

/** A container with more memory costs a multiple of the fee. */
function readContainer(
  { container, environment }: Json,
  { found, member }: { readonly found: Found; readonly member: string },
): void {
  for (const place of [container, environment].filter(isMapping)) {
    checkMembers(place, found);
    if (place.memory_limit == null || place.memory_limit === '1g') continue;
    const why = 'the fee is that of a container with 1 GB of memory';
    report(found, { member, why, remedy: 'leave memory_limit out' });
  }
}

function countHosted({ wire, uses, loops, fees }: Found): HostedTools | null {
  if (uses === 0 && !loops) return null;
  const { samplings, uses: bound } = getWireTools(wire);
  const shared = bound.of === 'body';
  if (samplings === null) return { samplings: uses + 1, fees, shared };
  return { samplings: loops ? samplings : Math.min(samplings, uses + 1), fees, shared };
}

/** Members of a message that hold blocks or tools. Inputs and results of calls are data. */
const INNER = ['content', 'output', 'tool_changes', 'tool', 'definition'];

/** Tools that a message defines. */
function readItemTools(item: unknown, found: Found, depth: number): void {
  if (Array.isArray(item)) {
    for (const one of item) readItemTools(one, found, depth);
    return;
  }
  if (!isMapping(item)) return;
  const member = found.wire === 'responses' ? 'input' : 'messages';
  if (depth > MAX_DEPTH) {
    report(found, { member, why: 'its blocks are too deep to be read', remedy: 'send a flat list of blocks' });
    return;
  }
  checkMembers(item, found);
  const { type, definition, tools } = item;
  if (type === 'tool_definition') readTool(definition, found, member, 0);
  else readTools(tools, found, member, 0);
  for (const key of INNER) if (typeof item[key] === 'object') readItemTools(item[key], found, depth + 1);
}

function readAdvisor({ model, max_uses, max_tokens }: Json, member: string): OtherModel {
  const name = typeof model === 'string' ? model : '';
  return { name, role: 'advisor', uses: readCount(max_uses), output_tokens: readCount(max_tokens), member };
}

/** Names alone, or objects with a name. */
function readNamedModels(member: 'fallbacks' | 'models', found: Found): void {
  const entries = found.body[member];
  if (entries == null) return;
  for (const entry of Array.isArray(entries) ? entries : [null]) {
    if (isMapping(entry)) checkMembers(entry, found);
    const name = isMapping(entry) ? entry.model : entry;
    if (typeof name !== 'string' || name === '')
      report(found, { member, why: 'the provider chooses the model', remedy: 'list models that GET /v1/models shows' });
    else {
      const output_tokens = isMapping(entry) ? readBound(entry.max_tokens) : null;
      found.other_models.push({ name, role: 'fallback', uses: 1, output_tokens, member });
    }
  }
}

/** Null = not given; a value that one of two readers could take for a large count is one. */
function readBound(value: unknown): number | null {
  if (value == null) return null;
  return readCount(value) ?? ANY_NUMBER;
}

function readCompactionThreshold(found: Found): number | null {
  const { context_management, compaction } = found.body;
  if (compaction != null) return 0;
  if (isMapping(context_management)) checkMembers(context_management, found);
  const given = isMapping(context_management) ? context_management.edits : context_management;
  if (given != null && !Array.isArray(given)) return 0;
  const edits = toList(given).filter(isMapping);
  for (const edit of edits) checkMembers(edit, found);
  const compactions = edits.filter(({ type }) => typeof type !== 'string' || type.startsWith('compact'));
  if (compactions.length === 0) return null;
  for (const edit of compactions) if (isMapping(edit.trigger)) checkMembers(edit.trigger, found);
  return Math.min(...compactions.map(readThreshold));
}

/** 0 for a threshold in no form that is known. */
function readThreshold({ trigger, compact_threshold }: Json): number {
  const given = trigger ?? compact_threshold;
  if (given == null) return LEAST_COMPACTED;
  if (!isMapping(given)) return readCount(given) ?? 0;
  return readCount(given.value) ?? 0;
}

/** A term that may be any: in no form that is known, or another one for each model of a chain. */
const ANY_TERM = '';

/** The terms asked for; those of a fallback too. */
function readTerms(body: Json): Terms {
  const fallbacks = toList(body.fallbacks).filter(isMapping);
  const [service_tier, speed, inference_geo] = TERMS.map((term) => {
    const value = body[term] ?? null;
    const isForAll = fallbacks.every((one) => one[term] == null || one[term] === value);
    if (isForAll && (value === null || typeof value === 'string')) return value;
    return ANY_TERM;
  });
  return { service_tier: service_tier!, speed: speed!, inference_geo: inference_geo! };
}

/** A whole number from 1, however it is written. */
export function readCount(value: unknown): number | null {
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 1) return null;
  return value;
}
