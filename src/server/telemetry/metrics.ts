// The metrics of `/metrics` and OTLP: folded from committed events since the start (18 §2).

import type { Attributes, HrTime } from '@opentelemetry/api';
import type { MetricData } from '@opentelemetry/sdk-metrics';
import type { LiveBus } from '#core/ports/live-bus.ts';
import type { MetricGauges } from '#http/http-app.ts';
import { FailureModeSchema } from '#protocol/delegate.ts';
import type { Event, EventType, PayloadOf } from '#protocol/event.ts';
import { fromPusd, toPusd } from '#protocol/money.ts';
import { SLOTS } from '#protocol/route.ts';
import { ErrorClassSchema } from '#protocol/scalars.ts';
import { compareText } from '#protocol/text/compare-text.ts';
import { promptTokens } from '#protocol/usage.ts';
import type { AnswerFacts, FindCallTarget } from './call-facts.ts';

type Labels = Readonly<Record<string, string>>;

interface Point<T> {
  readonly labels: Labels;
  readonly value: T;
}

/** One histogram's values: `counts` has one more than there are bounds, each value in one of them. */
interface Spread {
  readonly counts: readonly number[];
  readonly sum: number;
  readonly count: number;
}

/** The figures of one name. */
export type Family = { readonly name: string; readonly help: string; readonly unit?: string } & (
  | { readonly type: 'counter' | 'gauge'; readonly whole: boolean; readonly points: readonly Point<number>[] }
  | { readonly type: 'histogram'; readonly bounds: readonly number[]; readonly points: readonly Point<Spread>[] }
);

interface Sums {
  add(labels: Labels, amount?: bigint): void;
  lines(): string[];
  family(): Family;
}

/** @param show a sum as it is written, where it is no plain count */
export function createSums(name: string, help: string, show?: (sum: bigint) => string): Sums {
  const text = show ?? String;
  const sums = new Map<string, { readonly labels: Labels; sum: bigint }>();
  return {
    add(labels, amount = 1n) {
      const one = findSeries(sums, labels, () => ({ labels, sum: 0n }));
      one.sum += amount;
    },
    lines: () => [
      ...writeHead(name, help, 'counter'),
      ...sortSeries(sums.values()).map(([labels, { sum }]) => `${name}{${labels}} ${text(sum)}`),
    ],
    family: () => ({
      ...{ name, help, type: 'counter', whole: show === undefined },
      points: [...sums.values()].map(({ labels, sum }) => ({ labels, value: Number(text(sum)) })),
    }),
  };
}

interface Histogram {
  /** A series with 0, before its first value. */
  declare(labels: Labels): void;
  observe(labels: Labels, value: number): void;
  lines(): string[];
  family(): Family;
}

/**
 * @param bounds upper ones, ascending; `+Inf` is added
 * @param unit where the name does not say it
 */
export function createHistogram(name: string, help: string, bounds: readonly number[], unit?: string): Histogram {
  const series = new Map<string, { readonly labels: Labels; readonly counts: number[]; sum: number; count: number }>();
  const findOne = (labels: Labels) =>
    findSeries(series, labels, () => ({ labels, counts: [...bounds, 0].map(() => 0), sum: 0, count: 0 }));
  const toFamily = (): Family => ({
    ...{ name, help, type: 'histogram', bounds, ...(unit !== undefined && { unit }) },
    points: [...series.values()].map(({ labels, counts, sum, count }) => ({
      labels,
      value: { counts: [...counts], sum, count },
    })),
  });
  return {
    declare: (labels) => void findOne(labels),
    observe(labels, value) {
      const one = findOne(labels);
      const place = bounds.findIndex((bound) => value <= bound);
      const index = place < 0 ? bounds.length : place;
      one.counts[index] = (one.counts[index] ?? 0) + 1;
      one.sum += value;
      one.count += 1;
    },
    lines: () => writeFamily(toFamily()),
    family: toFamily,
  };
}

