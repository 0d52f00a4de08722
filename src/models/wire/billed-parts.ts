// Reads the parts of a bill other than token counts from an answer, for adapters and meters (08 §12).
import { isMapping } from '#core/policy/parsing/yaml.ts';
import type { ReportedBill, ReportedRound, Term } from '#protocol/usage.ts';
import { readName } from './provider-values.ts';

type Json = Readonly<Record<string, unknown>>;

/** The billed parts so far. */
export interface BillNotes {
  rounds: readonly ReportedRound[];
  /** Uses by tool as the provider counts them; they replace the uses found in the answer. */
  readonly counted: Map<string, number>;
  /** Tool by block or item of the answer. */
  readonly shown: Map<string, string>;
  readonly terms: Record<Term, string | null>;
  rounds_unknown: boolean;
}

export function emptyNotes(): BillNotes {
  return {
    rounds: [],
    counted: new Map(),
    shown: new Map(),
    terms: { service_tier: null, speed: null, inference_geo: null },
    rounds_unknown: false,
  };
}

/** Null for an answer of one sampling without tools of the provider, of which no term was reported. */
export function toBill({ rounds, counted, shown, terms, rounds_unknown }: BillNotes): ReportedBill | null {
  const reported = terms.service_tier ?? terms.speed ?? terms.inference_geo;
  if (rounds.length + counted.size + shown.size === 0 && reported === null && !rounds_unknown) return null;
  const uses = new Map<string, number>();
  for (const tool of shown.values()) if (!counted.has(tool)) uses.set(tool, (uses.get(tool) ?? 0) + 1);
  for (const [tool, count] of counted) if (count > 0) uses.set(tool, count);
  return { rounds, uses, terms: { ...terms }, rounds_unknown };
}

/** Blocks and items kept, rounds of a call, tools that a provider counts: an answer without end must not fill memory. */
const MAX_SHOWN = 10_000;
const MAX_ROUNDS = 1000;
const MAX_COUNTED = 32;
/** Uses of one tool in one call. A greater count is not believed, nor is its fee a number that a ledger holds. */
const MAX_USES = 1000;
const TOOL = /^[A-Za-z0-9_.:-]{1,64}$/;

/** An untrusted tool name as the ledger keeps it. */
function toToolName(name: unknown): string {
  if (typeof name === 'string' && TOOL.test(name)) return name;
  return 'other';
}

/** Records a use; the same key replaces the earlier one. */
function noteUse({ shown }: BillNotes, key: unknown, tool: string): void {
  const id = readName(key) ?? `#${shown.size}`;
  if (shown.has(id) || shown.size < MAX_SHOWN) shown.set(id, tool);
  else shown.set('', 'other');
}

/** The newest value of each term that is given. */
function readTerms(given: Json, notes: BillNotes, terms: readonly Term[]): void {
  for (const term of terms) {
    const value = given[term];
    if (typeof value === 'string' && value !== '') notes.terms[term] = toToolName(value);
  }
}

// Anthropic Messages (11.5).

const MESSAGES_TERMS = ['service_tier', 'speed', 'inference_geo'] as const;
/** Blocks `server_tool_use` by name, where the fee has another. */
const MESSAGES_TOOLS: ReadonlyMap<unknown, string> = new Map([
  ['bash_code_execution', 'code_execution'],
  ['text_editor_code_execution', 'code_execution'],
  ['tool_search_tool_regex', 'tool_search'],
  ['tool_search_tool_bm25', 'tool_search'],
]);
const BILLED_AS_ROUNDS: ReadonlySet<unknown> = new Set(['advisor']);
const COUNT = /^([a-z_]{1,64})_requests$/;

export function readMessagesBlock(block: unknown, notes: BillNotes): void {
  if (!isMapping(block)) return;
  if (block.type === 'mcp_tool_use') noteUse(notes, block.id, 'mcp');
  if (block.type !== 'server_tool_use') return;
  if (!BILLED_AS_ROUNDS.has(block.name))
    noteUse(notes, block.id, MESSAGES_TOOLS.get(block.name) ?? toToolName(block.name));
}

/**
 * @param usage of the wire; its counts are cumulative
 * @param early before the answer: the provider has counted no use yet
 * @param readRound the token counts of one entry of `iterations`
 */
export function readMessagesBill(
  usage: Json,
  notes: BillNotes,
  early: boolean,
  readRound: (round: Json) => ReportedRound['usage'],
): void {
  readTerms(usage, notes, MESSAGES_TERMS);
  if (!early && isMapping(usage.server_tool_use)) readCounted(usage.server_tool_use, notes);
  if (!Array.isArray(usage.iterations)) return;
  const rounds = usage.iterations.filter(isMapping);
  notes.rounds_unknown = rounds.length > MAX_ROUNDS;
  if (rounds.length === 0) return;
  if (notes.rounds_unknown) {
    // The counts beside the rounds are those of the last one.
    const sum = sumCounts(rounds.map(readRound));
    notes.rounds = [{ kind: 'message', model: null, billed: true, usage: sum }];
    return;
  }
  notes.rounds = rounds.map((one, at) => ({
    kind: toToolName(one.type),
    model: readName(one.model),
    billed: isBilled(one, at, rounds),
    usage: readRound(one),
  }));
}

