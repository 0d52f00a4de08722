// The largest bill of a call: what the request lets its provider do by itself (22 §3).
import type { ModelEntry } from '#protocol/model.ts';
import type { Pusd } from '#protocol/money.ts';
import { shownName } from '../cut.ts';
import { type FeeTool, findFee } from '../pricing/fees.ts';
import { ceilingPrice, type PriceTable } from '../pricing/price-table.ts';
import { computeTokenBound, type Prompt, selectNewText } from '../pricing/prompt-tokens.ts';
import { type AdapterConfig, overheadTokens } from '../registry/adapter-config.ts';
import { findEntryByName, type GatewayRegistry } from './model-names.ts';
import type { UnboundedPart } from './provider-work.ts';
import type { RequestFacts } from './request-facts.ts';

interface AskedModels {
  readonly prices: Pick<PriceTable, 'cost' | 'models'>;
  readonly registry: GatewayRegistry;
  readonly model: ModelEntry;
  readonly facts: RequestFacts;
}

interface BillOptions extends AskedModels {
  readonly prompt: Prompt;
  /** Prompt tokens of the requested model. */
  readonly prompt_tokens: number;
}

/** A model that may answer the call: the one asked for, or one of its fallbacks. */
interface Answerer {
  readonly entry: ModelEntry;
  readonly prompt_tokens: number;
  readonly output_tokens: number;
}

/**
 * Every model of the chain may do all samplings, and each sampling may begin with a summary, which is an answer that no
 * bound of the request holds. What a sampling adds to the prompt is bounded by the window alone.
 */
export function computeLargestBill(options: BillOptions, outputTokens: number): Pusd {
  const { facts, registry, model } = options;
  const { work } = facts;
  const advisors = work.other_models.filter(({ role }) => role === 'advisor');
  const advices = advisors.reduce((sum, { uses }) => sum + BigInt(uses ?? 1), 0n);
  const samplings = BigInt(work.hosted?.samplings ?? 1) + advices;
  const chain = listAnswerers(options, outputTokens);
  const from = work.compacted_from ?? Number.POSITIVE_INFINITY;
  // A fallback is sent what the models before it have written, so its prompt may be the one that is compacted.
  const compacts = chain.some(({ prompt_tokens }) => prompt_tokens >= from) || (samplings > 1n && from < Infinity);
  let bill = listFees(options, chain);
  for (const { entry, prompt_tokens, output_tokens } of chain) {
    const { max_context_tokens: window, max_output_tokens } = entry.capabilities;
    const isWhole = compacts || samplings > 1n;
    bill += samplings * priceSampling(options, entry, isWhole ? window : prompt_tokens, output_tokens);
    if (compacts) bill += samplings * priceSampling(options, entry, window, max_output_tokens);
  }
  for (const { name, uses, output_tokens } of advisors) {
    const entry = findEntryByName(registry, model, name);
    const { max_context_tokens, max_output_tokens } = entry.capabilities;
    bill += BigInt(uses ?? 1) * priceSampling(options, entry, max_context_tokens, output_tokens ?? max_output_tokens);
  }
  return bill as Pusd;
}

function listAnswerers(options: BillOptions, asked: number): Answerer[] {
  const { facts, registry, model, prompt, prompt_tokens } = options;
  const chain: Answerer[] = [{ entry: model, prompt_tokens, output_tokens: asked }];
  const isBounded = isBoundSent(options, asked);
  let before = asked;
  for (const { name, role, output_tokens } of facts.work.other_models) {
    if (role !== 'fallback') continue;
    const entry = findEntryByName(registry, model, name);
    const { max_output_tokens } = entry.capabilities;
    let most = output_tokens ?? asked;
    if (output_tokens === null ? !isBounded : most > max_output_tokens) most = Math.max(asked, max_output_tokens);
    // It may go on from what the models before it have written.
    const bound = boundOtherPrompt(registry, entry, prompt) + before;
    const window = entry.capabilities.max_context_tokens;
    chain.push({ entry, prompt_tokens: Math.min(bound, window), output_tokens: most });
    before += most;
  }
  return chain;
}