/** A family in the text of Prometheus. */
export function writeFamily(family: Family): string[] {
  const points = family.points.map((point) => [formatLabels(point.labels), point.value] as const);
  points.sort(([a], [b]) => compareText(a, b));
  const head = writeHead(family.name, family.help, family.type);
  if (family.type !== 'histogram')
    return [...head, ...points.map(([labels, value]) => writeSample(family.name, labels, value as number))];
  return [
    ...head,
    ...points.flatMap(([labels, value]) => writeSpread(family.name, labels, family.bounds, value as Spread)),
  ];
}

function writeSpread(
  name: string,
  labels: string,
  bounds: readonly number[],
  { counts, sum, count }: Spread,
): string[] {
  const withBound = (bound: string) => [...(labels === '' ? [] : [labels]), `le="${bound}"`].join(',');
  let below = 0;
  return [
    ...bounds.map((bound, i) => {
      below += counts[i] ?? 0;
      return writeSample(`${name}_bucket`, withBound(String(bound)), below);
    }),
    writeSample(`${name}_bucket`, withBound('+Inf'), count),
    writeSample(`${name}_sum`, labels, sum),
    writeSample(`${name}_count`, labels, count),
  ];
}

function writeSample(name: string, labels: string, value: number): string {
  if (labels === '') return `${name} ${value}`;
  return `${name}{${labels}} ${value}`;
}

function findSeries<T>(series: Map<string, T>, labels: Labels, empty: () => T): T {
  // The text of the labels is written when someone asks for the metrics; a turn adds to thirty series.
  let key = '';
  for (const name in labels) key += `${name}\0${labels[name]}\0`;
  const known = series.get(key);
  if (known !== undefined) return known;
  const made = empty();
  series.set(key, made);
  return made;
}

function writeHead(name: string, help: string, type: string): string[] {
  return [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`];
}

function sortSeries<T extends { readonly labels: Labels }>(series: Iterable<T>): [string, T][] {
  const named = [...series].map((one): [string, T] => [formatLabels(one.labels), one]);
  return named.sort(([a], [b]) => compareText(a, b));
}

function formatLabels(labels: Labels): string {
  return Object.entries(labels)
    .map(([name, value]) => `${name}="${value.replace(/[\\"]/g, '\\$&').replaceAll('\n', '\\n')}"`)
    .join(',');
}

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

/** Metrics of the server itself (`node-metrics.ts`). */
interface NodeFamilies {
  families(now: MetricGauges['storage']): Family[];
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
 * @param node figures of the server itself
 */
export function createMetrics(bus: LiveBus, models: readonly string[], node: NodeFamilies | null = null): Metrics {
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
    if (errorClass === 'cancelled') {
      calls.add({ model, outcome: 'cancelled' });
      return;
    }
    calls.add({ model, outcome: 'failed' });
    errors.add({ model, error_class: errorClass });
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
  const listGauges = (now: MetricGauges) => [...listGaugeFamilies(now), ...(node?.families(now.storage) ?? [])];
  return {
    text: (now) =>
      [...all.flatMap(({ lines }) => lines()), ...listGauges(now).flatMap(writeFamily)]
        .map((line) => `${line}\n`)
        .join(''),
    families: (now) => [...all.map(({ family }) => family()), ...listGauges(now)],
  };
}

const GAUGES: { readonly [K in Exclude<keyof MetricGauges, 'storage'>]: string } = {
  active_sessions: 'Top-level sessions that have not ended.',
  active_workers: 'Worker sessions that have not ended.',
  active_turns: 'Turns that run.',
  active_streams: 'Open streams of events, WebSocket and SSE.',
  unreachable_nodes: 'Other nodes of the cluster that this one cannot reach.',
};

function listGaugeFamilies(now: MetricGauges): Family[] {
  return Object.entries(GAUGES).map(([name, help]) => ({
    ...{ name: `metis_${name}`, help, type: 'gauge', whole: true },
    points: [{ labels: {}, value: now[name as keyof typeof GAUGES] }],
  }));
}

export interface Modules {
  readonly api: typeof import('@opentelemetry/api');
  readonly sdk: typeof import('@opentelemetry/sdk-metrics');
}

/** @param span Unix milliseconds of the start, and of now */
export function toMetricData(
  { api, sdk }: Modules,
  family: Family,
  span: { readonly from: number; readonly until: number },
): MetricData {
  const { DOUBLE, INT } = api.ValueType;
  const descriptor = {
    name: family.name,
    description: family.help,
    unit: family.unit ?? '',
    valueType: family.type !== 'histogram' && family.whole ? INT : DOUBLE,
  };
  const times = { startTime: toHrTime(span.from), endTime: toHrTime(span.until) };
  const base = { descriptor, aggregationTemporality: sdk.AggregationTemporality.CUMULATIVE };
  if (family.type === 'histogram') {
    const boundaries = [...family.bounds];
    const dataPoints = family.points.map(({ labels, value: { counts, sum, count } }) => ({
      ...times,
      attributes: { ...labels },
      value: { buckets: { boundaries, counts: [...counts] }, sum, count },
    }));
    return { ...base, dataPointType: sdk.DataPointType.HISTOGRAM, dataPoints };
  }
  const dataPoints = family.points.map(({ labels, value }) => ({ ...times, attributes: { ...labels }, value }));
  if (family.type === 'gauge') return { ...base, dataPointType: sdk.DataPointType.GAUGE, dataPoints };
  return { ...base, dataPointType: sdk.DataPointType.SUM, dataPoints, isMonotonic: true };
}

function toHrTime(ms: number): HrTime {
  const seconds = Math.floor(ms / 1000);
  return [seconds, Math.round((ms - seconds * 1000) * 1e6)];
}

/** The bounds that the conventions advise. */
const TOKENS = [1, 4, 16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216, 67_108_864];
const SECONDS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];

