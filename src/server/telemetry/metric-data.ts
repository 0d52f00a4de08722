// Our figures in the shape that OpenTelemetry's exporter takes: cumulative since the start.
import type { HrTime } from '@opentelemetry/api';
import type { MetricData } from '@opentelemetry/sdk-metrics';
import type { Family } from './series.ts';

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
  return family.type === 'gauge'
    ? { ...base, dataPointType: sdk.DataPointType.GAUGE, dataPoints }
    : { ...base, dataPointType: sdk.DataPointType.SUM, dataPoints, isMonotonic: true };
}

function toHrTime(ms: number): HrTime {
  const seconds = Math.floor(ms / 1000);
  return [seconds, Math.round((ms - seconds * 1000) * 1e6)];
}
