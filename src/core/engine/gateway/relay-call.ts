// Relays a call's bytes to its provider and back, and reports the outcome (19 §2.2).

import { shownName } from '#core/policy/cut.ts';
import { placeEffort } from '#core/policy/gateway/call-effort.ts';
import { applySplices, type Splice } from '#core/policy/gateway/json-members.ts';
import { findBoundKey } from '#core/policy/gateway/largest-bill.ts';
import type { NamedModel } from '#core/policy/gateway/model-names.ts';
import type { RequestFacts } from '#core/policy/gateway/request-facts.ts';
import { type AdapterConfig, listWires } from '#core/policy/registry/adapter-config.ts';
import {
  type MeterReading,
  type RelayAnswer,
  RelayFault,
  type RelayHeaders,
  type RelayRequest,
} from '#core/ports/gateway-relay.ts';
import { Cancelled, createScope } from '#protocol/abort.ts';
import type { ClientWire } from '#protocol/client-wire.ts';
import type { Clock } from '#protocol/clock.ts';
import { AppError } from '#protocol/errors.ts';
import type { ModelEntry } from '#protocol/model.ts';
import type { Effort } from '#protocol/scalars.ts';
import type { GatewayEngine, GatewayState, ModelCatalog, Runtime } from '../state/engine.ts';
import type { BackgroundAnswer, GatewayCall, Outcome } from '../state/gateway-memory.ts';
import { listUsableAdapters } from './choose-model.ts';
import type { GatewayClient } from './client-session.ts';
import { type AnnouncedCall, ESTIMATED_CHARACTERS, settleCall } from './settle-gateway-call.ts';

// How long an answer waits for a client that does not read (19 §2.2).

/** Equal to the longest silence that a provider is granted. */
const PATIENCE_SECONDS = 300;

/**
 * Resolves when the client can take more. Rejects when the call is ended meanwhile, and when the client does not read
 * within `PATIENCE_MS`: its money and its slot must not be held for ever. Such a call does not count against the provider.
 */
export async function awaitClient(clock: Clock, taken: Promise<void>, signal: AbortSignal): Promise<void> {
  let cleanUp = () => {};
  const over = new Promise<never>((_resolve, reject) => {
    const rejectCancelled = () => reject(new RelayFault('cancelled', 'the call was cancelled'));
    const timer = clock.after(PATIENCE_SECONDS * 1000, () =>
      reject(new RelayFault('cancelled', `the client took nothing for ${PATIENCE_SECONDS} s`)),
    );
    signal.addEventListener('abort', rejectCancelled, { once: true });
    cleanUp = () => {
      timer.cancel();
      signal.removeEventListener('abort', rejectCancelled);
    };
    if (signal.aborted) rejectCancelled();
  });
  try {
    await Promise.race([taken, over]);
  } finally {
    cleanUp();
  }
}

export interface GatewayRequest {
  readonly wire: ClientWire;
  /** Path behind the wire's endpoint, with its query. */
  readonly tail: string;
  readonly headers: RelayHeaders;
  readonly client: GatewayClient;
  /** The body's bytes; the first call takes them. */
  takeBody(): Buffer;
  /** Aborts when the client disconnects. */
  readonly signal: AbortSignal;
}

/** Writes the answer to the client. */
export interface GatewaySink {
  head(status: number, headers: RelayHeaders): void;
  /** Resolves when the client can take more. */
  write(piece: Uint8Array): Promise<void> | undefined;
  end(): void;
  /** The answer broke off: the client must not take it as complete. */
  abort(): void;
}

export function buildRelayRequest(
  { wire, tail, headers }: GatewayRequest,
  pieces: readonly Buffer[],
  rest: Pick<RelayRequest, 'withhold_usage' | 'request_id'>,
): RelayRequest {
  const held = { pieces };
  return {
    wire,
    tail,
    headers,
    body_bytes: pieces.reduce((sum, piece) => sum + piece.byteLength, 0),
    takeBody() {
      const taken = held.pieces;
      held.pieces = [];
      return taken;
    },
    ...rest,
  };
}

export function sendRelay(
  engine: Runtime & GatewayState,
  adapter: string,
  request: RelayRequest,
  signal: AbortSignal,
): Promise<RelayAnswer> {
  return engine.relays.get(adapter)!.send(request, engine.config.gateway.credentials === 'server', signal);
}

export async function pumpBody(
  { clock }: Pick<Runtime, 'clock'>,
  { body }: RelayAnswer,
  { sink, signal }: { readonly sink: GatewaySink; readonly signal: AbortSignal },
): Promise<void> {
  for await (const piece of body) {
    const full = sink.write(piece);
    if (full !== undefined) await awaitClient(clock, full, signal);
  }
}

