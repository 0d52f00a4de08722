// The billing forms: an answer of a provider each, sent through the gateway and through an adapter, and its row in the ledger.
import fs from 'node:fs';
import path from 'node:path';
import { onTestFinished } from 'vitest';
import { WIRE_PATHS } from '#protocol/client-wire.ts';
import type { LlmCallCompleted } from '#protocol/event/turn-events.ts';
import { fromPusd, type Pusd, toPusd } from '#protocol/money.ts';
import { startByteProvider } from '../api/gateway/provider.ts';
import { tempFolder } from '../support/engine.ts';
import { type RealServer, startReal } from '../support/real-server.ts';
import { registryAt } from '../support/registry-at.ts';

export interface Form {
  readonly wire: 'messages' | 'chat' | 'responses';
  readonly request: { readonly model: string; readonly stream: boolean };
  readonly response: {
    readonly status: number;
    readonly headers: Readonly<Record<string, string>>;
    readonly body_base64: string;
  };
  readonly prices: { readonly pricing_version: string };
  /** Of the models, by their names on the wire. */
  readonly limits: Readonly<Record<string, Limits>>;
  readonly expected: Expected;
  /** Null = nothing bounds the request, and a limit refuses it. */
  readonly largest_bill_usd: string | null;
}
export interface Limits {
  readonly max_context_tokens: number;
  readonly max_output_tokens: number;
}
interface Expected {
  readonly rounds: readonly object[];
  readonly fees: readonly object[];
  readonly tokens: string;
  readonly surcharge: string;
  readonly cost_usd: string;
  readonly priced: boolean;
  readonly fees_unpriced: boolean;
  readonly surcharge_unknown: boolean;
  readonly rounds_unknown: boolean;
}

const FOLDER = path.join(import.meta.dirname, 'forms');
const readText = (file: string) => fs.readFileSync(file, 'utf8');

