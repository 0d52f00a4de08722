// OpenTelemetry, loaded only where the environment asks for it; a collector that is not there costs one line of the log (18 §2).
import type { Sampler, SpanExporter } from '@opentelemetry/sdk-trace';
import type { LiveBus } from '#core/ports/live-bus.ts';
import type { Logger } from '#core/ports/log.ts';
import type { Providers } from '#core/ports/provider.ts';
import type { Relays } from '#core/ports/relay.ts';
import type { MetricGauges } from '#http/http-app.ts';
import { type Clock, sleep } from '#protocol/clock.ts';
import { type AnswerFacts, createAnswerFacts } from './answer-facts.ts';
import type { FindCallTarget } from './call-target.ts';
import { createContent } from './content.ts';
import { createGenAiMetrics } from './gen-ai-metrics.ts';
import type { Metrics } from './metrics.ts';
import { type Env, readWishes, type Wishes } from './otel-environment.ts';
import type { TraceRelay } from './trace-relay.ts';

/** For what is left to send when the server goes down. */
const LAST_WORDS_MS = 2000;

export interface TelemetryParts {
  readonly env: Env;
  readonly bus: LiveBus;
  readonly relay: TraceRelay;
  readonly metrics: Metrics;
  /** Exact values that are never sent. */
  readonly secrets: readonly string[];
  readonly targetOf: FindCallTarget;
  readonly version: string;
  readonly clock: Clock;
  readonly log: Logger;
}

export interface Telemetry {
  /** The adapters as the engine is to have them: their answers are read for spans and metrics. */
  listening(providers: Providers): Providers;
  /** The same of the gateway's relays. */
  relaying(relays: Relays): Relays;
  /** From now on figures are sent, these of the moment among them. */
  sendMetrics(gauges: () => Promise<MetricGauges>): void;
  close(): Promise<void>;
}

/** Null = nobody asked. */
export async function startTelemetry(parts: TelemetryParts): Promise<Telemetry | null> {
  const { env, clock, log, secrets } = parts;
  const wishes = readWishes(env);
  if (wishes === null) return null;
  for (const remark of wishes.remarks) log.warn({}, remark);
  const content = wishes.content ? createContent(secrets) : null;
  if (content !== null) log.warn({}, 'what is said to models and by them is sent with the traces');
  const answers = createAnswerFacts(secrets);
  const traces =
    wishes.traces === null ? null : await startTraces(parts, wishes, { url: wishes.traces, content, answers });
  const metrics =
    wishes.metrics === null ? null : await prepareMetrics(parts, wishes, { url: wishes.metrics, answers });
  return {
    listening: (providers) => answers.listening(content?.listening(providers) ?? providers),
    relaying: answers.relaying,
    sendMetrics: (gauges) => metrics?.start(gauges),
    close: async () => {
      const enough = new AbortController();
      const sent = Promise.allSettled([traces?.shutdown(), metrics?.shutdown()]);
      await Promise.race([sent, sleep(clock, LAST_WORDS_MS, enough.signal).catch(() => {})]);
      enough.abort();
    },
  };
}

async function startTraces(
  { bus, relay, targetOf, version, log }: TelemetryParts,
  wishes: Wishes,
  {
    url,
    content,
    answers,
  }: {
    readonly url: string;
    readonly content: ReturnType<typeof createContent> | null;
    readonly answers: AnswerFacts;
  },
): Promise<{ shutdown(): Promise<void> }> {
  const [api, sdk, { OTLPTraceExporter }, { foldSpans }, resource] = await Promise.all([
    import('@opentelemetry/api'),
    import('@opentelemetry/sdk-trace'),
    import('@opentelemetry/exporter-trace-otlp-http'),
    import('./spans.ts'),
    resourceOf(version),
  ]);
  const processor = new sdk.BatchSpanProcessor({
    exporter: saidOnce(new OTLPTraceExporter({ url }), { what: 'traces', url, log }),
    scheduledDelayMillis: wishes.batch_ms,
  });
  const sampler = samplerOf(sdk, wishes);
  const provider = new sdk.TracerProvider({ resource, sampler, spanProcessors: [processor] });
  foldSpans(api, provider.getTracer('metis', version), { bus, relay, content, answers, targetOf });
  log.info({ endpoint: new URL(url).origin }, 'traces are sent');
  return provider;
}

