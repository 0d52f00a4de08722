// Facts of model calls that events do not store: content if switched on, what the provider reported, its address (18 §2).
import type { Attributes } from '@opentelemetry/api';
import type { ModelRegistry } from '#core/policy/registry/model-registry.ts';
import type { Relay, RelayRequest, Relays } from '#core/ports/gateway-relay.ts';
import type { ProviderAdapter, Providers } from '#core/ports/provider.ts';
import { DEFAULT_BASE_URLS } from '#models/adapters/create-adapters.ts';
import type { ContentBlock } from '#protocol/message.ts';
import type { CanonicalRequest, MessageComplete, StreamEvent } from '#protocol/model-call.ts';
import { scrub, scrubSecrets } from '#protocol/text/scrub.ts';
import type { Credentials } from '../credentials.ts';
import { readPort } from '../url.ts';

/** Of a request: the newest. */
const MAX_PARTS = 40;
/** Characters of either end of long instructions. */
const END = 1000;
/** A call that never settles would be kept for ever. */
const MAX_CALLS = 1000;

export interface Content {
  /** The same adapters, whose calls are listened to. */
  wrapProviders(providers: Providers): Providers;
  /** The content of this call; a second read finds none. */
  take(requestId: string): Attributes | undefined;
}

type Part = Readonly<Record<string, unknown>>;

/** @param secrets exact values that are never kept */
export function createContent(secrets: readonly string[]): Content {
  const calls = new Map<string, Attributes>();
  const text = (value: string) => scrub(value, { secrets });

  function streamAndRecord(
    adapter: ProviderAdapter,
    ...[request, signal, deliver, mayRepeat]: Parameters<ProviderAdapter['stream']>
  ): Promise<void> {
    const { request_id } = request;
    for (const oldest of calls.keys()) {
      if (calls.size < MAX_CALLS) break;
      calls.delete(oldest);
    }
    calls.set(request_id, describeRequest(request));
    const recordAndDeliver = (event: StreamEvent, isWhole?: boolean) => {
      if (event.type === 'message.complete') {
        const kept = calls.get(request_id);
        if (kept) kept['gen_ai.output.messages'] = describeAnswer(event);
      }
      deliver(event, isWhole);
    };
    return adapter.stream(request, signal, recordAndDeliver, mayRepeat);
  }

  function describeRequest({ messages, system_prompt, system_prompt_volatile }: CanonicalRequest): Attributes {
    const system = [system_prompt, system_prompt_volatile].filter((one) => one !== null).flatMap(cutMiddle);
    const shown: { role: string; parts: Part[] }[] = [];
    let left = MAX_PARTS;
    for (let i = messages.length - 1; i >= 0 && left > 0; i--) {
      const { role, content } = messages[i]!;
      const newest = content.slice(-left);
      left -= newest.length;
      shown.unshift({ role, parts: newest.flatMap(toParts) });
    }
    return {
      'gen_ai.input.messages': JSON.stringify(shown),
      ...(system.length !== 0 && { 'gen_ai.system_instructions': JSON.stringify(system) }),
    };
  }

  /** Both ends are kept: the task of a worker is the end of its instructions. */
  function cutMiddle(value: string): Part[] {
    // Whole before it is cut: half a secret would not be known any more.
    const clean = scrubSecrets(value, secrets);
    const toPart = (one: string): Part => ({ type: 'text', content: text(one) });
    if (clean.length <= 2 * END) return [toPart(clean)];
    return [toPart(clean.slice(0, END)), toPart(clean.slice(-END))];
  }

  function describeAnswer({ final_content, stop_reason }: MessageComplete): string {
    const parts = final_content.slice(0, MAX_PARTS).flatMap(toParts);
    return JSON.stringify([{ role: 'assistant', parts, finish_reason: stop_reason }]);
  }

  /** A block under the names of the conventions; bytes are left out. */
  function toParts(block: ContentBlock): Part[] {
    switch (block.type) {
      case 'text':
        return [{ type: 'text', content: text(block.text) }];
      case 'thinking':
        return [{ type: 'reasoning', content: text(block.text) }];
      case 'tool_use':
        return [
          { type: 'tool_call', id: block.id, name: block.name, arguments: text(JSON.stringify(block.input) ?? '') },
        ];
      case 'tool_result': {
        const result = block.content.map((one) => (one.type === 'text' ? one.text : `[${one.media_type}]`)).join('\n');
        return [{ type: 'tool_call_response', id: block.tool_use_id, response: text(result) }];
      }
      case 'image':
      case 'document':
        return [{ type: 'blob', modality: block.type, mime_type: block.media_type }];
      case 'redacted_thinking':
        return [];
    }
  }

  return {
    wrapProviders: (providers) =>
      new Map(
        [...providers].map(([id, adapter]) => [
          id,
          { ...adapter, stream: (...call) => streamAndRecord(adapter, ...call) },
        ]),
      ),
    take(requestId) {
      const kept = calls.get(requestId);
      calls.delete(requestId);
      return kept;
    },
  };
}

