// Turns a request into an announced call: its session, its decision, its money; new records are one commit (19 §2.2).
import { shownName } from '#core/policy/cut.ts';
import { findUnboundedOther, largestBill, outputBound } from '#core/policy/gateway/largest-bill.ts';
import type { RequestFacts } from '#core/policy/gateway/request-facts.ts';
import type { OtherModel } from '#core/policy/gateway/request-parts.ts';
import type { Prompt } from '#core/policy/pricing/prompt-tokens.ts';
import type { AdapterConfig } from '#core/policy/registry/adapter-config.ts';
import type { Write } from '#core/ports/journal-writer.ts';
import { AppError, validationError } from '#protocol/errors.ts';
import { draft, type EventDraft } from '#protocol/event.ts';
import type { EventId, RequestId } from '#protocol/ids.ts';
import { isClientKnown } from '#protocol/journal-batch.ts';
import { getProvider, type ModelEntry } from '#protocol/model.ts';
import { fromPusd, toPusd } from '#protocol/money.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { listLimits, minimumLimitUsd, type Spender } from '../money/budget-limits.ts';
import { draftBudgetEvents } from '../money/budget-notices.ts';
import { type BoundPrompt, boundPrompt } from '../money/call-price.ts';
import { awaitMoney, type MoneyGrant, tryMoney, type WantedMoney } from '../money/reserve-money.ts';
import { sessionCreatedEvent, sessionEndedError } from '../session/session-records.ts';
import type { GatewayEngine, GatewayState, LiveSessions, ModelCatalog, Runtime, Storage } from '../state/engine.ts';
import { keepCount, keepDecision, type StandingDecision } from '../state/gateway-memory.ts';
import { noteStart } from '../state/memory.ts';
import {
  decideGatewayRoute,
  findStandingDecision,
  type RequestedModel,
  resolveRequestedModel,
} from './choose-model.ts';
import { type ClientSession, type GatewayClient, openClientSession, resolveRootRef } from './client-session.ts';
import { resolveSentName } from './relay-call.ts';
import type { AnnouncedCall } from './settle-gateway-call.ts';

// Requests whose cost has no upper bound: refused under a limit (19 §2.5).

const LIMIT_NAMES = {
  session: 'session',
  day: 'daily',
  key: "key's daily",
  delegation: 'delegation',
} as const;

/** Throws `validation_error` where a limit covers the call and the request's cost has no upper bound. */
async function requireBounded(
  engine: Runtime & Storage & ModelCatalog,
  spender: Spender,
  model: ModelEntry,
  facts: RequestFacts,
): Promise<void> {
  if (!facts.background && facts.other_models.length === 0) return;
  const [limit] = await listLimits(engine, spender, []);
  if (limit === undefined) return;
  const under = `not possible under the ${LIMIT_NAMES[limit.scope]} limit of ${fromPusd(limit.limit)} USD`;
  if (facts.background) {
    const why = `${under}: what a background answer costs is known only when a client fetches it`;
    const message = `${why}; send the request without background, or remove the limit`;
    throw validationError([{ path: 'background', message }]);
  }
  const { prices, registry } = engine;
  const other = findUnboundedOther({ prices, registry, model, facts });
  if (other === null) return;
  throw validationError([{ path: other.member, message: `${under}: ${describeUnbounded(other)}` }]);
}

function describeUnbounded({ name, uses, member }: OtherModel): string {
  if (name === '') return `the provider chooses the model of ${member}; name a model that GET /v1/models shows`;
  if (uses === null) return `the advisor may be asked without end; set its max_uses`;
  return `the model ${shownName(name)} has no price here; name one that GET /v1/models shows, or price it in a file of pricing.tables`;
}

interface OpenedCall extends AnnouncedCall {
  /** The model name in the sent body; null = as the client wrote it. */
  readonly sent: string | null;
  /** The lowered bound of the answer; null = as requested. */
  readonly output_tokens: number | null;
}

/** The result of opening a call. */
interface Opening {
  readonly session: SessionRecord;
  readonly decision: StandingDecision;
  readonly wanted: PricedCall;
  readonly granted: MoneyGrant;
  /** Event of the call's announcement, when stored together with the new records. */
  readonly started: EventId | null;
  readonly request_id: RequestId;
}

interface PricedCall extends WantedMoney {
  /** Null until the price is computed. */
  bound: BoundPrompt | null;
}

export interface OpeningOptions {
  readonly signal: AbortSignal;
  /** The parts of the request's prompt, with their texts where these are counted; called only where a limit covers the call. */
  prompt(withTexts: boolean): Promise<Prompt>;
  /** Called as soon as the session is known, before the first wait. */
  enter(session: SessionRecord): void;
}

/**
 * Throws `session_already_ended`, `model_not_configured`, `explicit_model_rejected`, `routing_failed`, `budget_exceeded`,
 * what `createSession` throws for a workspace, and the signal's reason.
 */
