// The figures of `/metrics` and of OTLP: folded from committed events since the start, written as Prometheus text by hand (18 §2).

import type { LiveBus } from '#core/ports/live-bus.ts';
import type { MetricGauges } from '#http/http-app.ts';
import { FailureModeSchema } from '#protocol/delegate.ts';
import type { Event, EventType, PayloadOf } from '#protocol/event.ts';
import { fromPusd, toPusd } from '#protocol/money.ts';
import { SLOTS } from '#protocol/route.ts';
import { ErrorClassSchema } from '#protocol/scalars.ts';
import { createHistogram, createSums, type Family } from './series.ts';

/** Upper bounds of `metis_llm_latency_seconds`: model calls take from a moment to minutes. */
const LATENCY_SECONDS = [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300];

const CALL_OUTCOMES = ['completed', 'failed', 'cancelled'] as const;
const TURN_OUTCOMES = ['completed', 'failed', 'cancelled'] as const;
const IS_WORKER = ['false', 'true'] as const;

export interface Metrics {
  /** Prometheus text, version 0.0.4. */
  text(now: MetricGauges): string;
  /** The same figures as numbers. */
  families(now: MetricGauges): Family[];
}

type Folds = { readonly [T in EventType]?: (payload: PayloadOf<T>, event: Event<T>) => void };

/** Calls the fold of each event that is committed from now on. */
export function foldEvents(bus: LiveBus, name: string, folds: Folds): void {
  bus.subscribe(name, (items) => {
    for (const item of items) {
      if (item.kind !== 'event') continue;
      const fold = folds[item.event.type] as ((payload: unknown, event: Event) => void) | undefined;
      fold?.(item.event.payload, item.event);
    }
  });
}

/**
 * Counts what is committed from now on. Each counter begins at 0, so that its first event is an increase.
 * @param models ids of those that can be called
 */
export function createMetrics(bus: LiveBus, models: readonly string[]): Metrics {
  const calls = createSums('metis_llm_calls_total', 'Model calls that ended.');
  const errors = createSums('metis_llm_errors_total', 'Model calls that failed, by the class of the error.');
  const latency = createHistogram(
    'metis_llm_latency_seconds',
    'Time of the model calls that were completed.',
    LATENCY_SECONDS,
  );
  // Summed as picodollars, so that the last digit is that of the ledger.
  const cost = createSums('metis_cost_usd_total', 'US dollars of the model calls.', fromPusd);
  const wins = createSums('metis_route_wins_total', 'Routing decisions, by the slot that chose.');
  const turns = createSums('metis_turns_total', 'Turns that ended.');
  const delegations = createSums('metis_delegations_total', 'Delegations that closed: completed, or how they failed.');

  for (const model of models) {
    for (const outcome of CALL_OUTCOMES) calls.add({ model, outcome }, 0n);
    for (const error_class of ErrorClassSchema.exclude(['cancelled']).options) errors.add({ model, error_class }, 0n);
    for (const is_worker of IS_WORKER) cost.add({ model, is_worker }, 0n);
  }
  for (const policy of SLOTS) wins.add({ policy }, 0n);
  for (const outcome of TURN_OUTCOMES) for (const is_worker of IS_WORKER) turns.add({ outcome, is_worker }, 0n);
  for (const outcome of ['completed', ...FailureModeSchema.options]) delegations.add({ outcome }, 0n);

  function countFailure(model: string, errorClass: string): void {
    calls.add({ model, outcome: errorClass === 'cancelled' ? 'cancelled' : 'failed' });
    if (errorClass !== 'cancelled') errors.add({ model, error_class: errorClass });
  }
  const countTurn =
    (outcome: (typeof TURN_OUTCOMES)[number]) => (payload: { readonly parent_session_id: string | null }) =>
      turns.add({ outcome, is_worker: String(payload.parent_session_id !== null) });

  foldEvents(bus, 'metrics', {
    'llm.call_completed'({ model, is_worker, stop_reason, error_class, cost_usd, latency_ms }) {
      cost.add({ model, is_worker: String(is_worker) }, toPusd(cost_usd));
      if (stop_reason === 'cancelled') return countFailure(model, error_class ?? 'cancelled');
      calls.add({ model, outcome: 'completed' });
      latency.observe({ model }, latency_ms / 1000);
    },
    'llm.call_failed': ({ model, error_class }) => countFailure(model, error_class),
    'route.decided'({ refused, chain, winner_index }) {
      const winner = chain[winner_index];
      if (refused === null && winner !== undefined) wins.add({ policy: winner.policy });
    },
    'turn.completed': countTurn('completed'),
    'turn.failed': countTurn('failed'),
    'turn.cancelled': countTurn('cancelled'),
    'delegate.completed': () => delegations.add({ outcome: 'completed' }),
    'delegate.failed': ({ failure_mode }) => delegations.add({ outcome: failure_mode }),
  });

  const all = [calls, errors, latency, cost, wins, turns, delegations];
  return {
    text: (now) => [...all.flatMap(({ lines }) => lines()), ...writeGauges(now)].map((line) => `${line}\n`).join(''),
    families: (now) => [...all.map(({ family }) => family()), ...listGaugeFamilies(now)],
  };
}

const GAUGES: { readonly [K in keyof MetricGauges]: string } = {
  active_sessions: 'Top-level sessions that have not ended.',
  active_workers: 'Worker sessions that have not ended.',
  active_turns: 'Turns that run.',
  active_streams: 'Open streams of events, WebSocket and SSE.',
  unreachable_nodes: 'Other nodes of the cluster that this one cannot reach.',
};

function writeGauges(now: MetricGauges): string[] {
  return Object.entries(GAUGES).flatMap(([name, help]) => [
    `# HELP metis_${name} ${help}`,
    `# TYPE metis_${name} gauge`,
    `metis_${name} ${now[name as keyof MetricGauges]}`,
  ]);
}

function listGaugeFamilies(now: MetricGauges): Family[] {
  return Object.entries(GAUGES).map(([name, help]) => ({
    ...{ name: `metis_${name}`, help, type: 'gauge', whole: true },
    points: [{ labels: {}, value: now[name as keyof MetricGauges] }],
  }));
}
