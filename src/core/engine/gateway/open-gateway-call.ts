// Opens a gateway call: finds its session, decides its model, reserves its money; new records are one commit (19 §2.2).
import { resolveCallEffort } from '#core/policy/gateway/call-effort.ts';
import {
  computeLargestBill,
  computeLargestWindow,
  findOutputBound,
  findUnboundedPart,
} from '#core/policy/gateway/largest-bill.ts';
import type { RequestFacts } from '#core/policy/gateway/request-facts.ts';
import type { Prompt } from '#core/policy/pricing/prompt-tokens.ts';
import type { AdapterConfig } from '#core/policy/registry/adapter-config.ts';
import type { Write } from '#core/ports/journal-writer.ts';
import { AppError } from '#protocol/errors.ts';
import { draft, type EventDraft } from '#protocol/event.ts';
import type { EventId, RequestId } from '#protocol/ids.ts';
import { isClientKnown } from '#protocol/journal-batch.ts';
import { getProvider, type ModelEntry } from '#protocol/model.ts';
import { fromPusd, ZERO_PUSD } from '#protocol/money.ts';
import type { Effort } from '#protocol/scalars.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { listLimits, minimumLimitUsd, type Spender, toWireAmounts } from '../money/budget-limits.ts';
import { draftBudgetEvents } from '../money/budget-notices.ts';
import { type BoundPrompt, boundPrompt } from '../money/call-price.ts';
import { awaitReservation, type MoneyGrant, tryToReserve, type WantedMoney } from '../money/reserve-money.ts';
import { sessionCreatedEvent, sessionEndedError } from '../session/session-records.ts';
import type { GatewayEngine, GatewayState, LiveSessions, ModelCatalog, Runtime, Storage } from '../state/engine.ts';
import { keepCount, keepDecision, type StandingDecision } from '../state/gateway-memory.ts';
import { type BudgetRefusal, noteStart } from '../state/memory.ts';
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
  owner: "owner's",
  delegation: 'delegation',
  experiment: 'experiment',
} as const;

/**
 * Whether the call leaves although nothing bounds its cost. Throws `unbounded_request` where a limit covers such a call
 * and `gateway.unbounded` does not allow it.
 */
async function admitUnbounded(
  engine: Runtime & Storage & ModelCatalog,
  spender: Spender,
  model: ModelEntry,
  facts: RequestFacts,
): Promise<boolean> {
  const { prices, registry, config } = engine;
  const part = findUnboundedPart({ prices, registry, model, facts });
  if (part === null) return false;
  const [limit] = await listLimits(engine, spender, []);
  if (limit === undefined) return false;
  if (config.gateway.unbounded === 'allow') return true;
  const { member, why, remedy } = part;
  const under = `not possible under the ${LIMIT_NAMES[limit.scope]} limit of ${fromPusd(limit.limit)} USD`;
  const where = member === '' ? 'This request is' : `${member}:`;
  throw new AppError('unbounded_request', `${where} ${under}: ${why}; ${remedy}, or set gateway.unbounded: allow`, {
    field: member,
    remedy,
  });
}