export async function openCall(
  engine: GatewayEngine,
  client: GatewayClient,
  facts: RequestFacts,
  how: OpeningOptions,
): Promise<OpenedCall> {
  const asked = resolveRequestedModel(engine, facts);
  const opening = await serializeOpening(engine, `${client.caller}\n${resolveRootRef(engine, client)}`, () =>
    openOnce(engine, client, asked, how).catch((error: unknown) => {
      // Another request opened the client's session meanwhile.
      if (isClientKnown(error)) return openOnce(engine, client, asked, how);
      throw error;
    }),
  );
  const { session, decision, request_id, wanted } = opening;
  const { model } = decision;
  let { granted, started } = opening;
  if (granted.kind === 'wait') granted = await awaitMoney(engine, wanted, granted.pool, how.signal);
  if (granted.kind === 'refused') throw await reportRefusal(engine, session, decision, granted);
  try {
    if (started === null) {
      how.signal.throwIfAborted();
      const call_index = await nextCallIndex(engine, session);
      const place = { session, model, facts, request_id, call_index };
      const [event] = await engine.journal.commit({ emit: [draftCallStarted(place, decision.event_id)] });
      started = event!.id;
    }
  } catch (error) {
    granted.release();
    throw error;
  }
  const lowered = granted.output_tokens < outputBound(facts, model, findAdapter(engine, model));
  return {
    session,
    model,
    request_id,
    started,
    estimated_input_tokens: facts.estimated_input_tokens,
    began: engine.clock.monotonic(),
    limited: granted.limited,
    prompt: wanted.bound,
    most_output_tokens: granted.output_tokens * facts.output.copies,
    sent: decision.sent,
    by_wire_name: (decision.sent ?? facts.model) === model.wire_name,
    output_tokens: lowered ? granted.output_tokens : null,
    release: granted.release,
  };
}

/** Serialized, so that two first calls of a client open one session and share one decision. */
function serializeOpening<T>(
  { gateway }: Pick<GatewayState, 'gateway'>,
  key: string,
  work: () => Promise<T>,
): Promise<T> {
  const before = gateway.openings.get(key) ?? Promise.resolve();
  const mine = before.then(work);
  const settled = mine
    .then(
      () => {},
      () => {},
    )
    .then(() => {
      if (gateway.openings.get(key) === settled) gateway.openings.delete(key);
    });
  gateway.openings.set(key, settled);
  return mine;
}

async function openOnce(
  engine: GatewayEngine,
  client: GatewayClient,
  given: RequestedModel,
  how: OpeningOptions,
): Promise<Opening> {
  const { facts, named } = given;
  const { session, new_root, fresh } = await openClientSession(engine, client, named?.model.id ?? null);
  const asked = { ...given, new_root };
  how.enter(session);
  await requireActiveRoot(engine, session, new_root);
  const spender = { ...session, new_root };
  const request_id = engine.ids.request();
  const stands = fresh.length > 0 ? null : await findStandingDecision(engine, session, asked);
  if (stands !== null) {
    await requireBounded(engine, spender, stands.model, facts);
    const wanted = priceGatewayCall(engine, { session, new_root, model: stands.model, facts }, how.prompt);
    const granted = await tryMoney(engine, wanted, FIRST_TRY);
    return { session, decision: stands, wanted, granted, started: null, request_id };
  }

  const { model, refusal, emit } = await decideGatewayRoute(engine, session, asked);
  const created = { writes: listInserts(fresh), emit: [...fresh.map(sessionCreatedEvent), ...emit] };
  if (model === null) {
    await engine.journal.commit(created);
    noteStarts(engine, fresh);
    throw addSessionDetail(refusal!, session);
  }
  await requireBounded(engine, spender, model, facts);
  const wanted = priceGatewayCall(engine, { session, new_root, model, facts }, how.prompt);
  const granted = await tryMoney(engine, wanted, FIRST_TRY);
  const route = created.emit.length - 1;
  const start: EventDraft[] = [];
  try {
    if (granted.kind === 'granted') {
      const call_index = await nextCallIndex(engine, session);
      start.push(draftCallStarted({ session, model, facts, request_id, call_index }, route));
    }
    const events = await engine.journal.commit({ writes: created.writes, emit: [...created.emit, ...start] });
    noteStarts(engine, fresh);
    const decision: StandingDecision = {
      root_session_id: session.root_session_id,
      model,
      sent: resolveSentName(named, model),
      event_id: events[route]!.id,
    };
    keepDecision(engine.gateway, session.id, facts.model, decision);
    const started = start.length === 0 ? null : events[route + 1]!.id;
    return { session, decision, wanted, granted, started, request_id };
  } catch (error) {
    if (granted.kind === 'granted') granted.release();
    throw error;
  }
}

