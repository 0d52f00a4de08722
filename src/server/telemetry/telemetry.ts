// OpenTelemetry, loaded only where the environment asks for it; a collector that is not there costs one line of the log (18 §2).
import type { Sampler, SpanExporter } from '@opentelemetry/sdk-trace';
import type { Relays } from '#core/ports/gateway-relay.ts';
import type { LiveBus } from '#core/ports/live-bus.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { Providers } from '#core/ports/provider.ts';
import type { MetricGauges } from '#http/http-app.ts';
import { type Clock, sleep } from '#protocol/clock.ts';
import { type AnswerFacts, createAnswerFacts, createContent, type FindCallTarget } from './call-facts.ts';
import { createGenAiMetrics, type Metrics } from './metrics.ts';
import type { TraceRelay } from './trace-relay.ts';

type Env = Readonly<Record<string, string | undefined>>;

const SAMPLERS = [
  'always_on',
  'always_off',
  'traceidratio',
  'parentbased_always_on',
  'parentbased_always_off',
  'parentbased_traceidratio',
] as const;

interface OtelSettings {
  /** Where each goes; null = it is not sent. */
  readonly traces: string | null;
  readonly metrics: string | null;
  readonly sampler: (typeof SAMPLERS)[number];
  /** Of the traces, for the samplers by ratio. */
  readonly ratio: number;
  /** Messages are recorded too. */
  readonly content: boolean;
  readonly batch_ms: number;
  readonly interval_ms: number;
  readonly timeout_ms: number;
  readonly remarks: readonly string[];
}

const BASE = 'OTEL_EXPORTER_OTLP';
const LOCAL = 'http://localhost:4318';
const LONGEST_MS = 2 ** 31 - 1;

/** Null = nothing is sent and there is nothing to say about it. An empty variable is one that is not set. */
function readOtelSettings(env: Env): OtelSettings | null {
  if (env.OTEL_SDK_DISABLED?.trim().toLowerCase() === 'true') return null;
  const remarks = new Set<string>();
  const traces = readTarget(env, 'TRACES', remarks);
  const metrics = readTarget(env, 'METRICS', remarks);
  if (traces === null && metrics === null && remarks.size === 0) return null;
  const sampling =
    traces === null ? ({ sampler: 'parentbased_always_on', ratio: 1 } as const) : readSampler(env, remarks);
  const content = traces !== null && isContentRecorded(env, remarks);
  const temporality = `${BASE}_METRICS_TEMPORALITY_PREFERENCE`;
  if (metrics !== null && (env[temporality] || 'cumulative').toLowerCase() !== 'cumulative')
    remarks.add(`${temporality}=${shorten(env[temporality])} is not known here: metrics are cumulative`);
  const interval_ms = readMilliseconds(env.OTEL_METRIC_EXPORT_INTERVAL, 60_000);
  return {
    traces,
    metrics,
    ...sampling,
    content,
    batch_ms: readMilliseconds(env.OTEL_BSP_SCHEDULE_DELAY, 5000),
    interval_ms,
    timeout_ms: Math.min(interval_ms, readMilliseconds(env.OTEL_METRIC_EXPORT_TIMEOUT, 30_000)),
    remarks: [...remarks],
  };
}

function readTarget(env: Env, signal: 'TRACES' | 'METRICS', remarks: Set<string>): string | null {
  const what = signal.toLowerCase();
  const exporter = env[`OTEL_${signal}_EXPORTER`]?.trim() || null;
  if (exporter === 'none') return null;
  if (exporter !== null && exporter !== 'otlp') {
    remarks.add(
      `OTEL_${signal}_EXPORTER=${shorten(exporter)} is not known here, but otlp and none: no ${what} are sent`,
    );
    return null;
  }
  const found = readEndpoint(env, signal, exporter === null ? null : LOCAL);
  if (found === null) return null;
  const { name, url } = found;
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
    remarks.add(`${name} is no address that starts with http:// or https://: no ${what} are sent`);
    return null;
  }
  if (isKnownProtocol(env, signal, remarks)) return url;
  return null;
}

/** The variable of the signal is a whole address; the common one is the beginning of each signal's. */
function readEndpoint(
  env: Env,
  signal: 'TRACES' | 'METRICS',
  otherwise: string | null,
): { readonly name: string; readonly url: string } | null {
  const own = `${BASE}_${signal}_ENDPOINT`;
  if (env[own]) return { name: own, url: env[own] };
  const name = `${BASE}_ENDPOINT`;
  const base = env[name] || otherwise;
  if (base === null) return null;
  return { name, url: `${base.replace(/\/+$/, '')}/v1/${signal.toLowerCase()}` };
}

