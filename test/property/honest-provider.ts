// A provider inside the process that draws its bills: it uses what a request allows, up to the last token, and knows
// what it billed by an arithmetic of its own.
import { createHash } from 'node:crypto';
import { type HttpRequest, type HttpResponse, readOneByOne, type Send } from '#models/http/provider-http.ts';
import type { Limits } from '../billing/forms.ts';

export type Json = Readonly<Record<string, unknown>>;

/** A price table in the format of 08 §2. */
export interface Rates {
  readonly models: Readonly<Record<string, RateEntry>>;
}
interface RateEntry {
  readonly input_per_mtok_usd: string;
  readonly output_per_mtok_usd: string;
  readonly cached_read_per_mtok_usd: string;
  readonly cache_write_per_mtok_usd: string;
  readonly cache_write_1h_per_mtok_usd: string;
  readonly long_context?: readonly (RateEntry & { readonly above_prompt_tokens: number })[];
  readonly fees?: Readonly<Record<string, string>>;
  readonly multipliers?: Readonly<Record<string, Readonly<Record<string, string>>>>;
}

/** Token counts of one sampling, in disjoint classes. */
interface Counts {
  readonly input: number;
  readonly cached: number;
  readonly written: number;
  readonly written_1h: number;
  readonly output: number;
}
interface Round extends Counts {
  readonly kind: string;
  readonly model: string;
}

/** What was answered to one request, and what it costs. */
export interface Answered {
  readonly pieces: readonly string[];
  readonly bill: bigint;
}

const MILLION = 1_000_000;
const toMillionths = (decimal: string): bigint => BigInt(Math.round(Number(decimal) * MILLION));

/** Picodollars of one sampling. */
function priceRound(entry: RateEntry, counts: Counts, terms: Json): bigint {
  const prompt = counts.input + counts.cached + counts.written + counts.written_1h;
  const steps = (entry.long_context ?? []).filter((step) => prompt > step.above_prompt_tokens);
  const rates: RateEntry = steps.at(-1) ?? entry;
  const classes: readonly (readonly [number, string])[] = [
    [counts.input, rates.input_per_mtok_usd],
    [counts.cached, rates.cached_read_per_mtok_usd],
    [counts.written, rates.cache_write_per_mtok_usd],
    [counts.written_1h, rates.cache_write_1h_per_mtok_usd],
    [counts.output, rates.output_per_mtok_usd],
  ];
  let sum = classes.reduce((all, [tokens, rate]) => all + BigInt(tokens) * toMillionths(rate), 0n);
  for (const [term, values] of Object.entries(entry.multipliers ?? {})) {
    const by = values[String(terms[term])];
    if (by !== undefined) sum = (sum * toMillionths(by)) / BigInt(MILLION);
  }
  return sum;
}

/** Picodollars of so many uses. */
function priceUses(entry: RateEntry, uses: Readonly<Record<string, number>>): bigint {
  return Object.entries(uses).reduce(
    (sum, [tool, count]) => sum + (toMillionths(entry.fees?.[tool] ?? '0') * BigInt(MILLION) * BigInt(count)) / 1000n,
    0n,
  );
}

export interface Dice {
  /** From 0 to below 1. */
  next(): number;
  /** A whole number, its ends included; often the greatest. */
  upTo(least: number, most: number): number;
  chance(percent: number): boolean;
  pick<T>(list: readonly T[]): T;
}

export function rollDice(seed: number): Dice {
  let state = (seed ^ 0x9e3779b9) >>> 0;
  const next = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
  for (let i = 0; i < 4; i++) next();
  const upTo = (least: number, most: number) => {
    if (next() < 0.4) return most;
    return least + Math.floor(next() * (most - least + 1));
  };
  return {
    next,
    upTo,
    chance: (percent) => next() * 100 < percent,
    pick: (list) => list[Math.floor(next() * list.length)]!,
  };
}

/** What the provider writes around every prompt. */
const ADDED = 300;

