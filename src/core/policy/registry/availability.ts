// Tracks unavailable models and providers as a fold over the outcomes of model calls (03 §11). Pure: state in, state out.

import type { z } from 'zod';
import { type AvailabilitySchema, getProvider, type ModelEntry } from '#protocol/model.ts';
import type { OutageScope, OutageTrigger } from '#protocol/route.ts';
import type { ErrorClass } from '#protocol/scalars.ts';

export const FAILURES_TO_TRIP = 5;
export const FAILURE_WINDOW_MS = 120_000;
export const OUTAGE_MS = 300_000;

const COUNTED: ReadonlySet<ErrorClass> = new Set(['rate_limit', 'server_error', 'network', 'other']);

interface Outage {
  readonly scope: OutageScope;
  /** Cause of the outage. */
  readonly trigger: OutageTrigger;
  readonly provider: string;
  /** Its `providerKey`. */
  readonly key: string;
  readonly models: readonly string[];
  /** Monotonic milliseconds: a wall clock set back would prolong it. */
  readonly since: number;
}

/** The content of `routing.provider_unavailable`. */
export interface Unavailable {
  readonly kind: 'unavailable';
  readonly provider: string;
  readonly scope: OutageScope;
  readonly models: readonly string[];
  readonly trigger_reason: OutageTrigger;
}
/** The content of `routing.provider_recovered`. */
export interface Recovered {
  readonly kind: 'recovered';
  readonly provider: string;
  readonly scope: OutageScope;
  readonly models: readonly string[];
  readonly downtime_seconds: number;
}

/** Grows with the registry only: at most one entry a model or provider. */
export interface Availability {
  /** Times of each model's unbroken run of failures, oldest first, at most `FAILURES_TO_TRIP`. */
  readonly failures: ReadonlyMap<string, readonly number[]>;
  /** Keyed by model id. */
  readonly models: ReadonlyMap<string, Outage>;
  /** Keyed by `providerKey`. */
  readonly providers: ReadonlyMap<string, Outage>;
  /** Ended by a success and not yet reported by `expire`. */
  readonly recovered: readonly Recovered[];
}

/** An outage as validation and error messages need it. */
export interface OpenOutage {
  readonly trigger: OutageTrigger;
  readonly seconds_since: number;
  /** Seconds until the next call is let through. */
  readonly seconds_left: number;
}

/** The unavailable models and providers at one moment. */
export interface AvailabilitySnapshot {
  /** Keyed by `providerKey`. */
  readonly providers: ReadonlyMap<string, OpenOutage>;
  /** Keyed by model id. */
  readonly models: ReadonlyMap<string, OpenOutage>;
}

type ModelKey = Pick<ModelEntry, 'id' | 'adapter'>;

/** Models of one provider that are called with one key: a refused key closes these and no others. */
export function providerKey({ id, adapter }: ModelKey): string {
  return `${adapter}/${getProvider(id)}`;
}

export interface CallOutcome {
  readonly model: ModelKey;
  /** Null = the call succeeded. */
  readonly failure: CallFailure | null;
}

export interface CallFailure {
  readonly error_class: ErrorClass;
  /** 11.7. */
  readonly error_detail: string | null;
}

/** Everything healthy, as after a start. */
export function emptyAvailability(): Availability {
  return { failures: new Map(), models: new Map(), providers: new Map(), recovered: [] };
}

/**
 * Takes one call's outcome, after the adapter's own retries. `transitions` holds outages that begin with it;
 * one that a success ends is reported by the next `expire`.
 * @param now monotonic milliseconds
 * @param registry whose models a provider-wide outage lists
 */
export function recordOutcome(
  state: Availability,
  outcome: CallOutcome,
  now: number,
  registry: { readonly models: readonly ModelEntry[] },
): { state: Availability; transitions: readonly Unavailable[] } {
  const { id } = outcome.model;
  const key = providerKey(outcome.model);
  const { failure } = outcome;
  const provider = getProvider(id);
  const current = endOutages(
    state,
    (outage) => now >= outage.since + OUTAGE_MS,
    (outage) => outage.since + OUTAGE_MS,
  );
  if (failure === null) {
    const healed = endOutages(
      current,
      (outage) => getOutageKey(outage) === (outage.scope === 'provider_wide' ? key : id),
      () => now,
    );
    return { state: { ...healed, failures: withoutKeys(healed.failures, [id]) }, transitions: [] };
  }
  const isListed = registry.models.some((model) => model.id === id);
  const effect = classifyFailure(failure);
  if (effect === 'credentials') {
    if (current.providers.has(key)) return { state: current, transitions: [] };
    const models = registry.models.filter((model) => providerKey(model) === key).map((model) => model.id);
    const outage = {
      scope: 'provider_wide',
      trigger: findTrigger(failure),
      provider,
      key,
      models,
      since: now,
    } as const;
    const providers = new Map(current.providers).set(key, outage);
    return { state: { ...current, providers }, transitions: [createUnavailable(outage)] };
  }
  // Names that the registry does not list are the client's own: nothing is kept for them.
  if (effect === 'none' || !isListed || current.models.has(id)) return { state: current, transitions: [] };

  const run = [...(current.failures.get(id) ?? []), now].slice(-FAILURES_TO_TRIP);
  if (effect === 'counted' && (run.length < FAILURES_TO_TRIP || now - run[0]! > FAILURE_WINDOW_MS)) {
    return { state: { ...current, failures: new Map(current.failures).set(id, run) }, transitions: [] };
  }
  const trigger = effect === 'counted' ? '5_consecutive_failures' : findTrigger(failure);
  const outage = { scope: 'model_specific', trigger, provider, key, models: [id], since: now } as const;
  return {
    state: {
      ...current,
      failures: withoutKeys(current.failures, [id]),
      models: new Map(current.models).set(id, outage),
    },
    transitions: [createUnavailable(outage)],
  };
}

