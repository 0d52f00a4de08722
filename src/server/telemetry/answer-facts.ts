// What providers report of an answer beside its words, read where the answers pass: events do not store it (18 §2).
import type { Attributes } from '@opentelemetry/api';
import type { ProviderAdapter, Providers } from '#core/ports/provider.ts';
import type { Relay, RelayRequest, Relays } from '#core/ports/relay.ts';
import { scrubSecrets } from '#protocol/text/scrub.ts';

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

  function keep(requestId: string, { served_model, response_id }: Reported, stream: boolean): void {
    const attribute = (name: string, value: string | null) =>
      value === null ? {} : { [name]: scrubSecrets(value, secrets) };
    calls.delete(requestId);
    calls.set(requestId, {
      ...attribute('gen_ai.response.model', served_model),
      ...attribute('gen_ai.response.id', response_id),
      ...(stream ? { 'gen_ai.request.stream': true } : {}),
    });
    if (calls.size > MAX_ANSWERS) calls.delete(calls.keys().next().value!);
  }

  async function* streamAndKeep(adapter: ProviderAdapter, ...[request, signal]: Parameters<ProviderAdapter['stream']>) {
    for await (const event of adapter.stream(request, signal)) {
      if (event.type === 'message.complete') keep(request.request_id, event, true);
      yield event;
    }
  }

  async function sendAndKeep(relay: Relay, request: RelayRequest, withKey: boolean, signal: AbortSignal) {
    const answer = await relay.send(request, withKey, signal);
    const type = answer.headers.find(([name]) => name === 'content-type')?.[1] ?? '';
    return {
      ...answer,
      reading() {
        const reading = answer.reading();
        keep(request.request_id, reading, type.includes('event-stream'));
        return reading;
      },
    };
  }

  return {
    wrapProviders: (providers) =>
      new Map(
        [...providers].map(([id, adapter]) => [
          id,
          { ...adapter, stream: (request, signal) => streamAndKeep(adapter, request, signal) },
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
