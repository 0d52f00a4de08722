// What the standard `OTEL_*` variables ask for; what is asked for and not to be had is one sentence each (18 §2).

export type Env = Readonly<Record<string, string | undefined>>;

export const SAMPLERS = [
  'always_on',
  'always_off',
  'traceidratio',
  'parentbased_always_on',
  'parentbased_always_off',
  'parentbased_traceidratio',
] as const;

export interface OtelSettings {
  /** Where each goes; null = it is not sent. */
  readonly traces: string | null;
  readonly metrics: string | null;
  readonly sampler: (typeof SAMPLERS)[number];
  /** Of the traces, for the samplers by ratio. */
  readonly ratio: number;
  /** What was said is recorded too. */
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
export function readOtelSettings(env: Env): OtelSettings | null {
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
  const own = `${BASE}_${signal}_ENDPOINT`;
  const name = env[own] ? own : `${BASE}_ENDPOINT`;
  const base = env[`${BASE}_ENDPOINT`] || (exporter === null ? null : LOCAL);
  const url = env[own] || (base === null ? null : `${base.replace(/\/+$/, '')}/v1/${what}`);
  if (url === null) return null;
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
    remarks.add(`${name} is no address that starts with http:// or https://: no ${what} are sent`);
    return null;
  }
  return isKnownProtocol(env, signal, remarks) ? url : null;
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
  const usable = ratio >= 0 && ratio <= 1;
  if (!usable && sampler.endsWith('ratio'))
    remarks.add(`OTEL_TRACES_SAMPLER_ARG=${shorten(text)} is no number from 0 to 1: 1 is used`);
  return { sampler, ratio: usable ? ratio : 1 };
}

function isContentRecorded(env: Env, remarks: Set<string>): boolean {
  const name = 'OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT';
  const asked = env[name]?.trim().toLowerCase() || 'false';
  if (['true', 'span_only', 'span_and_event'].includes(asked)) return true;
  if (!['false', 'no_content'].includes(asked))
    remarks.add(`${name}=${shorten(asked)} is not known here, but true and false: nothing of what is said is recorded`);
  return false;
}

function readMilliseconds(text: string | undefined, otherwise: number): number {
  const value = Math.round(Number(text));
  return value >= 1 && value <= LONGEST_MS ? value : otherwise;
}

const shorten = (value: string | undefined) => (value ?? '').slice(0, 64);
