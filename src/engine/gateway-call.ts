// One call of the gateway: routed, reserved, relayed, settled; the client's bytes go on as they are (19 §2.2).

import type { ClientWire } from '../domain/api/gateway.ts';
import type { ErrorClass } from '../domain/scalars.ts';
import type { SessionRecord } from '../domain/session.ts';
import { Cancelled, cancelledBy, createScope } from '../kernel/abort.ts';
import { AppError, validationError } from '../kernel/errors.ts';
import type { SessionId } from '../kernel/ids.ts';
import { type RequestFacts, requestFacts } from '../policy/gateway/request-facts.ts';
import { type RelayAnswer, RelayFault, type RelayHeaders, type RelayRequest } from '../ports/relay.ts';
import { goingDown } from './drain.ts';
import { sentBody, sentName } from './gateway/body.ts';
import { clientSession, type GatewayClient, rootRef } from './gateway/client.ts';
import { askedModel, decide, standing } from './gateway/decide.ts';
import { ENDED } from './gateway/end-tree.ts';
import { openCall } from './gateway/open-call.ts';
import { untilTaken } from './gateway/patience.ts';
import { type Begun, type Outcome, settleCall } from './gateway/settle.ts';
import type { Engine } from './state/engine.ts';
import type { GatewayCall } from './state/gateway-memory.ts';
import { forkMemory } from './state/route-memory.ts';

export type { GatewayClient } from './gateway/client.ts';
export { gatewayModels } from './gateway/models.ts';

export interface GatewayRequest {
  readonly wire: ClientWire;
  /** Behind the wire's endpoint, with its query. */
  readonly tail: string;
  readonly headers: RelayHeaders;
  readonly client: GatewayClient;
  /** The body's bytes, handed out once. */
  takeBody(): Buffer;
  /** Aborts when the client has gone. */
  readonly signal: AbortSignal;
}

/** Where the answer goes. */
export interface GatewaySink {
  head(status: number, headers: RelayHeaders): void;
  /** Resolves when the client can take more. */
  write(piece: Uint8Array): Promise<void> | undefined;
  end(): void;
  /** The answer broke off: the client must not take it for whole. */
  cut(): void;
}

/**
 * Takes the place of one call, before any of its body is read: what waits here holds memory. Returns how to give it
 * back, once. Throws `rate_limit_exceeded` where `gateway.max_streams` are taken.
 */
export function takePlace({ gateway, config }: Engine): () => void {
  const { max_streams } = config.gateway;
  if (gateway.arrived >= max_streams)
    throw new AppError('rate_limit_exceeded', `${max_streams} calls are under way: gateway.max_streams`);
  gateway.arrived += 1;
  return () => {
    gateway.arrived -= 1;
  };
}

/**
 * Relays one call. Throws what is wrong with the request or refused before an answer begins; `RelayFault` where the
 * provider gives none; from then on never.
 */
export async function relayCall(engine: Engine, request: GatewayRequest, sink: GatewaySink): Promise<void> {
  if (engine.draining.value) throw goingDown();
  const scope = createScope();
  const leave = () => scope.abort(new Cancelled('user_cancel', 'the client closed the connection'));
  request.signal.addEventListener('abort', leave, { once: true });
  if (request.signal.aborted) leave();
  let finish = () => {};
  const done = new Promise<void>((resolve) => {
    finish = resolve;
  });
  let entered: GatewayCall | null = null;
  const enter = ({ id, root_session_id }: SessionRecord) => {
    if (entered !== null) engine.gateway.calls.delete(entered);
    entered = { session_id: id, root_session_id, scope, done };
    engine.gateway.calls.add(entered);
  };
  try {
    const { call, outgoing } = await begin(engine, request, { signal: scope.signal, enter });
    try {
      await relay(engine, call, { outgoing, sink, signal: scope.signal });
    } finally {
      // What was spent and could not be booked stays reserved: a limit must not forget it.
      if (!lost.has(call)) call.release();
    }
  } catch (error) {
    throw scope.signal.aborted && !(error instanceof AppError) ? cancelledError(scope.signal) : error;
  } finally {
    request.signal.removeEventListener('abort', leave);
    if (entered !== null) engine.gateway.calls.delete(entered);
    finish();
  }
}

/**
 * A call that was announced, and what is sent for it. The request and what was read of it end here: while the answer
 * streams, nothing of it is held.
 */
async function begin(engine: Engine, request: GatewayRequest, how: Parameters<typeof openCall>[3]) {
  const bytes = request.takeBody();
  const facts = readFacts(request.wire, bytes);
  const call = await openCall(engine, request.client, facts, how);
  try {
    const adapter = engine.registry.adapters.get(call.model.adapter)!;
    const sent = sentBody(bytes, facts, { model: call.sent, output_tokens: call.output_tokens }, adapter);
    const { withhold_usage } = sent;
    return { call, outgoing: relayRequest(request, sent.pieces, { withhold_usage, request_id: call.request_id }) };
  } catch (error) {
    call.release();
    throw error;
  }
}

