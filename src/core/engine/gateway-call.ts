// Runs one gateway call: routed, reserved, relayed, settled. The client's bytes are sent unchanged (19 §2.2).
import { Cancelled, cancelledBy, createScope } from '#protocol/abort.ts';
import { AppError, validationError } from '#protocol/errors.ts';
import type { SessionId } from '#protocol/ids.ts';
import type { Result } from '#protocol/result.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { resolveCallEffort } from '../policy/gateway/call-effort.ts';
import { clientPrompt } from '../policy/gateway/client-prompt.ts';
import { readRequestFacts } from '../policy/gateway/request-facts.ts';
import { type RelayAnswer, RelayFault, type RelayRequest } from '../ports/gateway-relay.ts';
import { decideGatewayRoute, findStandingDecision, resolveRequestedModel } from './gateway/choose-model.ts';
import { ENDED, type GatewayClient, openClientSession, placeClient, resolveRootRef } from './gateway/client-session.ts';
import { type OpeningOptions, openCall } from './gateway/open-gateway-call.ts';
import {
  type AnswerRequest,
  buildRelayRequest,
  buildSentBody,
  describeBreak,
  fetchAnswer,
  type GatewayRequest,
  type GatewaySink,
  keepAnswer,
  pumpBody,
  readOutcome,
  resolveSentName,
  sendRelay,
} from './gateway/relay-call.ts';
import { type AnnouncedCall, settleCall } from './gateway/settle-gateway-call.ts';
import { shuttingDownError } from './lifecycle.ts';
import type { Engine, GatewayEngine, GatewayState } from './state/engine.ts';
import type { GatewayCall, StandingDecision } from './state/gateway-memory.ts';
import { forkMemory } from './state/memory.ts';

export { findGatewayModel as gatewayModel, listGatewayModels as gatewayModels } from './gateway/choose-model.ts';
export type { GatewayClient } from './gateway/client-session.ts';
export type { GatewayRequest, GatewaySink } from './gateway/relay-call.ts';

/** Why a call ends when its client disconnects. */
const CLIENT_LEFT = 'the client closed the connection';

/**
 * Takes the slot of one call before its body is read, since waiting calls hold memory. Returns the release of the slot,
 * to be called once. Throws `rate_limit_exceeded` where `gateway.max_streams` slots are taken.
 */
export function takePlace({ gateway, config }: Engine): () => void {
  const { max_streams } = config.gateway;
  if (gateway.arrived >= max_streams)
    throw new AppError(
      'rate_limit_exceeded',
      `${max_streams} calls are open, the most that gateway.max_streams allows`,
    );
  gateway.arrived += 1;
  return () => {
    gateway.arrived -= 1;
  };
}

/**
 * Relays one call. Before an answer begins it throws the request's fault or its refusal, and `RelayFault` where the
 * provider gives no answer. Once an answer began it never throws.
 */
export async function relayCall(engine: Engine, request: GatewayRequest, sink: GatewaySink): Promise<void> {
  if (engine.draining.value) throw shuttingDownError();
  const scope = createScope();
  const abortCall = () => scope.abort(new Cancelled('user_cancel', CLIENT_LEFT));
  request.signal.addEventListener('abort', abortCall, { once: true });
  if (request.signal.aborted) abortCall();
  let finish = () => {};
  const done = new Promise<void>((resolve) => {
    finish = resolve;
  });
  let entered: GatewayCall | null = null;
  const enter = ({ id, root_session_id }: SessionRecord) => {
    if (entered !== null) engine.gateway.calls.delete(entered);
    entered = { session_id: id, root_session_id, scope, done, background: false };
    engine.gateway.calls.add(entered);
  };
  try {
    const { call, outgoing } = await beginCall(engine, request, { signal: scope.signal, enter });
    await relayToProvider(engine, call, { outgoing, sink, signal: scope.signal, caller: request.client.caller });
  } catch (error) {
    if (scope.signal.aborted && !(error instanceof AppError)) throw toCancelledError(scope.signal);
    throw error;
  } finally {
    request.signal.removeEventListener('abort', abortCall);
    if (entered !== null) engine.gateway.calls.delete(entered);
    finish();
  }
}

/**
 * An announced call and the request to send. The request and its parsed facts are released here, so that a streaming
 * answer holds neither.
 */
async function beginCall(engine: GatewayEngine, request: GatewayRequest, how: Omit<OpeningOptions, 'prompt'>) {
  const { bytes: read, facts } = await readRequest(engine, request);
  let bytes = read;
  const prompt = async (withTexts: boolean) => {
    const { bodies } = engine;
    if (bodies === null || bytes.byteLength <= bodies.above) return clientPrompt(bytes, facts);
    const found = await bodies.readPrompt(bytes, facts, withTexts);
    bytes = found.bytes;
    return found.prompt;
  };
  const client = await placeClient(engine, request.client);
  const call = await openCall(engine, client, facts, { ...how, prompt });
  try {
    const adapter = engine.registry.adapters.get(call.model.adapter)!;
    const sent = buildSentBody(
      bytes,
      facts,
      { model: call.sent, output_tokens: call.output_tokens, effort: call.sent_effort },
      adapter,
    );
    const { withhold_usage } = sent;
    return { call, outgoing: buildRelayRequest(request, sent.pieces, { withhold_usage, request_id: call.request_id }) };
  } catch (error) {
    call.release();
    throw error;
  }
}