/** Calls whose answers are remembered; the spans and metrics of a call read them as soon as it is stored. */
const MAX_ANSWERS = 1000;

export interface AnswerFacts {
  /** The same adapters, whose answers are read. */
  wrapProviders(providers: Providers): Providers;
  /** The same relays, whose answers are read. */
  wrapRelays(relays: Relays): Relays;
  /** `gen_ai.response.model`, `gen_ai.response.id` and `gen_ai.request.stream`, as far as they are known. */
  find(requestId: string): Attributes;
}

interface Reported {
  readonly served_model: string | null;
  readonly response_id: string | null;
}

/** @param secrets exact values that no attribute holds */
export function createAnswerFacts(secrets: readonly string[]): AnswerFacts {
  const calls = new Map<string, Attributes>();

  function keepReported(requestId: string, { served_model, response_id }: Reported, stream: boolean): void {
    const attribute = (name: string, value: string | null) => {
      if (value === null) return {};
      return { [name]: scrubSecrets(value, secrets) };
    };
    calls.delete(requestId);
    calls.set(requestId, {
      ...attribute('gen_ai.response.model', served_model),
      ...attribute('gen_ai.response.id', response_id),
      ...(stream && { 'gen_ai.request.stream': true }),
    });
    if (calls.size > MAX_ANSWERS) calls.delete(calls.keys().next().value!);
  }

  function streamAndKeep(
    adapter: ProviderAdapter,
    ...[request, signal, deliver, mayRepeat]: Parameters<ProviderAdapter['stream']>
  ): Promise<void> {
    const keepAndDeliver = (event: StreamEvent, isWhole?: boolean) => {
      if (event.type === 'message.complete') keepReported(request.request_id, event, true);
      deliver(event, isWhole);
    };
    return adapter.stream(request, signal, keepAndDeliver, mayRepeat);
  }

  async function sendAndKeep(relay: Relay, request: RelayRequest, withKey: boolean, signal: AbortSignal) {
    const answer = await relay.send(request, withKey, signal);
    const type = answer.headers.find(([name]) => name === 'content-type')?.[1] ?? '';
    return {
      ...answer,
      reading() {
        const reading = answer.reading();
        keepReported(request.request_id, reading, type.includes('event-stream'));
        return reading;
      },
    };
  }

  return {
    wrapProviders: (providers) =>
      new Map(
        [...providers].map(([id, adapter]) => [
          id,
          { ...adapter, stream: (...call) => streamAndKeep(adapter, ...call) },
        ]),
      ),
    wrapRelays: (relays) =>
      new Map(
        [...relays].map(([id, relay]) => [
          id,
          { ...relay, send: (request, withKey, signal) => sendAndKeep(relay, request, withKey, signal) },
        ]),
      ),
    find: (requestId) => calls.get(requestId) ?? {},
  };
}

interface CallTarget {
  /** The model's name at its provider. */
  readonly model: string;
  /** `server.address` and `server.port`; nothing for a provider without an address. */
  readonly server: Attributes;
}

/** Looks a model up by its id; one that the registry does not list is named by the part of its id behind the adapter. */
export type FindCallTarget = (modelId: string) => CallTarget;

export function createCallTargets(
  registry: Pick<ModelRegistry, 'get' | 'adapters'>,
  credentials: Pick<Credentials, 'forAdapter'>,
): FindCallTarget {
  return (modelId) => {
    const listed = registry.get(modelId);
    const colon = modelId.indexOf(':');
    const adapter = listed?.adapter ?? modelId.slice(0, colon);
    const config = registry.adapters.get(adapter);
    const model = listed?.wire_name ?? modelId.slice(colon + 1);
    if (config === undefined || config.type === 'scripted') return { model, server: {} };
    const given = config.base_url ?? credentials.forAdapter(adapter, config)?.base_url;
    const url = given ?? DEFAULT_BASE_URLS[config.type];
    return { model, server: describeServer(url) };
  };
}

function describeServer(address: string): Attributes {
  if (!URL.canParse(address)) return {};
  const url = new URL(address);
  return { 'server.address': url.hostname, 'server.port': readPort(url) };
}