/** Names that a provider gives: each is a series for as long as the server runs. */
const MAX_RESPONSE_MODELS = 200;

/** The metrics that OpenTelemetry's GenAI conventions name: tokens and duration of the calls that end from now on (18 §2). */
export function createGenAiMetrics(
  bus: LiveBus,
  { answers, targetOf }: { readonly answers: Pick<AnswerFacts, 'find'>; readonly targetOf: FindCallTarget },
): () => Family[] {
  const usage = createHistogram(
    'gen_ai.client.token.usage',
    'Tokens of a model call, cached ones among the input.',
    TOKENS,
    '{token}',
  );
  const duration = createHistogram('gen_ai.client.operation.duration', 'Time of a model call.', SECONDS, 's');
  const seen = new Set<unknown>();
  const labelCall = ({ model, provider }: { readonly model: string; readonly provider: string }) => {
    const target = targetOf(model);
    return {
      'gen_ai.operation.name': 'chat',
      'gen_ai.provider.name': provider,
      'gen_ai.request.model': target.model,
      ...toLabels({ 'server.address': target.server['server.address'] }),
    };
  };
  foldEvents(bus, 'gen-ai-metrics', {
    'llm.call_completed'(payload) {
      const { 'gen_ai.response.model': served } = answers.find(payload.request_id);
      if (seen.size < MAX_RESPONSE_MODELS) seen.add(served);
      const shown = seen.has(served) ? served : undefined;
      const labels = { ...labelCall(payload), ...toLabels({ 'gen_ai.response.model': shown }) };
      usage.observe({ ...labels, 'gen_ai.token.type': 'input' }, promptTokens(payload));
      usage.observe({ ...labels, 'gen_ai.token.type': 'output' }, payload.output_tokens);
      const { error_class } = payload;
      const seconds = payload.latency_ms / 1000;
      duration.observe({ ...labels, ...(error_class !== null && { 'error.type': error_class }) }, seconds);
    },
    'llm.call_failed': (payload) =>
      duration.observe({ ...labelCall(payload), 'error.type': payload.error_class }, payload.latency_ms / 1000),
  });
  return () => [usage.family(), duration.family()];
}

/** Labels are texts. */
function toLabels(attributes: Attributes): Readonly<Record<string, string>> {
  const known = Object.entries(attributes).filter(([, value]) => value !== undefined);
  return Object.fromEntries(known.map(([key, value]) => [key, String(value)]));
}
