// The scripted provider: deterministic answers from a scenario through the loop of real adapters, without key or network (11.11).
import { codePoints } from '#core/policy/context/message-size.ts';
import { estimateRequest } from '#core/policy/context/token-estimate.ts';
import type { ProviderAdapter } from '#core/ports/provider.ts';
import { type Clock, sleep } from '#protocol/clock.ts';
import type { CanonicalRequest } from '#protocol/model-call.ts';
import { type Attempt, type BaseOptions, createAdapter, type Exchange } from '../adapters/adapter-loop.ts';
import type { Assembly } from '../wire/assembly.ts';
import { fault, WireFault } from '../wire/fault.ts';
import { collectFacts, createMatcher, type Respond, type Scenario } from './scenario.ts';

const REQUESTS_KEPT = 1000;
const CHUNK_CHARS = 24;

export interface ScriptedAdapter extends ProviderAdapter {
  /** The last 1 000 requests, one for each attempt, oldest first. */
  readonly requests: readonly CanonicalRequest[];
}

export function createScriptedAdapter(options: BaseOptions & { readonly scenario: Scenario }): ScriptedAdapter {
  const requests: CanonicalRequest[] = [];
  const match = createMatcher(options.scenario);
  const adapter = createAdapter(options, (attempt): Exchange => {
    const { request } = attempt;
    requests.push({ ...request, messages: [...request.messages] });
    if (requests.length > REQUESTS_KEPT) requests.shift();
    const respond = match(request);
    const steps = respond === null ? null : play(respond, attempt, options.clock);
    return {
      requestId: () => null,
      open: async () => {},
      read: async (onFed) => {
        if (steps === null) throw noMatchFault(request);
        for await (const _ of steps) if (!onFed()) return;
      },
      close: () => {},
    };
  });
  return { ...adapter, requests };
}

function noMatchFault(request: CanonicalRequest): WireFault {
  const { is_worker, turn_index, call_index } = request.caller;
  const role = is_worker ? 'worker' : 'planner';
  const text = [...collectFacts(request).userText].slice(0, 80).join('');
  return new WireFault(
    fault(
      'invalid_request',
      'scripted_no_match',
      `no scripted rule matches: role ${role}, turn ${turn_index}, call ${call_index}, model ${request.model.id}, user text ${JSON.stringify(text)}`,
    ),
  );
}

/** Feeds the assembly one delta at a time; each step is one piece of the stream. */
async function* play(
  respond: Respond,
  { request, assembly, guard }: Attempt,
  clock: Clock,
): AsyncGenerator<void, void, undefined> {
  const { error } = respond;
  const delay = respond.delay_ms ?? 0;
  const chunkDelay = respond.chunk_delay_ms ?? 0;
  let chunks = 0;
  const wait = async (ms: number) => {
    await sleep(clock, ms, guard.signal);
    guard.touch();
  };
  const failAt = (count: number) => {
    if (error === undefined || (error.after_chunks ?? 0) > count) return;
    const { error_class, error_detail, status, retry_after_seconds } = error;
    throw new WireFault(
      fault(error_class, error_detail, `scripted ${error_class}`, { provider_status: status, retry_after_seconds }),
    );
  };

  if (delay > 0) await wait(delay);
  failAt(0);
  assembly.servedModel = request.model.id;
  for (const piece of splitAnswer(respond)) {
    const slot = assembly.open(piece.kind);
    if (chunks === 0) reportFirst(respond, request, assembly);
    if (piece.kind === 'tool') assembly.name(slot, piece.name, null);
    for (const chunk of splitText(piece.text, respond.chunk_chars ?? CHUNK_CHARS)) {
      if (chunks > 0 && chunkDelay > 0) await wait(chunkDelay);
      assembly.append(slot, chunk);
      chunks++;
      yield;
      failAt(chunks);
    }
    assembly.close(slot);
    yield;
  }
  if (respond.hang === true) await untilAborted(guard.signal);
  failAt(Number.POSITIVE_INFINITY);
  if (chunks === 0) reportFirst(respond, request, assembly);
  assembly.usage.output ??= Math.max(1, Math.ceil(outputSize(assembly) / 4));
  assembly.stop = {
    reason: respond.stop_reason ?? ((respond.tool_calls ?? []).length > 0 ? 'tool_use' : 'end_turn'),
    raw: null,
  };
}

type Piece =
  | { readonly kind: 'thinking' | 'text'; readonly text: string }
  | { readonly kind: 'tool'; readonly name: string; readonly text: string };

function splitAnswer(respond: Respond): Piece[] {
  const pieces: Piece[] = [];
  if (respond.thinking) pieces.push({ kind: 'thinking', text: respond.thinking });
  if (respond.text) pieces.push({ kind: 'text', text: respond.text });
  for (const { name, input } of respond.tool_calls ?? [])
    pieces.push({ kind: 'tool', name, text: JSON.stringify(input) });
  return pieces;
}

/** Pieces of `size` code points. */
function splitText(text: string, size: number): string[] {
  const points = [...text];
  const out: string[] = [];
  for (let i = 0; i < points.length; i += size) out.push(points.slice(i, i + size).join(''));
  return out;
}

/** Reports token counts with the first content, as providers do; unscripted output counts follow at the end. */
function reportFirst(respond: Respond, request: CanonicalRequest, assembly: Assembly): void {
  const given = respond.usage ?? {};
  const { usage } = assembly;
  usage.input = given.input_tokens ?? estimateRequest(request);
  usage.cached = given.cached_input_tokens ?? 0;
  usage.creation = given.cache_creation_input_tokens ?? 0;
  usage.creation1h = given.cache_creation_1h_input_tokens ?? 0;
  usage.output = given.output_tokens ?? null;
  usage.reasoning = given.reasoning_tokens ?? 0;
}

function outputSize(assembly: Assembly): number {
  return assembly.slots.reduce((sum, slot) => sum + codePoints(slot.name) + codePoints(slot.text), 0);
}

function untilAborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const stop = () => reject(signal.reason);
    if (signal.aborted) stop();
    else signal.addEventListener('abort', stop, { once: true });
  });
}