function isKnownProtocol(env: Env, signal: string, remarks: Set<string>): boolean {
  const name = env[`${BASE}_${signal}_PROTOCOL`] ? `${BASE}_${signal}_PROTOCOL` : `${BASE}_PROTOCOL`;
  const protocol = env[name]?.trim() || 'http/json';
  if (protocol === 'http/json') return true;
  if (protocol === 'http/protobuf') {
    remarks.add(`${name}=http/protobuf: what is sent is http/json, which collectors take at the same address`);
    return true;
  }
  remarks.add(
    `${name}=${shorten(protocol)} is not spoken here: set it to http/json and the endpoint to the collector's port ` +
      'for HTTP, usually 4318; nothing is sent',
  );
  return false;
}

function readSampler(env: Env, remarks: Set<string>): Pick<OtelSettings, 'sampler' | 'ratio'> {
  const asked = env.OTEL_TRACES_SAMPLER?.trim() || 'parentbased_always_on';
  const sampler = SAMPLERS.find((one) => one === asked);
  if (sampler === undefined) {
    remarks.add(
      `OTEL_TRACES_SAMPLER=${shorten(asked)} is not known here, but ${SAMPLERS.join(', ')}: traces are kept as their ` +
        'callers say, those without a caller all',
    );
    return { sampler: 'parentbased_always_on', ratio: 1 };
  }
  const text = env.OTEL_TRACES_SAMPLER_ARG?.trim() || '1';
  const ratio = Number(text);
  if (ratio >= 0 && ratio <= 1) return { sampler, ratio };
  if (sampler.endsWith('ratio'))
    remarks.add(`OTEL_TRACES_SAMPLER_ARG=${shorten(text)} is no number from 0 to 1: 1 is used`);
  return { sampler, ratio: 1 };
}

function isContentRecorded(env: Env, remarks: Set<string>): boolean {
  const name = 'OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT';
  const asked = env[name]?.trim().toLowerCase() || 'false';
  if (['true', 'span_only', 'span_and_event'].includes(asked)) return true;
  if (!['false', 'no_content'].includes(asked))
    remarks.add(`${name}=${shorten(asked)} is not known here, but true and false: no messages are recorded`);
  return false;
}

function readMilliseconds(text: string | undefined, otherwise: number): number {
  const value = Math.round(Number(text));
  if (value >= 1 && value <= LONGEST_MS) return value;
  return otherwise;
}

const shorten = (value: string | undefined) => (value ?? '').slice(0, 64);

/** For what is left to send when the server goes down. */
const FLUSH_TIMEOUT_MS = 2000;

interface TelemetryParts {
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

interface Telemetry {
  /** The adapters as the engine is to have them: their answers are read for spans and metrics. */
  wrapProviders(providers: Providers): Providers;
  /** The same of the gateway's relays. */
  wrapRelays(relays: Relays): Relays;
  /** From now on figures are sent, these of the moment among them. */
  sendMetrics(gauges: () => Promise<MetricGauges>): void;
  close(): Promise<void>;
}

/** Null = telemetry is off. */
export async function startTelemetry(parts: TelemetryParts): Promise<Telemetry | null> {
  const { env, clock, log, secrets } = parts;
  const settings = readOtelSettings(env);
  if (settings === null) return null;
  for (const remark of settings.remarks) log.warn({}, remark);
  const content = settings.content ? createContent(secrets) : null;
  if (content !== null) log.warn({}, 'the messages of models are sent with the traces');
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
  settings: OtelSettings,
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
    scheduledDelayMillis: settings.batch_ms,
  });
  const sampler = createSampler(sdk, settings);
  const provider = new sdk.TracerProvider({ resource, sampler, spanProcessors: [processor] });
  foldSpans(api, provider.getTracer('metis', version), { bus, relay, content, answers, targetOf });
  log.info({ endpoint: new URL(url).origin }, 'traces are sent');
  return provider;
}

async function prepareMetrics(
  { bus, metrics, targetOf, version, clock, log }: TelemetryParts,
  settings: OtelSettings,
  { url, answers }: { readonly url: string; readonly answers: AnswerFacts },
) {
  const [api, sdk, { OTLPMetricExporter }, { toMetricData: metricData }, resource] = await Promise.all([
    import('@opentelemetry/api'),
    import('@opentelemetry/sdk-metrics'),
    import('@opentelemetry/exporter-metrics-otlp-http'),
    import('./metrics.ts'),
    createResource(version),
  ]);
  const genAi = createGenAiMetrics(bus, { answers, targetOf });
  const from = clock.now();
  const reader = new sdk.PeriodicExportingMetricReader({
    exporter: logOutages(new OTLPMetricExporter({ url }), { what: 'metrics', url, log }),
    exportIntervalMillis: settings.interval_ms,
    exportTimeoutMillis: settings.timeout_ms,
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
  if (sampler.startsWith('parentbased_')) return new sdk.ParentBasedSampler({ root });
  return root;
}

interface Exporter<T> {
  export(items: T, done: Parameters<SpanExporter['export']>[1]): void;
  shutdown(): Promise<void>;
  forceFlush(): Promise<void>;
}

/** Logs once that an export fails, and once that it works again. */
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
