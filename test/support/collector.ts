// A collector that speaks OTLP over HTTP, in JSON: what was sent to it, decoded.
import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';
import type { Parsed } from './http.ts';

export interface Span {
  readonly name: string;
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly start: bigint;
  readonly end: bigint;
  readonly attributes: Readonly<Record<string, Parsed>>;
}

/** One data point of a metric. */
export interface Figure {
  readonly name: string;
  readonly unit: string;
  readonly kind: 'sum' | 'gauge' | 'histogram';
  /** 2 = since the start; undefined for a gauge. */
  readonly temporality: number | undefined;
  readonly attributes: Readonly<Record<string, Parsed>>;
  /** Of a histogram its `sum`. */
  readonly value: number;
  /** Of a histogram. */
  readonly count?: number;
  readonly bucketCounts?: readonly number[];
  readonly explicitBounds?: readonly number[];
}

/** Answers every request by `answer`, given its JSON; closed with the test. */
export async function listen(
  answer: (body: Parsed, request: http.IncomingMessage) => object | Promise<object>,
): Promise<string> {
  const server = http.createServer(async (request, response) => {
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part);
    const text = Buffer.concat(parts).toString('utf8');
    const body = await answer(text === '' ? null : JSON.parse(text), request);
    const status = request.method === 'POST' ? (Object.keys(body).length === 0 ? 202 : 200) : 405;
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close().closeAllConnections());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

export async function startCollector() {
  const spans: Span[] = [];
  /** As the last export said. */
  const figures: Figure[] = [];
  const paths = new Set<string>();
  const services = new Set<string>();
  const requests: { readonly headers: http.IncomingHttpHeaders; readonly resource: Parsed }[] = [];
  const url = await listen((body, { headers, url: path }) => {
    paths.add(path!);
    for (const one of (body.resourceSpans ?? body.resourceMetrics) as Parsed[]) {
      const resource = valuesOf(one.resource.attributes);
      services.add(resource['service.name']);
      requests.push({ headers, resource });
      spans.push(...((one.scopeSpans ?? []) as Parsed[]).flatMap((scope) => scope.spans.map(spanOf)));
      if (one.scopeMetrics === undefined) continue;
      figures.length = 0;
      figures.push(...(one.scopeMetrics as Parsed[]).flatMap((scope) => scope.metrics.flatMap(figuresOf)));
    }
    return { partialSuccess: {} };
  });
  return { url, spans, figures, paths, services, requests };
}

function spanOf(one: Parsed): Span {
  const { startTimeUnixNano: start, endTimeUnixNano: end, attributes } = one;
  return { ...one, start: BigInt(start), end: BigInt(end), attributes: valuesOf(attributes) };
}

function figuresOf({ name, unit, ...metric }: Parsed): Figure[] {
  const kind = (['sum', 'gauge', 'histogram'] as const).find((one) => one in metric)!;
  const { dataPoints, aggregationTemporality: temporality } = metric[kind];
  return (dataPoints as Parsed[]).map(({ attributes, asInt, asDouble, sum, count, bucketCounts, explicitBounds }) => ({
    ...{ name, unit, kind, temporality, attributes: valuesOf(attributes), value: Number(asInt ?? asDouble ?? sum) },
    ...(kind === 'histogram' ? { count: Number(count), bucketCounts: bucketCounts.map(Number), explicitBounds } : {}),
  }));
}

function valuesOf(attributes: Parsed[]): Record<string, Parsed> {
  const plain = (value: Parsed): Parsed =>
    'arrayValue' in value ? value.arrayValue.values.map(plain) : Object.values(value)[0];
  return Object.fromEntries(attributes.map(({ key, value }) => [key, plain(value)]));
}