interface OpenedCall extends AnnouncedCall {
  /** The model name in the sent body; null = as the client wrote it. */
  readonly sent: string | null;
  /** Replaces the effort in the sent body; undefined = as the client wrote it. */
  readonly sent_effort: Effort | null | undefined;
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
  /** Nothing bounds the call's cost: the reservation may be passed. */
  readonly unbounded: boolean;
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
 * `unbounded_request`, what `createSession` throws for a workspace, and the signal's reason.
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
  if (granted.kind === 'wait') granted = await awaitReservation(engine, wanted, granted.pool, how.signal);
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
  const askedId = asked.named?.model.id ?? null;
  const callEffort = resolveCallEffort(facts.effort, facts.wire, askedId, decision);
  const lowered = granted.output_tokens < findOutputBound(facts, model, findAdapter(engine, model));
  return {
    session,
    model,
    effort: callEffort.effort,
    sent_effort: callEffort.sent,
    request_id,
    started,
    estimated_input_tokens: facts.estimated_input_tokens,
    began: engine.clock.monotonic(),
    limited: granted.limited,
    prompt: wanted.bound,
    unbounded: wanted.unbounded,
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
  const standing = fresh.length > 0 ? null : await findStandingDecision(engine, session, asked);
  if (standing !== null) {
    const unbounded = await admitUnbounded(engine, spender, standing.model, facts);
    const wanted = priceGatewayCall(engine, { session, new_root, model: standing.model, facts, unbounded }, how.prompt);
    const granted = await tryToReserve(engine, wanted, FIRST_TRY);
    return { session, decision: standing, wanted, granted, started: null, request_id };
  }

  const { decision: routed, model, refusal, emit } = await decideGatewayRoute(engine, session, asked);
  const created = { writes: listInserts(fresh), emit: [...fresh.map(sessionCreatedEvent), ...emit] };
  if (model === null) {
    await engine.journal.commit(created);
    noteStarts(engine, fresh);
    throw addSessionDetail(refusal!, session);
  }
  const unbounded = await admitUnbounded(engine, spender, model, facts);
  const wanted = priceGatewayCall(engine, { session, new_root, model, facts, unbounded }, how.prompt);
  const granted = await tryToReserve(engine, wanted, FIRST_TRY);
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
      effort: routed.chosen_effort,
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
    readonly unbounded: boolean;
  },
  prompt: OpeningOptions['prompt'],
): PricedCall {
  const { session, new_root, model, facts, unbounded } = call;
  const { registry, config } = engine;
  const priced: PricedCall = {
    covered: { session: { ...session, new_root }, caps: [] },
    asked: findOutputBound(facts, model, findAdapter(engine, model)),
    floor: Math.max(config.gateway.min_output_tokens, facts.output.least),
    bound: null,
    unbounded,
    async price() {
      const whole = await prompt(engine.tokenizer !== null && model.tokenizer !== null);
      priced.bound ??= await boundPrompt(engine, session.id, model, whole);
      const { prices } = priced.bound;
      const bill = { prices, registry, model, facts, prompt: whole, prompt_tokens: priced.bound.tokens };
      if (unbounded) return (tokens) => computeLargestWindow(bill, tokens);
      return (tokens) => computeLargestBill(bill, tokens);
    },
  };
  return priced;
}

function findAdapter({ registry }: Pick<ModelCatalog, 'registry'>, { adapter }: ModelEntry): AdapterConfig {
  return registry.adapters.get(adapter)!;
}

/** The call's number in its session, from 1, continued after a restart. */
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
  const place = { session, submitted_by: null, turn_id: null, model: decision.model.id, caps: [] };
  await engine.journal.commit({ emit: draftBudgetEvents(place, 'budget.exceeded', refusal, decision.event_id) });
  const { scope } = refusal;
  const amounts = toWireAmounts(refusal);
  const held = refusal.reserved === ZERO_PUSD ? '' : `, ${amounts.reserved_usd} USD held by running calls`;
  const message = `The Metis ${LIMIT_NAMES[scope]} limit of ${amounts.limit_usd} USD is reached: ${amounts.spent_usd} USD spent${held}, and this call may cost up to ${amounts.needed_usd} USD. To go on: ${adviseOnLimit(session, refusal)}.`;
  return addSessionDetail(new AppError('budget_exceeded', message, { scope, ...amounts }), session);
}

function adviseOnLimit({ root_session_id }: SessionRecord, refusal: BudgetRefusal): string {
  if (refusal.scope === 'session')
    return `raise it with PATCH /sessions/${root_session_id} {"max_cost_usd": "${minimumLimitUsd(refusal)}"} or more, or begin a new session`;
  if (refusal.scope === 'owner')
    return 'wait for the next day or month (UTC), or ask an admin to raise the limit of the token';
  if (refusal.scope === 'key') return 'wait for 00:00 UTC, or raise daily_usd of the key in gateway.keys';
  return 'wait for 00:00 UTC, or raise budgets.daily_usd';
}

/** The error with the session's id, for the client. */
function addSessionDetail(error: AppError, { id }: Pick<SessionRecord, 'id'>): AppError {
  return new AppError(error.code, error.message, { ...error.details, session_id: id });
}