/** Whether the body that is sent bounds the answer: by the client's field, or by one that lowers it. */
function isBoundSent({ facts, registry, model }: BillOptions, asked: number): boolean {
  const adapter = registry.adapters.get(model.adapter);
  const bound = adapter === undefined ? null : findOutputBound(facts, model, adapter);
  const isKnown = adapter !== undefined && facts.output.key === findBoundKey(facts, adapter);
  return (facts.output.tokens !== null && isKnown) || (bound !== null && asked < bound);
}

function priceSampling(
  { prices, facts }: Pick<AskedModels, 'prices' | 'facts'>,
  { pricing_id }: ModelEntry,
  prompt_tokens: number,
  output_tokens: number,
): bigint {
  return ceilingPrice(prices, pricing_id, {
    prompt_tokens,
    output_tokens: Math.min(
      (output_tokens + facts.output.predicted) * facts.output.copies,
      Number.MAX_SAFE_INTEGER - prompt_tokens,
    ),
    cache: facts.size.cache,
    terms: facts.work.terms,
  });
}

/** The fees of the most expensive model of the chain. */
function listFees({ prices, facts }: BillOptions, chain: readonly Answerer[]): bigint {
  const { hosted } = facts.work;
  const copies = BigInt(facts.output.copies);
  const sums = chain.map(({ entry }) => {
    const rates = readFees(prices, entry);
    const search = isSearchModel(entry) ? (findFee(rates, SEARCH_MODEL_FEE) ?? 0n) * copies : 0n;
    if (hosted === null) return search;
    const fees = hosted.fees.map(({ tool, uses }) => BigInt(uses ?? 0) * (findFee(rates, tool) ?? 0n));
    if (hosted.shared) return search + findLargest(fees);
    return fees.reduce((sum, fee) => sum + fee, search);
  });
  return findLargest(sums);
}

function findLargest(amounts: readonly bigint[]): bigint {
  return amounts.reduce((most, amount) => (amount > most ? amount : most), 0n);
}

function readFees({ models }: Pick<PriceTable, 'models'>, { pricing_id }: ModelEntry) {
  if (Object.hasOwn(models, pricing_id)) return models[pricing_id]!.fees;
  return undefined;
}

/** Known counts do not apply: another model counts the prompt with another tokenizer. */
function boundOtherPrompt(
  { adapters }: GatewayRegistry,
  { adapter, capabilities }: ModelEntry,
  prompt: Prompt,
): number {
  const config = adapters.get(adapter);
  return computeTokenBound(
    selectNewText(prompt, null),
    capabilities,
    config === undefined ? 0 : overheadTokens(config),
  );
}

/** The window and the answer of the most expensive model that the request names, for a call that nothing bounds. */
export function computeLargestWindow(
  options: Omit<BillOptions, 'prompt' | 'prompt_tokens'>,
  outputTokens: number,
): Pusd {
  const { facts, registry, model } = options;
  const named = facts.work.other_models.map(({ name }) => findEntryByName(registry, model, name));
  return findLargest(
    [model, ...named].map((entry) =>
      priceSampling(options, entry, entry.capabilities.max_context_tokens, outputTokens),
    ),
  ) as Pusd;
}