/** Tokens of what was sent: of each text its own share of the bytes, the same every time. */
function countPrompt({ system, messages, input, instructions, tools }: Json): number {
  const texts: string[] = [];
  const collect = (value: unknown): void => {
    if (typeof value === 'string') texts.push(value);
    else if (typeof value === 'object' && value !== null) for (const one of Object.values(value)) collect(one);
  };
  collect([system, messages, input, instructions]);
  const definitions = Array.isArray(tools) ? tools.map((tool) => JSON.stringify(tool)) : [];
  const count = (text: string, most: number) => {
    const share = createHash('sha1').update(text).digest()[0]! / 255;
    return Math.floor(Buffer.byteLength(text) * (most - 0.3 + 0.3 * share));
  };
  return (
    texts.reduce((sum, text) => sum + count(text, 1), ADDED) +
    definitions.reduce((sum, text) => sum + count(text, 0.6), 0)
  );
}

const asList = (value: unknown): readonly Json[] => (Array.isArray(value) ? (value as Json[]) : []);
const has = (body: Json, word: string) => JSON.stringify(body).includes(word);

export interface World {
  readonly rates: Rates;
  readonly limits: Readonly<Record<string, Limits>>;
}

/** The whole prompt in classes that the request allows. */
function splitPrompt(prompt: number, body: Json, dice: Dice): Omit<Counts, 'output'> {
  const none = { input: prompt, cached: 0, written: 0, written_1h: 0 };
  if (!has(body, 'cache_control') && !has(body, '"caching"')) return none;
  if (dice.chance(50)) return { ...none, input: 0, [has(body, '"1h"') ? 'written_1h' : 'written']: prompt };
  const cached = dice.upTo(0, prompt);
  const written = dice.upTo(0, prompt - cached);
  return { ...none, input: prompt - cached - written, cached, written };
}

function answerMessages(body: Json, { rates, limits }: World, dice: Dice): Answered {
  const asked = String(body.model);
  const tools = asList(body.tools);
  const advisor = tools.find(({ type }) => String(type).startsWith('advisor'));
  const hosted = tools.filter(({ type }) => /^web_/.test(String(type)));
  const uses: Record<string, number> = {};
  for (const { type, max_uses } of hosted) {
    const tool = String(type).startsWith('web_search') ? 'web_search' : 'web_fetch';
    uses[tool] = (uses[tool] ?? 0) + dice.upTo(0, Number(max_uses));
  }
  const used = Object.values(uses).reduce((sum, count) => sum + count, 0);
  const advices = advisor === undefined ? 0 : dice.upTo(0, Number(advisor.max_uses));
  const fits = body.compaction !== undefined || has(body, '"document"') || used + advices > 0;
  const rounds: Round[] = [];
  const own = Math.min(countPrompt(body), limits[asked]!.max_context_tokens);
  let written = 0;
  function sample(model: string, kind: string, most: number, isWhole: boolean): void {
    const window = limits[model]!.max_context_tokens;
    const prompt = isWhole ? dice.upTo(Math.min(own, window), window) : Math.min(own + written, window);
    const output = dice.upTo(1, most);
    rounds.push({ kind, model, ...splitPrompt(prompt, body, dice), output });
    written += output;
  }
  const chain = [
    { model: asked, most: Number(body.max_tokens) },
    ...asList(body.fallbacks).map(({ model, max_tokens }) => ({
      model: String(model),
      most: Number(max_tokens ?? body.max_tokens),
    })),
  ];
  let served = asked;
  for (const [at, { model, most }] of chain.entries()) {
    served = model;
    const kind = at === 0 ? 'message' : 'fallback_message';
    const declines = at < chain.length - 1 && dice.chance(60);
    if (declines && at === 0 && dice.chance(50)) {
      // Declined without output: not billed.
      rounds.push({ kind, model, input: own, cached: 0, written: 0, written_1h: 0, output: 0 });
      continue;
    }
    for (let i = 0; i < Math.min(10, used + 1); i++) {
      if (body.compaction !== undefined && dice.chance(70))
        sample(model, 'compaction', limits[model]!.max_output_tokens, true);
      sample(model, kind, most, fits);
    }
    if (!declines) break;
  }
  for (let i = 0; i < advices; i++) {
    const model = String(advisor!.model);
    const most = Number(advisor!.max_tokens ?? limits[model]!.max_output_tokens);
    sample(model, 'advisor_message', most, true);
    sample(served, served === asked ? 'message' : 'fallback_message', Number(body.max_tokens), true);
  }
  const terms: Record<string, unknown> = {};
  if (body.speed !== undefined) terms.speed = body.speed === 'fast' && dice.chance(70) ? 'fast' : 'standard';
  if (body.inference_geo !== undefined) terms.inference_geo = body.inference_geo;
  else if (dice.chance(60)) terms.inference_geo = dice.pick(['us', 'global', 'not_available']);
  const isBilled = ({ kind, output }: Round, at: number) =>
    output > 0 || kind !== 'message' || !rounds.slice(at + 1).some((later) => later.kind === 'fallback_message');
  const entryOf = (model: string) => rates.models[`anthropic:${model}`]!;
  const bill =
    rounds.filter(isBilled).reduce((sum, round) => sum + priceRound(entryOf(round.model), round, terms), 0n) +
    priceUses(entryOf(served), uses);
  const toWire = ({ kind, model, ...counts }: Round) => ({ type: kind, model, ...messagesCounts(counts) });
  const usage = {
    ...messagesCounts(rounds.at(-1)!),
    ...terms,
    ...(rounds.length > 1 ? { iterations: rounds.map(toWire) } : {}),
    ...(used > 0
      ? { server_tool_use: { web_search_requests: uses.web_search ?? 0, web_fetch_requests: uses.web_fetch ?? 0 } }
      : {}),
  };
  const text = 'done';
  return { bill, pieces: encodeMessages(body, { model: served, content: [{ type: 'text', text }], usage }) };
}