/** Relays a question about a request's size: it costs nothing and leaves no trace. */
export async function relayCount(engine: Engine, request: GatewayRequest, sink: GatewaySink): Promise<void> {
  if (engine.draining.value) throw goingDown();
  const bytes = request.takeBody();
  const facts = readFacts(request.wire, bytes);
  // Nothing that is noticed on the way is taken from those who store it.
  const apart: Engine = { ...engine, routes: forkMemory(engine.routes) };
  const asked = askedModel(apart, facts);
  const { session, new_root, fresh } = await clientSession(apart, request.client, null);
  const stands = fresh.length > 0 ? null : await standing(apart, session, asked);
  const decided = stands === null ? await decide(apart, session, { ...asked, new_root }) : null;
  const model = stands?.model ?? decided!.model;
  if (model === null) throw decided!.refusal!;
  const adapter = engine.registry.adapters.get(model.adapter)!;
  const changes = { model: stands === null ? sentName(asked.named, model) : stands.sent, output_tokens: null };
  const { pieces } = sentBody(bytes, facts, changes, adapter);
  const outgoing = relayRequest(request, pieces, { withhold_usage: false, request_id: engine.ids.request() });
  const answer = await send(engine, model.adapter, outgoing, request.signal);
  sink.head(answer.status, [...answer.headers, ['x-metis-model', model.id]]);
  await pump(engine, answer, { sink, signal: request.signal });
  sink.end();
}

/** The tree that a client's calls belong to; null where its next one opens it. */
export async function gatewayRoot(engine: Engine, client: GatewayClient): Promise<SessionId | null> {
  return (await engine.store.sessions.ofClient(client.caller, rootRef(engine, client)))?.id ?? null;
}

function readFacts(wire: ClientWire, bytes: Buffer): RequestFacts {
  const facts = requestFacts(wire, bytes);
  if (!facts.ok) throw validationError([{ path: '', message: facts.error }]);
  return facts.value;
}

function relayRequest(
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

function send(engine: Engine, adapter: string, request: RelayRequest, signal: AbortSignal): Promise<RelayAnswer> {
  return engine.relays.get(adapter)!.send(request, engine.config.gateway.credentials === 'server', signal);
}

/** Sends the call and hands its answer on; the outcome is stored before the answer ends. */
async function relay(
  engine: Engine,
  call: Begun,
  {
    outgoing,
    sink,
    signal,
  }: { readonly outgoing: RelayRequest; readonly sink: GatewaySink; readonly signal: AbortSignal },
): Promise<void> {
  let answer: RelayAnswer;
  try {
    answer = await send(engine, call.model.adapter, outgoing, signal);
  } catch (error) {
    const error_class = classOf(error, signal);
    await settled(engine, call, { reading: null, error_class, said: saidOf(error), counts: true });
    throw error instanceof RelayFault ? new RelayFault(error.error_class, error.message) : error;
  }
  sink.head(answer.status, [...answer.headers, ['x-metis-session', call.session.id], ['x-metis-model', call.model.id]]);
  let broken: unknown = null;
  try {
    await pump(engine, answer, { sink, signal });
  } catch (error) {
    broken = error;
  }
  await settled(engine, call, outcomeOf(engine, answer, broken, signal));
  if (broken === null) sink.end();
  else sink.cut();
}

async function pump(
  { clock }: Engine,
  { body }: RelayAnswer,
  { sink, signal }: { readonly sink: GatewaySink; readonly signal: AbortSignal },
): Promise<void> {
  for await (const piece of body) {
    const full = sink.write(piece);
    if (full !== undefined) await untilTaken(clock, full, signal);
  }
}

function outcomeOf(engine: Engine, answer: RelayAnswer, broken: unknown, signal: AbortSignal): Outcome {
  const reading = answer.reading();
  const { fault } = reading;
  const own = engine.config.gateway.credentials === 'client';
  if (broken !== null) return { reading, error_class: classOf(broken, signal), said: saidOf(broken), counts: true };
  if (fault !== null) {
    const name = fault.name === null ? '' : ` (${fault.name})`;
    // Whose key was refused was the client's own affair.
    const counts = !(own && fault.error_class === 'auth');
    const said = `the provider answered ${answer.status}${name}`;
    return { reading, error_class: fault.error_class, said, counts };
  }
  if (reading.whole) return { reading, error_class: null, said: '', counts: true };
  return { reading, error_class: 'network', said: 'the stream ended before the answer was whole', counts: true };
}

function classOf(error: unknown, signal: AbortSignal): ErrorClass {
  if (signal.aborted) return 'cancelled';
  return error instanceof RelayFault ? error.error_class : 'other';
}

function saidOf(error: unknown): string {
  return error instanceof RelayFault ? error.message : 'the answer could not be handed on';
}

/** Calls whose outcome could not be stored. */
const lost = new WeakSet<Begun>();

/** What cannot be stored is logged: the answer goes on, since it was paid for. */
async function settled(engine: Engine, call: Begun, outcome: Outcome): Promise<void> {
  try {
    await settleCall(engine, call, outcome);
  } catch (err) {
    lost.add(call);
    engine.log.error(
      { err, session_id: call.session.id, request_id: call.request_id },
      'the outcome of a call of the gateway could not be stored',
    );
  }
}

function cancelledError(signal: AbortSignal): Error {
  const { reason, detail } = cancelledBy(signal);
  if (reason === 'shutdown') return goingDown();
  if (detail === ENDED) return new AppError('session_already_ended', 'this session has ended');
  return new RelayFault('cancelled', 'the call was cancelled');
}