export function readOutcome(answer: RelayAnswer, broken: unknown, signal: AbortSignal): Outcome {
  const reading = answer.reading();
  const { fault } = reading;
  if (broken !== null) return { reading, ...describeBreak(broken, signal) };
  const rest = { reading, error_detail: null, counts: true };
  if (fault !== null) {
    const name = fault.name === null ? '' : ` (${fault.name})`;
    const { error_class, error_detail } = fault;
    return { ...rest, error_class, error_detail, message: `the provider answered ${answer.status}${name}` };
  }
  if (reading.whole) return { ...rest, error_class: null, message: '' };
  return { ...rest, error_class: 'network', message: 'the stream ended before the answer was whole' };
}

/** The outcome of a call that threw. A fault of this server does not count against the provider. */
export function describeBreak(error: unknown, signal: AbortSignal): Omit<Outcome, 'reading'> {
  const hasAborted = signal.aborted;
  const counts = error instanceof RelayFault;
  const { error_class, message } = counts
    ? error
    : { error_class: 'other' as const, message: 'the answer could not be relayed' };
  if (hasAborted) return { error_class: 'cancelled', error_detail: null, message, counts };
  return { error_class, error_detail: null, message, counts };
}

// The sent body: the client's bytes, with at most four splices (19 §2.2).

interface Sent {
  readonly pieces: readonly Buffer[];
  /** The gateway requested usage counts that the client did not request. */
  readonly withhold_usage: boolean;
}

type Optioned = Pick<AdapterConfig, 'options' | 'type'>;

interface Changes {
  /** Replaces the model's name; null = as it is. */
  readonly model: string | null;
  /** Bound of the answer; null = as it is. */
  readonly output_tokens: number | null;
  /** Undefined = as it is. */
  readonly effort?: Effort | null | undefined;
}

export function buildSentBody(bytes: Buffer, facts: RequestFacts, changes: Changes, adapter: Optioned): Sent {
  const splices: Splice[] = [];
  const { members } = facts;
  const replace = (key: string, text: string) => {
    const { from, to } = members.get(key)!;
    splices.push({ from, to, text });
  };
  const start = bytes.indexOf('{') + 1;
  let inserted = '';
  if (changes.model !== null) replace('model', JSON.stringify(changes.model));
  if (changes.output_tokens !== null) {
    const key = findBoundKey(facts, adapter);
    if (members.has(key)) replace(key, String(changes.output_tokens));
    else inserted += `${JSON.stringify(key)}:${changes.output_tokens},`;
  }
  if (changes.effort !== undefined) {
    const { wire, effort: stated } = facts;
    const place = placeEffort(bytes, members, { wire, stated, type: adapter.type }, changes.effort);
    inserted += place.inserted;
    if (place.splice !== null) splices.push(place.splice);
  }
  const withhold = isUsageNeeded(facts, adapter);
  if (withhold) {
    const asking = facts.stream_options?.asking ?? null;
    if (!members.has('stream_options')) inserted += '"stream_options":{"include_usage":true},';
    else if (asking === null) replace('stream_options', '{"include_usage":true}');
    else splices.push(asking);
  }
  if (inserted !== '') splices.push({ from: start, to: start, text: inserted });
  return { pieces: splices.length === 0 ? [bytes] : applySplices(bytes, splices), withhold_usage: withhold };
}

/** Not requested from an adapter whose configuration has `stream_usage: false`. */
function isUsageNeeded({ wire, stream, stream_options }: RequestFacts, { options }: Optioned): boolean {
  return wire === 'chat' && stream && stream_options?.include_usage !== true && options.stream_usage !== false;
}

/** The model name in the sent body; null = as the client wrote it. */
export function resolveSentName(named: NamedModel | null, model: ModelEntry): string | null {
  if (named !== null && named.model.id === model.id) return named.sent;
  return model.wire_name;
}

// Answers that a provider makes in the background: their call is open until its end is fetched (19 §2.2).

/** Answers that are kept; beyond it the oldest one ends as not fetched. */
const MAX_ANSWERS = 1024;
/** Time to fetch an answer. */
const PATIENCE_MS = 24 * 60 * 60 * 1000;

const NOT_FETCHED: Outcome = {
  reading: null,
  error_class: 'cancelled',
  error_detail: null,
  message: 'its answer was not fetched',
  counts: false,
};
const DELETED: Outcome = { ...NOT_FETCHED, message: 'its answer was deleted before its end' };

const NOTHING_REPORTED: MeterReading['usage'] = {
  input: null,
  cached: null,
  creation: null,
  creation1h: null,
  output: null,
  reasoning: null,
  early: false,
};

/**
 * A reading of an answer that the provider may have billed and no client has fetched: under a limit its call is booked at
 * its bounds.
 */