function messagesCounts({ input, cached, written, written_1h, output }: Counts): Json {
  return {
    input_tokens: input,
    cache_read_input_tokens: cached,
    cache_creation_input_tokens: written + written_1h,
    cache_creation: { ephemeral_5m_input_tokens: written, ephemeral_1h_input_tokens: written_1h },
    output_tokens: output,
  };
}

function encodeMessages(
  { stream }: Json,
  answer: { readonly model: string; readonly content: readonly Json[]; readonly usage: Json },
  stop_reason = 'end_turn',
): readonly string[] {
  const { model, content, usage } = answer;
  const message = { id: 'msg_1', type: 'message', role: 'assistant', model };
  if (stream !== true) return [JSON.stringify({ ...message, content, stop_reason, usage })];
  const event = (data: Json) => `event: ${String(data.type)}\ndata: ${JSON.stringify(data)}\n\n`;
  const { input_tokens, cache_read_input_tokens, cache_creation_input_tokens } = usage;
  const early = { input_tokens, cache_read_input_tokens, cache_creation_input_tokens, output_tokens: 1 };
  return [
    event({ type: 'message_start', message: { ...message, content: [], usage: early } }),
    ...content.flatMap((block, index) => [
      event({ type: 'content_block_start', index, content_block: { ...block, text: '', input: {} } }),
      event({
        type: 'content_block_delta',
        index,
        delta:
          block.type === 'text'
            ? { type: 'text_delta', text: block.text }
            : { type: 'input_json_delta', partial_json: JSON.stringify(block.input) },
      }),
      event({ type: 'content_block_stop', index }),
    ]),
    event({ type: 'message_delta', delta: { stop_reason }, usage }),
    event({ type: 'message_stop' }),
  ];
}

function drawTier(body: Json, dice: Dice): string {
  if (body.service_tier === 'flex' || body.service_tier === 'default') return String(body.service_tier);
  if (body.service_tier === 'priority') return dice.pick(['priority', 'default']);
  return dice.pick(['default', 'priority', 'flex']);
}