/** The root may have ended during the lookup of the session: from here on its end aborts the call. */
async function requireActiveRoot(
  engine: Storage & LiveSessions,
  { root_session_id }: SessionRecord,
  new_root: SessionRecord | null,
) {
  if (new_root !== null) return;
  const root = await engine.store.sessions.record(root_session_id);
  if (root === null || root.ended_at !== null || engine.ending.has(root_session_id)) throw sessionEndedError();
}

const FIRST_TRY = { mayWait: true, own: null } as const;

function listInserts(fresh: ClientSession['fresh']): readonly Write[] {
  return fresh.map((session) => ({ kind: 'session.insert', session }));
}

function noteStarts(engine: Runtime & LiveSessions, fresh: ClientSession['fresh']): void {
  for (const { id } of fresh) noteStart(engine, id);
}

function priceGatewayCall(
  engine: Runtime & ModelCatalog,
  call: {
    readonly session: SessionRecord;
    readonly new_root: SessionRecord | null;
    readonly model: ModelEntry;
    readonly facts: RequestFacts;
  },
  prompt: OpeningOptions['prompt'],
): PricedCall {
  const { session, new_root, model, facts } = call;
  const { prices, registry, config } = engine;
  const priced: PricedCall = {
    covered: { session: { ...session, new_root }, caps: [] },
    asked: outputBound(facts, model, findAdapter(engine, model)),
    floor: Math.max(config.gateway.min_output_tokens, facts.output.least),
    bound: null,
    async price() {
      const whole = await prompt(engine.tokenizer !== null && model.tokenizer !== null);
      priced.bound ??= await boundPrompt(engine, session.id, model, whole);
      const bill = { prices, registry, model, facts, prompt: whole, prompt_tokens: priced.bound.tokens };
      return (tokens) => largestBill(bill, tokens);
    },
  };
  return priced;
}

function findAdapter({ registry }: Pick<ModelCatalog, 'registry'>, { adapter }: ModelEntry): AdapterConfig {
  return registry.adapters.get(adapter)!;
}

/** From 1 in the session, continued after a restart. */
async function nextCallIndex(engine: Storage & GatewayState, { id }: SessionRecord): Promise<number> {
  const { gateway, store } = engine;
  const stored = gateway.counts.get(id) ?? (await store.events.callCount(id));
  // Another call may have counted while the store was being read.
  const count = (gateway.counts.get(id) ?? stored) + 1;
  keepCount(gateway, id, count);
  return count;
}

interface Announced {
  readonly session: SessionRecord;
  readonly model: ModelEntry;
  readonly facts: RequestFacts;
  readonly request_id: RequestId;
  readonly call_index: number;
}

function draftCallStarted({ session, model, facts, request_id, call_index }: Announced, parent: EventId | number) {
  return draft({
    type: 'llm.call_started',
    session_id: session.id,
    turn_id: null,
    parent,
    payload: {
      model: model.id,
      provider: getProvider(model.id),
      estimated_input_tokens: facts.estimated_input_tokens,
      request_id,
      call_index,
      purpose: 'gateway',
      is_worker: session.is_worker,
      parent_session_id: session.parent_session_id,
      root_session_id: session.root_session_id,
    },
  });
}

/** Publishes the refusal of a limit on the session and its root. */
async function reportRefusal(
  engine: Pick<Storage, 'journal'>,
  session: SessionRecord,
  decision: StandingDecision,
  { refusal }: Extract<MoneyGrant, { kind: 'refused' }>,
): Promise<AppError> {
  const place = { session, turn_id: null, model: decision.model.id, caps: [] };
  await engine.journal.commit({ emit: draftBudgetEvents(place, 'budget.exceeded', refusal, decision.event_id) });
  const { scope, limit_usd, spent_usd, reserved_usd, needed_usd } = refusal;
  const held = toPusd(reserved_usd) === 0n ? '' : `, ${reserved_usd} USD held by running calls`;
  const raise =
    scope === 'session'
      ? `raise it with PATCH /sessions/${session.root_session_id} {"max_cost_usd": "${minimumLimitUsd(refusal)}"} or more, or begin a new session`
      : scope === 'key'
        ? 'wait for 00:00 UTC, or raise daily_usd of the key in gateway.keys'
        : 'wait for 00:00 UTC, or raise budgets.daily_usd';
  const message = `The Metis ${LIMIT_NAMES[scope]} limit of ${limit_usd} USD is reached: ${spent_usd} USD spent${held}, and this call may cost up to ${needed_usd} USD. To go on: ${raise}.`;
  return addSessionDetail(
    new AppError('budget_exceeded', message, { scope, limit_usd, spent_usd, reserved_usd, needed_usd }),
    session,
  );
}

/** The error with the session's id, for the client. */
function addSessionDetail(error: AppError, { id }: Pick<SessionRecord, 'id'>): AppError {
  return new AppError(error.code, error.message, { ...error.details, session_id: id });
}