function assumeWholeAnswer({ most_output_tokens }: AnnouncedCall, id: string): MeterReading {
  return {
    usage: NOTHING_REPORTED,
    bill: null,
    stop_reason: null,
    served_model: null,
    response_id: id,
    characters: most_output_tokens * ESTIMATED_CHARACTERS,
    tool_calls: 0,
    thinking_blocks: 0,
    background: null,
    whole: false,
    fault: null,
  };
}

/** Keeps the call open, with its reservation, until its answer is fetched or its session is ended. */
export function keepAnswer(
  engine: GatewayEngine,
  call: AnnouncedCall,
  { id, caller }: { readonly id: string; readonly caller: string },
): void {
  const { calls, answers } = engine.gateway;
  const { session, model } = call;
  const scope = createScope();
  let resolveDone = () => {};
  const done = new Promise<void>((resolve) => {
    resolveDone = resolve;
  });
  const { root_session_id } = session;
  const open: GatewayCall = { session_id: session.id, root_session_id, scope, done, background: true };
  let over = false;
  const finishAnswer = async (outcome: Outcome): Promise<void> => {
    if (over) return;
    over = true;
    timer.cancel();
    const isUnknown = outcome.reading === null && call.limited;
    await settleCall(engine, call, isUnknown ? { ...outcome, reading: assumeWholeAnswer(call, id) } : outcome);
    calls.delete(open);
    resolveDone();
  };
  const endUnfetched = () => finishAnswer(NOT_FETCHED);
  const timer = engine.clock.after(PATIENCE_MS, () => void endUnfetched());
  scope.signal.addEventListener('abort', () => void endUnfetched(), { once: true });
  calls.add(open);
  const before = answers.get(id);
  answers.delete(id);
  answers.set(id, {
    caller,
    adapter: model.adapter,
    model: model.id,
    session_id: session.id,
    signal: scope.signal,
    finish: finishAnswer,
  });
  void before?.finish(NOT_FETCHED);
  if (answers.size <= MAX_ANSWERS) return;
  const [oldest, answer] = answers.entries().next().value!;
  answers.delete(oldest);
  void answer.finish(NOT_FETCHED);
}

/** Null for an answer that this process does not have. Throws `not_found` for another caller's answer. */
function findAnswer({ gateway }: Pick<GatewayState, 'gateway'>, caller: string, id: string): BackgroundAnswer | null {
  const kept = gateway.answers.get(id) ?? null;
  if (kept !== null && kept.caller !== caller) throw new AppError('not_found', `no response ${shownName(id)}`);
  return kept;
}

/** At a shutdown: clients can no longer fetch an answer here. */
export function dropAnswers({ gateway }: Pick<GatewayState, 'gateway'>): void {
  for (const { scope, background } of gateway.calls) if (background) scope.abort(new Cancelled('shutdown'));
}

export interface AnswerRequest extends GatewayRequest {
  readonly method: 'GET' | 'POST' | 'DELETE';
  readonly answer_id: string;
}

/**
 * Relays a request for a background answer: to fetch, cancel or delete it. The first reply that shows the answer's end
 * settles the call that started the answer.
 */
export async function fetchAnswer(
  engine: Runtime & ModelCatalog & GatewayState,
  request: AnswerRequest,
  sink: GatewaySink,
): Promise<void> {
  const kept = findAnswer(engine, request.client.caller, request.answer_id);
  const adapter = kept?.adapter ?? requireAdapter(engine, request.wire);
  const signal = kept === null ? request.signal : AbortSignal.any([request.signal, kept.signal]);
  const { method } = request;
  const asked = buildRelayRequest(request, [], { withhold_usage: false, request_id: engine.ids.request() });
  const outgoing = method === 'POST' ? asked : { ...asked, method };
  const answer = await sendRelay(engine, adapter, outgoing, signal);
  const own: (readonly [string, string])[] = [];
  if (kept !== null) own.push(['x-metis-session', kept.session_id], ['x-metis-model', kept.model]);
  sink.head(answer.status, [...answer.headers, ...own]);
  await pumpBody(engine, answer, { sink, signal });
  const reading = answer.reading();
  if (kept !== null && answer.status < 300) {
    if (method === 'DELETE') await kept.finish(DELETED);
    else if (reading.background?.done === true) await kept.finish(readOutcome(answer, null, signal));
  }
  sink.end();
}

function requireAdapter(engine: Runtime & ModelCatalog & GatewayState, wire: ClientWire): string {
  const usable = listUsableAdapters(engine);
  for (const [id, config] of engine.registry.adapters)
    if (usable.has(id) && listWires(config).includes(wire)) return id;
  throw new AppError('model_not_configured', `no adapter that speaks ${wire} has a key on this server`);
}