function answerResponses(body: Json, { rates, limits }: World, dice: Dice): Answered {
  const model = String(body.model);
  const { max_context_tokens: window, max_output_tokens } = limits[model]!;
  const most = Number(body.max_output_tokens ?? max_output_tokens);
  const tools = asList(body.tools).map(({ type }) => String(type));
  const calls = tools.length === 0 ? 0 : dice.upTo(0, Number(body.max_tool_calls));
  const output: Json[] = [];
  const uses: Record<string, number> = {};
  const use = (tool: string) => {
    uses[tool] = (uses[tool] ?? 0) + 1;
  };
  for (let i = 0; i < calls; i++) {
    const type = dice.pick(tools);
    if (type === 'code_interpreter') output.push({ type: `${type}_call`, id: `c${i}`, container_id: `cntr_${i}` });
    else output.push({ type: `${type}_call`, id: `c${i}`, status: 'completed', action: { type: 'search' } });
    use(type === 'code_interpreter' ? 'code_interpreter_container' : `${type}_call`);
  }
  // One sum of all samplings.
  let prompt = Math.min(countPrompt(body), window);
  let tokens = dice.upTo(1, most);
  for (let i = 0; i < calls; i++) {
    prompt += dice.upTo(1, window);
    tokens += dice.upTo(1, most);
  }
  const cached = dice.upTo(0, prompt);
  const written = dice.upTo(0, prompt - cached);
  const service_tier = drawTier(body, dice);
  const entry = rates.models[`openai:${model}`]!;
  const counts = { input: prompt - cached - written, cached, written, written_1h: 0, output: tokens };
  const bill = priceRound(entry, counts, { service_tier }) + priceUses(entry, uses);
  const usage = {
    input_tokens: prompt,
    input_tokens_details: { cached_tokens: cached, cache_write_tokens: written },
    output_tokens: tokens,
    output_tokens_details: { reasoning_tokens: 0 },
  };
  const item = { type: 'message', id: 'msg_1', role: 'assistant', content: [{ type: 'output_text', text: 'done' }] };
  const response = { id: 'resp_1', model, service_tier, status: 'completed', output: [...output, item], usage };
  if (body.stream !== true) return { bill, pieces: [JSON.stringify(response)] };
  const event = (type: string, rest: Json) => `event: ${type}\ndata: ${JSON.stringify({ type, ...rest })}\n\n`;
  const begun = { ...response, status: 'in_progress', output: [], usage: null };
  const items = response.output.flatMap((one, output_index) => [
    event('response.output_item.added', { output_index, item: one }),
    event('response.output_item.done', { output_index, item: one }),
  ]);
  const end = event('response.completed', { response });
  return { bill, pieces: [event('response.created', { response: begun }), ...items, end] };
}

function answerChat(body: Json, { rates, limits }: World, dice: Dice): Answered {
  const model = String(body.model);
  const { max_context_tokens: window, max_output_tokens } = limits[model]!;
  const most = Number(body.max_completion_tokens ?? body.max_tokens ?? max_output_tokens);
  const { content = '' } = (body.prediction ?? {}) as { content?: string };
  const copies = Number(body.n ?? 1);
  const output = copies * (dice.upTo(1, most) + dice.upTo(0, Buffer.byteLength(content)));
  const own = Math.min(countPrompt(body), window);
  const prompt = has(body, '"file"') ? dice.upTo(own, window) : own;
  const cached = dice.upTo(0, prompt);
  const service_tier = drawTier(body, dice);
  const entry = rates.models[`openai:${model}`]!;
  const counts = { input: prompt - cached, cached, written: 0, written_1h: 0, output };
  const usage = {
    prompt_tokens: prompt,
    completion_tokens: output,
    prompt_tokens_details: { cached_tokens: cached },
  };
  const head = { id: 'chatcmpl_1', model, created: 1, service_tier };
  const bill = priceRound(entry, counts, { service_tier });
  const chunk = (rest: Json) => `data: ${JSON.stringify({ ...head, object: 'chat.completion.chunk', ...rest })}\n\n`;
  const message = { role: 'assistant', content: 'done' };
  const choice = { index: 0, finish_reason: 'stop' };
  if (body.stream !== true)
    return { bill, pieces: [JSON.stringify({ ...head, choices: [{ ...choice, message }], usage })] };
  const first = { index: 0, delta: message, finish_reason: null };
  return {
    bill,
    pieces: [
      chunk({ choices: [first] }),
      chunk({ choices: [{ ...choice, delta: {} }] }),
      chunk({ choices: [], usage }),
      'data: [DONE]\n\n',
    ],
  };
}

