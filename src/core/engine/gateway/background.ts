// Answers that a provider makes in the background: their call is open until its end is fetched (19 §2.2).

import { shownName } from '#core/policy/cut.ts';
import { wiresOf } from '#core/policy/registry/adapter-config.ts';
import { Cancelled, createScope } from '#protocol/abort.ts';
import type { ClientWire } from '#protocol/api/gateway.ts';
import { AppError } from '#protocol/errors.ts';
import type { Engine } from '../state/engine.ts';
import type { BackgroundAnswer, GatewayCall, Outcome } from '../state/gateway-memory.ts';
import { usableAdapters } from './decide.ts';
import { type GatewayRequest, type GatewaySink, outcomeOf, pump, relayRequest, send } from './relay.ts';
import { type Begun, settleCall } from './settle.ts';

/** Answers that are remembered; the oldest beyond it is given up. */
const MAX_ANSWERS = 1024;
/** Time to fetch an answer. */
const PATIENCE_MS = 24 * 60 * 60 * 1000;

const NOT_FETCHED: Outcome = {
  reading: null,
  error_class: 'cancelled',
  error_detail: null,
  said: 'its answer was not fetched',
  counts: false,
};
const DELETED: Outcome = { ...NOT_FETCHED, said: 'its answer was deleted before its end' };

/** Keeps the call open, with its reservation, until its answer is fetched or its session is ended. */
export function keepAnswer(
  engine: Engine,
  call: Begun,
  { id, caller }: { readonly id: string; readonly caller: string },
): void {
  const { calls, answers } = engine.gateway;
  const { session, model } = call;
  const scope = createScope();
  let settled = () => {};
  const done = new Promise<void>((resolve) => {
    settled = resolve;
  });
  const { root_session_id } = session;
  const open: GatewayCall = { session_id: session.id, root_session_id, scope, done, background: true };
  let over = false;
  const finish = async (outcome: Outcome): Promise<void> => {
    if (over) return;
    over = true;
    timer.cancel();
    await settleCall(engine, call, outcome);
    calls.delete(open);
    settled();
  };
  const giveUp = () => finish(NOT_FETCHED);
  const timer = engine.clock.after(PATIENCE_MS, () => void giveUp());
  scope.signal.addEventListener('abort', () => void giveUp(), { once: true });
  calls.add(open);
  const before = answers.get(id);
  answers.delete(id);
  answers.set(id, {
    caller,
    adapter: model.adapter,
    model: model.id,
    session_id: session.id,
    signal: scope.signal,
    finish,
  });
  void before?.finish(NOT_FETCHED);
  if (answers.size <= MAX_ANSWERS) return;
  const [oldest, answer] = answers.entries().next().value!;
  answers.delete(oldest);
  void answer.finish(NOT_FETCHED);
}

/** Null for an answer that this process does not know. Throws `not_found` for one of another caller. */
function keptAnswer({ gateway }: Engine, caller: string, id: string): BackgroundAnswer | null {
  const kept = gateway.answers.get(id) ?? null;
  if (kept !== null && kept.caller !== caller) throw new AppError('not_found', `no response ${shownName(id)}`);
  return kept;
}

/** At a shutdown: no client can fetch an answer here any more. */
export function dropAnswers({ gateway }: Engine): void {
  for (const { scope, background } of gateway.calls) if (background) scope.abort(new Cancelled('shutdown'));
}

export interface AnswerRequest extends GatewayRequest {
  readonly method: 'GET' | 'POST' | 'DELETE';
  readonly answer_id: string;
}

/**
 * Relays a request for a background answer: to fetch, cancel or delete it. The call that asked for the answer is settled
 * by the first reply that shows its end.
 */
export async function fetchAnswer(engine: Engine, request: AnswerRequest, sink: GatewaySink): Promise<void> {
  const kept = keptAnswer(engine, request.client.caller, request.answer_id);
  const adapter = kept?.adapter ?? firstAdapter(engine, request.wire);
  const signal = kept === null ? request.signal : AbortSignal.any([request.signal, kept.signal]);
  const { method } = request;
  const asked = relayRequest(request, [], { withhold_usage: false, request_id: engine.ids.request() });
  const outgoing = method === 'POST' ? asked : { ...asked, method };
  const answer = await send(engine, adapter, outgoing, signal);
  const own =
    kept === null ? [] : [['x-metis-session', kept.session_id] as const, ['x-metis-model', kept.model] as const];
  sink.head(answer.status, [...answer.headers, ...own]);
  await pump(engine, answer, { sink, signal });
  const reading = answer.reading();
  if (kept !== null && answer.status < 300) {
    if (method === 'DELETE') await kept.finish(DELETED);
    else if (reading.background?.done === true) await kept.finish(outcomeOf(answer, null, signal));
  }
  sink.end();
}

function firstAdapter(engine: Engine, wire: ClientWire): string {
  const usable = usableAdapters(engine);
  for (const [id, config] of engine.registry.adapters) if (usable.has(id) && wiresOf(config).includes(wire)) return id;
  throw new AppError('model_not_configured', `no adapter that speaks ${wire} has a key on this server`);
}