type Effect = 'credentials' | 'model' | 'counted' | 'none';

/** Scope of a failure: every model of the key, the model, the model after several failures, or only the request. */
function classifyFailure({ error_class, error_detail }: CallFailure): Effect {
  if (error_detail === 'model_denied' || error_detail === 'model_not_found') return 'model';
  if (error_detail === 'credit_too_low') return 'none';
  if (error_class === 'auth') {
    if (error_detail === 'forbidden') return 'counted';
    return 'credentials';
  }
  if (COUNTED.has(error_class)) return 'counted';
  return 'none';
}

function findTrigger({ error_detail }: CallFailure): OutageTrigger {
  if (error_detail === 'model_denied' || error_detail === 'model_not_found') return error_detail;
  if (error_detail === 'quota_exhausted') return 'quota_exhausted';
  return 'auth_error';
}

function createUnavailable({ provider, scope, models, trigger }: Outage): Unavailable {
  return { kind: 'unavailable', provider, scope, models, trigger_reason: trigger };
}

/** Ends outages that are old enough. `transitions` holds every recovery not reported before, each once. */
export function expire(state: Availability, now: number): { state: Availability; transitions: readonly Recovered[] } {
  const current = endOutages(
    state,
    (outage) => now >= outage.since + OUTAGE_MS,
    (outage) => outage.since + OUTAGE_MS,
  );
  return { state: { ...current, recovered: [] }, transitions: current.recovered };
}

/** The ids that are unavailable at `now`, without expired outages, whether `expire` was called or not. */
export function snapshot(state: Availability, now: number): AvailabilitySnapshot {
  const open = (outages: ReadonlyMap<string, Outage>) =>
    new Map(
      [...outages]
        .filter(([, { since }]) => now < since + OUTAGE_MS)
        .map(([id, { since, trigger }]): [string, OpenOutage] => [
          id,
          {
            trigger,
            seconds_since: Math.floor((now - since) / 1000),
            seconds_left: Math.ceil((since + OUTAGE_MS - now) / 1000),
          },
        ]),
    );
  return { providers: open(state.providers), models: open(state.models) };
}

/** The outage that a model is in; null when it may be called. */
export function findOutage(snap: AvailabilitySnapshot, model: ModelKey): OpenOutage | null {
  return snap.providers.get(providerKey(model)) ?? snap.models.get(model.id) ?? null;
}

/** A model's state as `GET /models` shows it. */
export function describeAvailability(snap: AvailabilitySnapshot, model: ModelKey): z.infer<typeof AvailabilitySchema> {
  if (snap.providers.has(providerKey(model))) return 'provider_unavailable';
  if (snap.models.has(model.id)) return 'model_unavailable';
  return 'healthy';
}

function endOutages(
  state: Availability,
  over: (outage: Outage) => boolean,
  endOf: (outage: Outage) => number,
): Availability {
  const ended = [...state.providers.values(), ...state.models.values()].filter(over);
  if (ended.length === 0) return state;
  const recovered = ended.map(
    (outage): Recovered => ({
      kind: 'recovered',
      provider: outage.provider,
      scope: outage.scope,
      models: outage.models,
      downtime_seconds: (endOf(outage) - outage.since) / 1000,
    }),
  );
  const keys = (scope: OutageScope) => ended.filter((outage) => outage.scope === scope).map(getOutageKey);
  return {
    failures: state.failures,
    providers: withoutKeys(state.providers, keys('provider_wide')),
    models: withoutKeys(state.models, keys('model_specific')),
    recovered: [...state.recovered, ...recovered],
  };
}

/** Key of an outage. */
function getOutageKey(outage: Outage): string {
  if (outage.scope === 'provider_wide') return outage.key;
  return outage.models[0]!;
}

function withoutKeys<V>(map: ReadonlyMap<string, V>, keys: readonly string[]): ReadonlyMap<string, V> {
  const copy = new Map(map);
  for (const key of keys) copy.delete(key);
  return copy;
}