/** A planner's own call: its first answer delegates as often as its task says, every other one is text. */
export function answerOwn(
  body: Json,
  world: World,
  { tag, dice }: { readonly tag: string; readonly dice: Dice },
): Answered {
  const model = String(body.model);
  const { max_context_tokens } = world.limits[model]!;
  const text = JSON.stringify(body.messages);
  const workers = text.includes('tool_result') ? 0 : Number(/grow (\d)/.exec(text)?.[1] ?? 0);
  const content: Json[] = [{ type: 'text', text: 'done' }];
  for (let i = 0; i < workers; i++)
    content.push({
      type: 'tool_use',
      id: `toolu_${i}`,
      name: 'delegate',
      input: { task: `leaf ${i} ${tag}`, tier: 'fast' },
    });
  const prompt = Math.min(countPrompt(body), max_context_tokens);
  const output = dice.upTo(1, Number(body.max_tokens));
  const rounds: Round[] = [];
  // In one sampling or in two, which make the same sums.
  const first = dice.chance(50) ? 0 : Math.floor(prompt / 3);
  if (first > 0) rounds.push({ kind: 'message', model, ...splitPrompt(first, body, dice), output: 1 });
  rounds.push({ kind: 'message', model, ...splitPrompt(prompt - first, body, dice), output: Math.max(1, output - 1) });
  const inference_geo = dice.pick(['us', 'global']);
  const entry = world.rates.models[`anthropic:${model}`]!;
  const bill = rounds.reduce((sum, round) => sum + priceRound(entry, round, { inference_geo }), 0n);
  const iterations = rounds.map(({ kind, model: name, ...counts }) => ({
    type: kind,
    model: name,
    ...messagesCounts(counts),
  }));
  const usage = { ...messagesCounts(rounds.at(-1)!), inference_geo, ...(rounds.length > 1 ? { iterations } : {}) };
  const stop = workers > 0 ? 'tool_use' : 'end_turn';
  return { bill, pieces: encodeMessages(body, { model, content, usage }, stop) };
}

export const ANSWERS = { messages: answerMessages, chat: answerChat, responses: answerResponses } as const;

/** How a call ends. */
export type Fate = 'whole' | 'broken' | 'refused';

export interface Reply {
  readonly pieces: readonly string[];
  readonly fate: Fate;
  readonly type: string;
}

/** In place of the network. */
export function sendInProcess(answer: (body: Json) => Reply): Send {
  return async ({ body, signal }: HttpRequest): Promise<HttpResponse> => {
    const bytes = Buffer.concat([...body]);
    signal.throwIfAborted();
    const { pieces, fate, type } = answer(JSON.parse(bytes.toString()) as Json);
    const status = fate === 'refused' ? 400 : 200;
    const sent = status === 200 ? [...pieces] : ['{"error":{"type":"invalid_request_error","message":"no"}}'];
    const headers: readonly (readonly [string, string])[] = [
      ['content-type', status === 200 ? type : 'application/json'],
    ];
    let at = 0;
    const response: HttpResponse = {
      status,
      headers,
      header: (name) => headers.find(([key]) => key === name)?.[1] ?? null,
      async readPiece() {
        await new Promise(setImmediate);
        signal.throwIfAborted();
        if (fate === 'broken' && at >= Math.max(1, sent.length - 2)) throw new Error('the connection broke');
        const piece = sent[at++];
        return piece === undefined ? null : Buffer.from(piece);
      },
      readPieces(take) {
        return readOneByOne(response, take);
      },
      isEnded: () => at > sent.length,
      cancel() {},
    };
    return response;
  };
}