async function prepareMetrics(
  { bus, metrics, targetOf, version, clock, log }: TelemetryParts,
  wishes: Wishes,
  { url, answers }: { readonly url: string; readonly answers: AnswerFacts },
) {
  const [api, sdk, { OTLPMetricExporter }, { metricData }, resource] = await Promise.all([
    import('@opentelemetry/api'),
    import('@opentelemetry/sdk-metrics'),
    import('@opentelemetry/exporter-metrics-otlp-http'),
    import('./metric-data.ts'),
    resourceOf(version),
  ]);
  const genAi = createGenAiMetrics(bus, { answers, targetOf });
  const from = clock.now();
  const reader = new sdk.PeriodicExportingMetricReader({
    exporter: saidOnce(new OTLPMetricExporter({ url }), { what: 'metrics', url, log }),
    exportIntervalMillis: wishes.interval_ms,
    exportTimeoutMillis: wishes.timeout_ms,
  });
  return {
    /** The figures are ours already: the reader is given them where it would ask a provider of instruments. */
    start(gauges: () => Promise<MetricGauges>) {
      const collect = async () => {
        const families = [...metrics.families(await gauges()), ...genAi()];
        const span = { from, until: clock.now() };
        const data = families
          .filter(({ points }) => points.length > 0)
          .map((one) => metricData({ api, sdk }, one, span));
        const scopeMetrics = [{ scope: { name: 'metis', version }, metrics: data }];
        return { resourceMetrics: { resource, scopeMetrics }, errors: [] };
      };
      reader.setMetricProducer({ collect });
      log.info({ endpoint: new URL(url).origin }, 'metrics are sent');
    },
    shutdown: () => reader.shutdown(),
  };
}

/** Headers, timeout and compression the exporters read themselves; name and attributes of the service this does. */
async function resourceOf(version: string) {
  const { detectResources, envDetector, resourceFromAttributes } = await import('@opentelemetry/resources');
  const ours = resourceFromAttributes({ 'service.name': 'metis', 'service.version': version });
  return ours.merge(detectResources({ detectors: [envDetector] }));
}

function samplerOf(sdk: typeof import('@opentelemetry/sdk-trace'), { sampler, ratio }: Wishes): Sampler {
  const roots: Readonly<Record<string, () => Sampler>> = {
    always_on: () => new sdk.AlwaysOnSampler(),
    always_off: () => new sdk.AlwaysOffSampler(),
    traceidratio: () => new sdk.TraceIdRatioBasedSampler(ratio),
  };
  const root = roots[sampler.replace('parentbased_', '')]!();
  return sampler.startsWith('parentbased_') ? new sdk.ParentBasedSampler({ root }) : root;
}

interface Exporter<T> {
  export(items: T, done: Parameters<SpanExporter['export']>[1]): void;
  shutdown(): Promise<void>;
  forceFlush(): Promise<void>;
}

/** Says once that what is sent is lost, and once that it arrives again. */
function saidOnce<T>(
  exporter: Exporter<T>,
  { what, url, log }: { readonly what: string; readonly url: string; readonly log: Logger },
): Exporter<T> {
  let lost = false;
  const { origin } = new URL(url);
  return {
    export: (items, done) =>
      exporter.export(items, (result) => {
        const failed = result.code !== 0;
        if (failed && !lost)
          log.warn({ endpoint: origin, error: String(result.error) }, `${what} cannot be sent and are lost`);
        if (!failed && lost) log.info({ endpoint: origin }, `${what} are sent again`);
        lost = failed;
        done(result);
      }),
    shutdown: () => exporter.shutdown(),
    forceFlush: () => exporter.forceFlush(),
  };
}
