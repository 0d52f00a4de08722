// Which models and providers are out, as a fold over the outcomes of model calls (03 §11). Pure: state in, state out.

import type { z } from 'zod';
import { type AvailabilitySchema, type ModelEntry, providerOf } from '../../domain/model.ts';
import type { ErrorClass } from '../../domain/scalars.ts';

export const FAILURES_TO_TRIP = 5;
export const FAILURE_WINDOW_MS = 120_000;
export const OUTAGE_MS = 300_000;

const COUNTED: ReadonlySet<ErrorClass> = new Set(['rate_limit', 'server_error', 'network', 'other']);

export type OutageScope = 'model_specific' | 'provider_wide';
interface Outage {
  readonly scope: OutageScope;
  readonly provider: string;
  readonly models: readonly string[];
  /** Monotonic milliseconds: a wall clock set back would prolong it. */
  readonly since: number;
}

/** What `routing.provider_unavailable` says. */
export interface Unavailable {
  readonly kind: 'unavailable';
  readonly provider: string;
  readonly scope: OutageScope;
  readonly models: readonly string[];
  readonly trigger_reason: '5_consecutive_failures' | 'auth_error';
}
/** What `routing.provider_recovered` says. */
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
  /** By model id. */
  readonly models: ReadonlyMap<string, Outage>;
  /** By provider. */
  readonly providers: ReadonlyMap<string, Outage>;
  /** Ended by a success and not yet reported by `expire`. */
  readonly recovered: readonly Recovered[];
}

/** What validation asks: the ids that are out at one moment. */
export interface AvailabilitySnapshot {
  readonly providers: ReadonlySet<string>;
  readonly models: ReadonlySet<string>;
}

export interface CallOutcome {
  /** Canonical id. */
  readonly model: string;
  readonly provider: string;
  /** Null = the call succeeded. */
  readonly error_class: ErrorClass | null;
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
  const { model, provider, error_class } = outcome;
  const current = endOutages(
    state,
    (outage) => now >= outage.since + OUTAGE_MS,
    (outage) => outage.since + OUTAGE_MS,
  );
  if (error_class === null) {
    const healed = endOutages(
      current,
      (outage) => (outage.scope === 'provider_wide' ? outage.provider === provider : outage.models[0] === model),
      () => now,
    );
    return { state: { ...healed, failures: without(healed.failures, [model]) }, transitions: [] };
  }
  if (error_class === 'auth') {
    if (current.providers.has(provider)) return { state: current, transitions: [] };
    const models = registry.models.map(({ id }) => id).filter((id) => providerOf(id) === provider);
    const providers = new Map(current.providers).set(provider, {
      scope: 'provider_wide',
      provider,
      models,
      since: now,
    });
    return {
      state: { ...current, providers },
      transitions: [{ kind: 'unavailable', provider, scope: 'provider_wide', models, trigger_reason: 'auth_error' }],
    };
  }
  if (!COUNTED.has(error_class) || current.models.has(model)) return { state: current, transitions: [] };

  const run = [...(current.failures.get(model) ?? []), now].slice(-FAILURES_TO_TRIP);
  if (run.length < FAILURES_TO_TRIP || now - run[0]! > FAILURE_WINDOW_MS) {
    return { state: { ...current, failures: new Map(current.failures).set(model, run) }, transitions: [] };
  }
  const models = [model];
  return {
    state: {
      ...current,
      failures: without(current.failures, models),
      models: new Map(current.models).set(model, { scope: 'model_specific', provider, models, since: now }),
    },
    transitions: [
      { kind: 'unavailable', provider, scope: 'model_specific', models, trigger_reason: '5_consecutive_failures' },
    ],
  };
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

/** The ids that are out at `now`; what has run its time is not among them, whether `expire` was asked or not. */
export function snapshot(state: Availability, now: number): AvailabilitySnapshot {
  const open = (outages: ReadonlyMap<string, Outage>) =>
    new Set([...outages].filter(([, outage]) => now < outage.since + OUTAGE_MS).map(([id]) => id));
  return { providers: open(state.providers), models: open(state.models) };
}

/** A model's state as `GET /models` shows it. */
export function availabilityOf(snap: AvailabilitySnapshot, modelId: string): z.infer<typeof AvailabilitySchema> {
  if (snap.providers.has(providerOf(modelId))) return 'provider_unavailable';
  return snap.models.has(modelId) ? 'model_unavailable' : 'healthy';
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
  const keys = (scope: OutageScope) =>
    ended
      .filter((outage) => outage.scope === scope)
      .map((o) => (scope === 'provider_wide' ? o.provider : o.models[0]!));
  return {
    failures: state.failures,
    providers: without(state.providers, keys('provider_wide')),
    models: without(state.models, keys('model_specific')),
    recovered: [...state.recovered, ...recovered],
  };
}

function without<V>(map: ReadonlyMap<string, V>, keys: readonly string[]): ReadonlyMap<string, V> {
  const copy = new Map(map);
  for (const key of keys) copy.delete(key);
  return copy;
}
