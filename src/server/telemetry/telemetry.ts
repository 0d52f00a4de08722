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
import { type Env, type OtelSettings, readOtelSettings } from './otel-environment.ts';
import type { TraceRelay } from './trace-relay.ts';

/** For what is left to send when the server goes down. */
const FLUSH_TIMEOUT_MS = 2000;

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
  wrapProviders(providers: Providers): Providers;
  /** The same of the gateway's relays. */
  wrapRelays(relays: Relays): Relays;
  /** From now on figures are sent, these of the moment among them. */
  sendMetrics(gauges: () => Promise<MetricGauges>): void;
  close(): Promise<void>;
}

/** Null = nobody asked. */
export async function startTelemetry(parts: TelemetryParts): Promise<Telemetry | null> {
  const { env, clock, log, secrets } = parts;
  const settings = readOtelSettings(env);
  if (settings === null) return null;
  for (const remark of settings.remarks) log.warn({}, remark);
  const content = settings.content ? createContent(secrets) : null;
  if (content !== null) log.warn({}, 'what is said to models and by them is sent with the traces');
  const answers = createAnswerFacts(secrets);
  const traces =
    settings.traces === null ? null : await startTraces(parts, settings, { url: settings.traces, content, answers });
  const metrics =
    settings.metrics === null ? null : await prepareMetrics(parts, settings, { url: settings.metrics, answers });
  return {
    wrapProviders: (providers) => answers.wrapProviders(content?.wrapProviders(providers) ?? providers),
    wrapRelays: answers.wrapRelays,
    sendMetrics: (gauges) => metrics?.start(gauges),
    close: async () => {
      const enough = new AbortController();
      const sent = Promise.allSettled([traces?.shutdown(), metrics?.shutdown()]);
      await Promise.race([sent, sleep(clock, FLUSH_TIMEOUT_MS, enough.signal).catch(() => {})]);
      enough.abort();
    },
  };
}

async function startTraces(
  { bus, relay, targetOf, version, log }: TelemetryParts,
  wishes: OtelSettings,
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
    createResource(version),
  ]);
  const processor = new sdk.BatchSpanProcessor({
    exporter: logOutages(new OTLPTraceExporter({ url }), { what: 'traces', url, log }),
    scheduledDelayMillis: wishes.batch_ms,
  });
  const sampler = createSampler(sdk, wishes);
  const provider = new sdk.TracerProvider({ resource, sampler, spanProcessors: [processor] });
  foldSpans(api, provider.getTracer('metis', version), { bus, relay, content, answers, targetOf });
  log.info({ endpoint: new URL(url).origin }, 'traces are sent');
  return provider;
}

async function prepareMetrics(
  { bus, metrics, targetOf, version, clock, log }: TelemetryParts,
  wishes: OtelSettings,
  { url, answers }: { readonly url: string; readonly answers: AnswerFacts },
) {
  const [api, sdk, { OTLPMetricExporter }, { toMetricData: metricData }, resource] = await Promise.all([
    import('@opentelemetry/api'),
    import('@opentelemetry/sdk-metrics'),
    import('@opentelemetry/exporter-metrics-otlp-http'),
    import('./metric-data.ts'),
    createResource(version),
  ]);
  const genAi = createGenAiMetrics(bus, { answers, targetOf });
  const from = clock.now();
  const reader = new sdk.PeriodicExportingMetricReader({
    exporter: logOutages(new OTLPMetricExporter({ url }), { what: 'metrics', url, log }),
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
async function createResource(version: string) {
  const { detectResources, envDetector, resourceFromAttributes } = await import('@opentelemetry/resources');
  const ours = resourceFromAttributes({ 'service.name': 'metis', 'service.version': version });
  return ours.merge(detectResources({ detectors: [envDetector] }));
}

function createSampler(sdk: typeof import('@opentelemetry/sdk-trace'), { sampler, ratio }: OtelSettings): Sampler {
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
function logOutages<T>(
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