/** Relays a request that counts tokens: it costs nothing and is not stored. */
export async function relayCount(engine: Engine, request: GatewayRequest, sink: GatewaySink): Promise<void> {
  if (engine.draining.value) throw shuttingDownError();
  const { bytes, facts } = await readRequest(engine, request);
  // Reads notices without taking them: they stay for the call that stores them.
  const apart: Engine = { ...engine, routes: forkMemory(engine.routes) };
  const asked = resolveRequestedModel(apart, facts);
  const { session, new_root, fresh } = await openClientSession(apart, await placeClient(apart, request.client), null);
  const standing = fresh.length > 0 ? null : await findStandingDecision(apart, session, asked);
  const decided = standing ?? (await decideCount(apart, session, { ...asked, new_root }));
  const { model, sent } = decided;
  const adapter = engine.registry.adapters.get(model.adapter)!;
  const effort = resolveCallEffort(facts.effort, facts.wire, asked.named?.model.id ?? null, decided).sent;
  const changes = { model: sent, output_tokens: null, effort };
  const { pieces } = buildSentBody(bytes, facts, changes, adapter);
  const outgoing = buildRelayRequest(request, pieces, { withhold_usage: false, request_id: engine.ids.request() });
  const answer = await sendRelay(engine, model.adapter, outgoing, request.signal);
  sink.head(answer.status, [...answer.headers, ['x-metis-model', model.id]]);
  await pumpBody(engine, answer, { sink, signal: request.signal });
  sink.end();
}

/** Relays a request for an answer that the provider makes in the background. */
export async function relayAnswer(engine: Engine, request: AnswerRequest, sink: GatewaySink): Promise<void> {
  if (engine.draining.value) throw shuttingDownError();
  await fetchAnswer(engine, request, sink);
}

async function decideCount(
  engine: Engine,
  session: SessionRecord,
  asked: Parameters<typeof decideGatewayRoute>[2],
): Promise<Pick<StandingDecision, 'model' | 'sent' | 'effort'>> {
  const { decision, model, refusal } = await decideGatewayRoute(engine, session, asked);
  if (model === null) throw refusal!;
  return { model, effort: decision.chosen_effort, sent: resolveSentName(asked.named, model) };
}

/** The tree of a client's calls; null where the client's next call opens it. */
export async function gatewayRoot(engine: Engine, client: GatewayClient): Promise<SessionId | null> {
  const ref = resolveRootRef(engine, await placeClient(engine, client));
  return (await engine.store.sessions.findByClientRef(client.caller, ref))?.id ?? null;
}

/** The body and the facts that the gateway needs. Large bodies are parsed on another thread. */
async function readRequest({ bodies }: Pick<GatewayState, 'bodies'>, { wire, takeBody }: GatewayRequest) {
  const body = takeBody();
  if (bodies === null || body.byteLength <= bodies.above)
    return { bytes: body, facts: requireFacts(readRequestFacts(wire, body)) };
  const { bytes, facts } = await bodies.readRequest(wire, body);
  return { bytes, facts: requireFacts(facts) };
}

function requireFacts<T>(facts: Result<T, string>): T {
  if (!facts.ok) throw validationError([{ path: '', message: facts.error }]);
  return facts.value;
}

/** Sends the call and relays its answer; the outcome is stored before the answer ends. */
async function relayToProvider(
  engine: GatewayEngine,
  call: AnnouncedCall,
  {
    outgoing,
    sink,
    signal,
    caller,
  }: {
    readonly outgoing: RelayRequest;
    readonly sink: GatewaySink;
    readonly signal: AbortSignal;
    readonly caller: string;
  },
): Promise<void> {
  let answer: RelayAnswer;
  try {
    answer = await sendRelay(engine, call.model.adapter, outgoing, signal);
  } catch (error) {
    await settleCall(engine, call, { reading: null, ...describeBreak(error, signal) });
    if (error instanceof RelayFault) throw new RelayFault(error.error_class, error.message);
    throw error;
  }
  const own = [['x-metis-session', call.session.id] as const, ['x-metis-model', call.model.id] as const];
  let broken: unknown = null;
  try {
    sink.head(answer.status, [...answer.headers, ...own]);
    await pumpBody(engine, answer, { sink, signal });
  } catch (error) {
    broken = error;
    const { request_id } = call;
    if (!(error instanceof RelayFault)) engine.log.error({ err: error, request_id }, 'an answer broke off');
  }
  const { background } = answer.reading();
  // The provider continues a background answer when the client disconnects.
  const goesOn = !engine.draining.value && (!signal.aborted || cancelledBy(signal).detail === CLIENT_LEFT);
  if (background?.done === false && goesOn) keepAnswer(engine, call, { id: background.id, caller });
  else await settleCall(engine, call, readOutcome(answer, broken, signal));
  if (broken === null) sink.end();
  else sink.abort();
}

function toCancelledError(signal: AbortSignal): Error {
  const { reason, detail } = cancelledBy(signal);
  if (reason === 'shutdown') return shuttingDownError();
  if (detail === ENDED) return new AppError('session_already_ended', 'this session has ended');
  return new RelayFault('cancelled', 'the call was cancelled');
}