/** The first part of the request whose bill nothing bounds: no limit can hold it. Null = none. */
export function findUnboundedPart({
  prices,
  registry,
  model,
  facts,
}: AskedModels & { readonly prices: { has(pricingId: string): boolean } }): UnboundedPart | null {
  const { unbounded, other_models, hosted } = facts.work;
  if (unbounded.length > 0) return unbounded[0]!;
  if (facts.has_key_twice)
    return { member: '', why: 'an object of the body has a key twice', remedy: 'send each key once' };
  const priced: ModelEntry[] = [model];
  if (isSearching(model)) return describeSearch('model');
  for (const { name, role, uses, member } of other_models) {
    if (name === '') return { member, why: `the provider chooses the model of ${member}`, remedy: NAME_A_MODEL };
    if (uses === null)
      return { member, why: 'the advisor may be asked without end', remedy: 'set max_uses to a whole number from 1' };
    const entry = findEntryByName(registry, model, name);
    if (!prices.has(entry.pricing_id))
      return {
        member,
        why: `the model ${shownName(name)} has no price here`,
        remedy: `${NAME_A_MODEL}, or ${PRICE_IT}`,
      };
    if (isSearching(entry)) return describeSearch(member);
    if (role === 'fallback') priced.push(entry);
  }
  for (const entry of priced)
    if (isSearchModel(entry) && findFee(readFees(prices, entry), SEARCH_MODEL_FEE) === null)
      return describeNoFee(SEARCH_MODEL_FEE, entry, 'model');
  for (const { tool, uses, free } of hosted?.fees ?? [])
    for (const entry of priced) {
      const fee = findFee(readFees(prices, entry), tool);
      const name = `${tool} for ${shownName(entry.pricing_id)}`;
      if (fee === null && !free) return describeNoFee(tool, entry, 'tools');
      if (fee !== null && fee > 0n && uses === null)
        return { member: 'tools', why: `nothing bounds the uses of ${name}`, remedy: 'leave that tool out' };
    }
  return null;
}

function describeNoFee(tool: FeeTool, { pricing_id }: ModelEntry, member: string): UnboundedPart {
  return {
    member,
    why: `no fee is known of ${tool} for ${shownName(pricing_id)}`,
    remedy: `add fees.${tool} in a file of pricing.tables`,
  };
}

const SEARCH_MODEL_FEE = 'web_search_call';

/** OpenAI's models of Chat Completions that search once for every call. */
function isSearchModel({ wire_name }: ModelEntry): boolean {
  return /-search-(preview|api)\b/.test(wire_name);
}

/** A provider searches the web for every call of such a model. */
function isSearching({ wire_name }: ModelEntry): boolean {
  return wire_name.endsWith(':online');
}

function describeSearch(member: string): UnboundedPart {
  return { member, why: 'the provider searches without a count', remedy: 'name the model without :online' };
}

const NAME_A_MODEL = 'name a model that GET /v1/models shows';
const PRICE_IT = 'price it in a file of pricing.tables';

// The maximum tokens of an answer, and how far the gateway lowers it to fit the remaining money (19 §2.5).

interface Answering {
  readonly capabilities: Pick<ModelEntry['capabilities'], 'max_output_tokens'>;
}
type Optioned = Pick<AdapterConfig, 'options'>;
type Asked = Pick<RequestFacts, 'wire' | 'output'>;

/** Maximum tokens of the answer: the client's bound if the adapter knows its field, else the model's maximum. */
export function findOutputBound(facts: Asked, model: Answering, adapter: Optioned): number {
  const { key, tokens } = facts.output;
  if (tokens === null || key !== findBoundKey(facts, adapter)) return model.capabilities.max_output_tokens;
  return tokens;
}

/** The field that bounds the answer: the client's, unless the adapter is configured to accept only another one. */
export function findBoundKey({ wire, output }: Asked, { options }: Optioned): string {
  if (wire !== 'chat') {
    if (wire === 'messages') return 'max_tokens';
    return 'max_output_tokens';
  }
  if (options.max_tokens_field === 'max_tokens') return 'max_tokens';
  return output.key ?? 'max_completion_tokens';
}

/**
 * The largest bound of the answer, from `floor` to `asked`, whose price is at most `left`; null when not
 * even `floor` fits.
 */
export function findAffordableOutput(
  computePrice: (outputTokens: number) => Pusd,
  { floor, asked, left }: { readonly floor: number; readonly asked: number; readonly left: Pusd },
): number | null {
  if (computePrice(floor) > left) return null;
  let [low, high] = [floor, asked];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (computePrice(middle) <= left) low = middle;
    else high = middle - 1;
  }
  return low;
}