export const FORMS: readonly { readonly name: string; readonly form: Form }[] = fs
  .readdirSync(FOLDER, { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.json'))
  .sort()
  .map((name) => ({ name, form: JSON.parse(readText(path.join(FOLDER, name))) as Form }));
export const FORM_SCHEMA = JSON.parse(readText(path.join(import.meta.dirname, 'form.schema.json'))) as object;

/** What the ledger has of a call, in the words of a form. */
function toExpected(payload: LlmCallCompleted): Expected {
  const { cost_breakdown, cost_usd, priced, fees, fees_unpriced, surcharge_unknown, rounds_unknown } = payload;
  return {
    rounds: payload.rounds.map(({ kind, model, input_tokens, output_tokens, cost_usd, billed }) => ({
      kind,
      model,
      input_tokens,
      output_tokens,
      cost_usd,
      billed,
    })),
    fees,
    tokens: cost_breakdown.tokens,
    surcharge: cost_breakdown.surcharge,
    cost_usd,
    priced,
    fees_unpriced,
    surcharge_unknown,
    rounds_unknown,
  };
}

export interface FormRunner {
  /** One line for each difference, on either way: `gateway: cost_usd is "1", expected "2"`. */
  run(form: Form): Promise<readonly string[]>;
}

/** One server for each price table, and for each wire of its OpenAI adapter. */
export function createFormRunner(): FormRunner {
  const servers = new Map<string, Promise<RealServer>>();
  const workspace = tempFolder();
  let answer: Form['response'] | null = null;
  /** Requests that reached the provider. */
  let sent = 0;
  let sessions = 0;

  async function startServer({ prices, wire, limits }: Form): Promise<RealServer> {
    const provider = await startByteProvider(() => {
      sent++;
      const { status, headers, body_base64 } = answer!;
      return { status, headers, raw: Buffer.from(body_base64, 'base64').toString() };
    });
    onTestFinished(() => provider.close());
    let registry = registryAt(provider, listFurtherModels(limits));
    if (wire === 'responses') registry = registry.replace('{ type: openai,', '{ type: openai, wire: responses,');
    for (const [model, of] of Object.entries(limits)) registry = setLimits(registry, model, of);
    // A limit lowers no answer: it lets the call leave as it was asked for, or refuses it.
    const config = { gateway: { min_output_tokens: 1_000_000, wait_seconds: 1 } };
    return startReal({ folder: tempFolder(), registry, prices: [JSON.stringify(prices)], config });
  }

  function openServer(form: Form): Promise<RealServer> {
    const { prices, wire, limits } = form;
    const id = JSON.stringify([wire === 'responses', prices, limits]);
    const known = servers.get(id);
    if (known !== undefined) return known;
    const started = startServer(form);
    servers.set(id, started);
    return started;
  }

  async function readRow(server: RealServer, before: number): Promise<Expected> {
    const found = await server.until(() => {
      const calls = server.events.filter((event) => event.type === 'llm.call_completed');
      return calls[before];
    });
    return toExpected(found.payload as LlmCallCompleted);
  }
  const countCalls = ({ events }: RealServer) => events.filter((event) => event.type === 'llm.call_completed').length;

  /** By the gateway, under a limit or none. */
  function post(server: RealServer, { wire, request }: Form, usd: string | null): Promise<Response> {
    const headers = { 'content-type': 'application/json', 'x-metis-session': `s${sessions++}` };
    return fetch(`${server.url}${WIRE_PATHS[wire]}`, {
      method: 'POST',
      headers: usd === null ? headers : { ...headers, 'x-metis-budget-usd': usd },
      body: JSON.stringify(request),
    });
  }

  /** What a limit reserves for the request; null = it refuses the request, since nothing bounds it. */
  async function readLargestBill(server: RealServer, form: Form): Promise<string | null> {
    // Other forms on the same server have taught it what their tools and system texts cost.
    server.engine.prompts.heads.clear();
    const before = sent;
    const refusal = await (await post(server, form, LEAST_LIMIT)).text();
    if (sent !== before) return 'it was sent under a limit that cannot hold it';
    const needed = /may cost up to ([\d.]+) USD/.exec(refusal)?.[1];
    if (needed !== undefined) return needed;
    if (/not possible under the session limit/.test(refusal)) return null;
    return refusal;
  }

  return {
    async run(form) {
      const { wire, request, response, expected, largest_bill_usd: stated } = form;
      const server = await openServer(form);
      answer = response;
      const largest = await readLargestBill(server, form);
      const differences: string[] = [];
      if (largest !== stated) differences.push(`gateway: largest_bill_usd is ${largest}, expected ${stated}`);
      if (stated !== null && toPusd(expected.cost_usd) > toPusd(stated))
        differences.push(`cost_usd ${expected.cost_usd} is above largest_bill_usd ${stated}`);
      let before = countCalls(server);
      // The least limit that holds the bill lets the request pass.
      const relayed = await post(server, form, largest === stated && stated !== null ? toLimit(stated) : null);
      await relayed.text();
      if (relayed.status !== response.status) return [...differences, `gateway: status ${relayed.status}`];
      differences.push(...compare('gateway', await readRow(server, before), expected));
      // Adapters always stream.
      if (!request.stream) return differences;
      before = countCalls(server);
      await server.turn(await server.session(workspace, `${PROVIDERS[wire]}:${request.model}`), 'hi');
      return [...differences, ...compare('adapter', await readRow(server, before), expected)];
    },
  };
}

/** A limit has six fraction digits. */
const LEAST_LIMIT = '0.000001';
const LIMIT_STEP = 1_000_000n;

function toLimit(usd: string): string {
  return fromPusd((((toPusd(usd) + LIMIT_STEP - 1n) / LIMIT_STEP) * LIMIT_STEP) as Pusd);
}

/** Entries of the registry for models that it lacks; `setLimits` fills in their limits. */
function listFurtherModels(limits: Form['limits']): string {
  const known = registryAt({ anthropicUrl: '', openaiUrl: '' });
  const further = Object.keys(limits).filter((model) => !known.includes(`:${model}: `));
  return further
    .map((model) => {
      const capabilities = '{ max_context_tokens: 1, max_output_tokens: 1 }';
      return `  openai:${model}: { capabilities: ${capabilities} }\n`;
    })
    .join('');
}

/** The registry with the window and the longest answer of one of its models. */
export function setLimits(registry: string, model: string, limits: Limits): string {
  const line = new RegExp(`:${model}: .*`);
  return registry.replace(line, (entry) =>
    entry.replace(/(max_\w+_tokens): \d+/g, (_, name: keyof Limits) => `${name}: ${limits[name]}`),
  );
}

const PROVIDERS = { messages: 'anthropic', chat: 'openai', responses: 'openai' } as const;

function compare(way: string, found: Expected, expected: Expected): readonly string[] {
  return (Object.keys(expected) as (keyof Expected)[]).flatMap((name) => {
    const [is, wanted] = [JSON.stringify(found[name]), JSON.stringify(expected[name])];
    if (is === wanted) return [];
    return [`${way}: ${name} is ${is}, expected ${wanted}`];
  });
}