/** Null for a class that none of them reports. */
export function sumCounts(all: readonly ReportedRound['usage'][]): ReportedRound['usage'] {
  const sum = (key: keyof ReportedRound['usage']) => {
    const counts = all.map((one) => one[key]).filter((count) => count !== null);
    if (counts.length === 0) return null;
    return counts.reduce((a, b) => a + b, 0);
  };
  return {
    input: sum('input'),
    output: sum('output'),
    cached: sum('cached'),
    creation: sum('creation'),
    creation1h: sum('creation1h'),
    reasoning: sum('reasoning'),
  };
}

function readCounted(given: Json, { counted, shown }: BillNotes): void {
  for (const [name, count] of Object.entries(given)) {
    const tool = COUNT.exec(name)?.[1];
    if (tool === undefined || !(counted.has(tool) || counted.size < MAX_COUNTED)) continue;
    const isCount = typeof count === 'number' && Number.isSafeInteger(count) && count >= 0;
    if (isCount && count <= MAX_USES) counted.set(tool, count);
    else if (count != null) shown.set('', 'other');
  }
}

/** A model that declined without output is not billed if a fallback model answered after it. */
function isBilled({ type, output_tokens }: Json, at: number, all: readonly Json[]): boolean {
  const declined = type === 'message' && output_tokens === 0;
  return !declined || !all.slice(at + 1).some((later) => later.type === 'fallback_message');
}

// OpenAI Responses (19 §2.2).

/** Items of calls that the client executes, or that are billed as tokens. */
const CLIENT_CALLS: ReadonlySet<unknown> = new Set([
  'function_call',
  'custom_tool_call',
  'local_shell_call',
  'apply_patch_call',
  'computer_call',
  'multi_agent_call',
]);
/** Items of several agents that work inside one response. */
const AGENT_ITEMS: ReadonlySet<unknown> = new Set(['multi_agent_call', 'multi_agent_call_output', 'agent_message']);
const CONTAINER = 'code_interpreter_container';

/** Service tier and items of a response: of the whole one, or as it begins. */
export function readResponsesBill(response: object, notes: BillNotes): void {
  if (!isMapping(response)) return;
  readTerms(response, notes, ['service_tier']);
  if (!Array.isArray(response.output) || response.output.length === 0) return;
  notes.shown.clear();
  for (const item of response.output) readResponsesItem(item, notes);
}

/** An item of the output; a later form of the same item replaces it. */
export function readResponsesItem(item: unknown, notes: BillNotes): void {
  if (!isMapping(item)) return;
  const { type, id } = item;
  if (AGENT_ITEMS.has(type)) notes.rounds_unknown = true;
  if (typeof type !== 'string' || CLIENT_CALLS.has(type)) return;
  if (type === 'code_interpreter_call') noteContainer(item.container_id, id, notes);
  else if (type === 'shell_call') {
    const { environment } = item;
    if (isMapping(environment) && environment.type === 'container_reference')
      noteContainer(environment.container_id, id, notes);
  } else if (type === 'web_search_call' && !isSearch(item.action)) notes.shown.delete(readName(id) ?? '');
  else if (type.endsWith('_call') || type === 'program') noteUse(notes, id, toToolName(type));
}

/** One fee for each distinct container. An item whose container is not known yet counts as one of its own. */
function noteContainer(container: unknown, item: unknown, notes: BillNotes): void {
  const name = readName(container);
  if (name === null) noteUse(notes, item, CONTAINER);
  else {
    notes.shown.delete(readName(item) ?? '');
    noteUse(notes, name, CONTAINER);
  }
}

/** Opening a page and finding text in it are no searches. */
function isSearch(action: unknown): boolean {
  return !isMapping(action) || action.type === undefined || action.type === 'search';
}

// Chat Completions (11.6).

/** @param part the name of the message in a choice */
export function readChatBill(chunk: Json, part: 'delta' | 'message', notes: BillNotes): void {
  readTerms(chunk, notes, ['service_tier']);
  if (isMapping(chunk.usage) && isMapping(chunk.usage.server_tool_use)) readCounted(chunk.usage.server_tool_use, notes);
  if (!Array.isArray(chunk.choices)) return;
  for (const choice of chunk.choices.filter(isMapping)) {
    const message = choice[part];
    if (!isMapping(message)) continue;
    // A search model searches once per call; its answer shows only the sources.
    if (Array.isArray(message.annotations) && message.annotations.some(isCitation))
      notes.shown.set('annotations', 'web_search_call');
    if (Array.isArray(message.executed_tools))
      for (const tool of message.executed_tools.filter(isMapping))
        noteUse(notes, `executed ${toIndex(tool.index)}`, 'executed_tools');
  }
}

/** Values of other types are one index. */
function toIndex(index: unknown): number {
  if (typeof index === 'number') return index;
  return -1;
}

function isCitation(annotation: unknown): boolean {
  return isMapping(annotation) && annotation.type === 'url_citation';
}
