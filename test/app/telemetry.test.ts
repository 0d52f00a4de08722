// What the standard OTEL_* variables ask for, as a real collector receives it: metrics, content, sampling (18 §2).
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { startCollector } from '../support/collector.ts';
import { tempFolder } from '../support/engine.ts';
import type { Parsed } from '../support/http.ts';
import { startReal, startStrictFake } from '../support/real-server.ts';
import { KEYS, registryAt } from '../support/registry-at.ts';
import { address, type Started, start, temporaryHome } from './metis.ts';

const SAID = 'the-words-of-the-prompt';
const ADVICE = 'look for it';
const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const usage = { input: 100, cached: 40, creation: 7, output: 5 };

/** A planner with a worker of its own, told by a collector: one turn that is completed, and one that fails where `fails`. */
async function play(
  env: Record<string, string>,
  how: { readonly prompt?: string; readonly headers?: Record<string, string>; readonly fails?: boolean } = {},
) {
  const collector = await startCollector();
  const folder = tempFolder();
  const fake = await startStrictFake(({ system, user, results }) => {
    if (user === 'fail') return { status: 400, error: { type: 'invalid_request_error', message: 'no' } };
    if (results.length > 0 || system.includes('## Worker mode')) return { text: `done: ${SAID}`, usage };
    return { tool_calls: [{ name: 'delegate', input: { tier: 'fast', task: ADVICE } }], usage };
  });
  const server = await startReal({
    folder: path.join(folder, 'data'),
    registry: registryAt(fake),
    wires: ['anthropic'],
    env: Object.fromEntries(
      Object.entries(env).map(([name, value]) => [name, value.replace('COLLECTOR', collector.url)]),
    ),
  });
  const session = await server.session(folder, 'anthropic:claude-opus-4-7');
  const turn = (content: string) =>
    server.call('POST', `/sessions/${session}/turns`, { content }, { prefer: 'wait=60', ...how.headers });
  expect((await turn(how.prompt ?? SAID)).body).toMatchObject({ status: 'completed' });
  if (how.fails) expect((await turn('fail')).body).toMatchObject({ status: 'failed' });
  const page = (await server.call('GET', '/metrics')).body as string;
  await server.close();
  const said = server.log.filter(({ level, msg }) => level === 'warn' && msg.includes('OTEL_')).map(({ msg }) => msg);
  return { ...collector, page, log: server.log, said };
}
const ALL = { OTEL_EXPORTER_OTLP_ENDPOINT: 'COLLECTOR' };

describe('metrics', () => {
  // Promise 18.2: metrics arrive at a real collector with the figures of /metrics.
  test('by OTLP are the figures of /metrics, each of them, since the start', async () => {
    const { page, figures } = await play(ALL, { fails: true });
    const samples = page.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
    const written = (name: string, attributes: object, more = '') => {
      const labels = Object.entries(attributes).map(([key, value]) => `${key}="${value}"`);
      const all = [...labels, ...(more === '' ? [] : [more])];
      return `${name}${all.length === 0 ? '' : `{${all.join(',')}}`}`;
    };
    const received = figures.flatMap(({ name, kind, attributes, value, count, bucketCounts, explicitBounds }) => {
      if (!name.startsWith('metis_')) return [];
      if (kind !== 'histogram') return [`${written(name, attributes)} ${value}`];
      let below = 0;
      return [
        ...bucketCounts!.map((each, i) => {
          below += each;
          const bound = explicitBounds![i] ?? '+Inf';
          return `${written(`${name}_bucket`, attributes, `le="${bound}"`)} ${below}`;
        }),
        `${written(`${name}_sum`, attributes)} ${value}`,
        `${written(`${name}_count`, attributes)} ${count}`,
      ];
    });
    // Between the page and the last export the server commits and waits: of these, the names and labels are the same.
    const still = (line: string) => (/^metis_(?:commit|event_loop)/.test(line) ? line.replace(/ \S+$/, '') : line);
    expect(received.map(still).sort()).toEqual(samples.map(still).sort());
    expect(samples.length).toBeGreaterThan(30);
    expect(samples.join('\n')).toContain('metis_llm_errors_total{model="anthropic:claude-opus-4-7"');
    expect(new Set(figures.map(({ kind, temporality }) => `${kind} ${temporality}`))).toEqual(
      new Set(['sum 2', 'gauge undefined', 'histogram 2']),
    );
  });

  // Promise 18.6: metrics of calls.
  test('have tokens and times of model calls under the names of the GenAI conventions too', async () => {
    const { figures } = await play(ALL, { fails: true });
    const of = (name: string) =>
      figures
        .filter((one) => one.name === name)
        .map(({ unit, count, value, attributes: { 'gen_ai.operation.name': operation, ...rest } }) => {
          expect([operation, rest['gen_ai.provider.name']]).toEqual(['chat', 'anthropic']);
          const model = String(rest['gen_ai.request.model']).replace('claude-', '');
          expect([rest['server.address'], rest['gen_ai.response.model'] ?? rest['gen_ai.request.model']]).toEqual([
            '127.0.0.1',
            rest['gen_ai.request.model'],
          ]);
          return [model, rest['gen_ai.token.type'] ?? rest['error.type'] ?? 'well', unit, count, value] as const;
        });
    // The planner called twice, the worker once; cached tokens are among the input.
    expect(of('gen_ai.client.token.usage')).toEqual([
      ['opus-4-7', 'input', '{token}', 2, 294],
      ['opus-4-7', 'output', '{token}', 2, 10],
      ['haiku-4-5', 'input', '{token}', 1, 147],
      ['haiku-4-5', 'output', '{token}', 1, 5],
    ]);
    const times = of('gen_ai.client.operation.duration');
    expect(times.map(([model, outcome, unit, count]) => [model, outcome, unit, count])).toEqual(
      expect.arrayContaining([
        ['opus-4-7', 'well', 's', 2],
        ['haiku-4-5', 'well', 's', 1],
        ['opus-4-7', 'invalid_request', 's', 1],
      ]),
    );
    expect(times).toHaveLength(3);
  });
});

describe('what is said', () => {
  const CAPTURE = { ...ALL, OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT: 'true' };
  const LONG = `${SAID} with ${KEYS.anthropic} and ${'much of it '.repeat(2000)}`;

  test('stands on chat spans where it is switched on, without keys and cut', async () => {
    const { spans, log } = await play(CAPTURE, { prompt: LONG });
    const chats = spans.filter(({ name }) => name.startsWith('chat '));
    const read = (name: string) => chats.map(({ attributes }) => JSON.parse(attributes[name]));
    const texts = read('gen_ai.input.messages').map((messages) => messages.at(-1));
    expect(texts).toEqual(
      expect.arrayContaining([
        { role: 'user', parts: [{ type: 'text', content: expect.stringContaining(SAID) }] },
        expect.objectContaining({
          parts: [expect.objectContaining({ type: 'tool_call_response', response: expect.stringContaining(SAID) })],
        }),
      ]),
    );
    expect(read('gen_ai.output.messages')).toEqual(
      expect.arrayContaining([
        [expect.objectContaining({ role: 'assistant', finish_reason: 'end_turn' })],
        [expect.objectContaining({ parts: [expect.objectContaining({ type: 'tool_call', name: 'delegate' })] })],
      ]),
    );
    // A worker's task stands at the end of its instructions.
    const instructions = read('gen_ai.system_instructions').map((parts) => parts.at(-1).content);
    expect(instructions.filter((one) => one.includes(ADVICE))).toHaveLength(1);
    const everything = JSON.stringify(spans, (_, value) => (typeof value === 'bigint' ? String(value) : value));
    expect(everything).not.toContain(KEYS.anthropic);
    const lengths = texts.flatMap(({ parts }) => parts.map((part: Parsed) => (part.content ?? part.response).length));
    expect(Math.max(...lengths)).toBe(2000);
    for (const { name, attributes } of spans.filter((span) => !chats.includes(span)))
      expect(JSON.stringify(attributes), name).not.toContain(SAID);
    expect(log.filter(({ msg }) => msg.includes('are sent with the traces'))).toHaveLength(1);
  });
});

describe('of OTEL_*', () => {
  test.each([
    ['OTEL_SDK_DISABLED', { ...ALL, OTEL_SDK_DISABLED: 'TRUE' }, []],
    ['both exporters set to none', { ...ALL, OTEL_TRACES_EXPORTER: 'none', OTEL_METRICS_EXPORTER: 'none' }, []],
    ['OTEL_TRACES_EXPORTER=none', { ...ALL, OTEL_TRACES_EXPORTER: 'none' }, ['/v1/metrics']],
    ['OTEL_METRICS_EXPORTER=none', { ...ALL, OTEL_METRICS_EXPORTER: 'none' }, ['/v1/traces']],
    ['an endpoint of metrics alone', { OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: 'COLLECTOR/own' }, ['/own']],
  ])('%s sends what it says, in silence', async (_, env, paths) => {
    const got = await play(env as Record<string, string>);
    expect([...got.paths]).toEqual(paths);
    expect(got.said).toEqual([]);
  });

  test.each([
    ['OTEL_EXPORTER_OTLP_PROTOCOL=grpc', { OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' }, /=grpc is not spoken here: .*4318/],
    ['OTEL_TRACES_EXPORTER=zipkin', { OTEL_TRACES_EXPORTER: 'zipkin', OTEL_METRICS_EXPORTER: 'none' }, /otlp and none/],
    [
      'an endpoint without http://',
      { OTEL_EXPORTER_OTLP_ENDPOINT: 'localhost:4317', OTEL_METRICS_EXPORTER: 'none' },
      /OTEL_EXPORTER_OTLP_ENDPOINT is no address that starts with http/,
    ],
  ])('%s is answered with one clear line, and nothing is sent', async (_, env, line) => {
    const { paths, said } = await play({ ...ALL, ...(env as Record<string, string>) });
    expect([...paths]).toEqual([]);
    expect(said).toEqual([expect.stringMatching(line)]);
  });

  const sampled = (sampler: string, flags: string | null) =>
    play(
      { ...ALL, OTEL_TRACES_SAMPLER: sampler, OTEL_TRACES_SAMPLER_ARG: '0' },
      { headers: flags === null ? {} : { traceparent: `00-${TRACE}-00f067aa0ba902b7-${flags}` } },
    );
  test.each([
    ['always_off', '01', 0],
    ['always_on', '00', 6],
    ['traceidratio', null, 0],
    ['parentbased_traceidratio', '01', 6],
    ['parentbased_always_on', '00', 0],
  ])('OTEL_TRACES_SAMPLER=%s with the flags %s keeps %i spans', async (sampler, flags, kept) => {
    const { spans, said } = await sampled(sampler, flags);
    expect(spans).toHaveLength(kept);
    expect(said).toEqual([]);
  });

  test('what is not to be had is one clear line each, and the rest goes on', async () => {
    const { spans, said, figures } = await play({
      ...ALL,
      OTEL_EXPORTER_OTLP_PROTOCOL: 'http/protobuf',
      OTEL_TRACES_SAMPLER: 'jaeger_remote',
      OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE: 'delta',
      OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT: 'event_only',
    });
    expect(said.map((line) => line.split(/ is |: /)[0])).toEqual([
      'OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf',
      'OTEL_TRACES_SAMPLER=jaeger_remote',
      'OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=event_only',
      'OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=delta',
    ]);
    expect(spans).toHaveLength(6);
    expect(figures.length).toBeGreaterThan(10);
  });
});

describe('a server process', () => {
  let home: ReturnType<typeof temporaryHome>;
  let server: Started | null = null;
  beforeEach(() => {
    home = temporaryHome();
  });
  afterEach(async () => {
    await server?.stop('SIGKILL');
    home.remove();
  });

  test('sends its name, its attributes and the headers that OTEL_* give it', async () => {
    const collector = await startCollector();
    const env = {
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_EXPORTER_OTLP_HEADERS: 'x-tenant=blue,authorization=Bearer%20abc',
      OTEL_SERVICE_NAME: 'planner-farm',
      OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment=test,service.name=not-this',
    };
    server = start(['serve', '--port', '0'], { home: home.path, env });
    const url = await address(server);
    const post = async (target: string, body: object) => {
      const headers = { 'content-type': 'application/json', prefer: 'wait=60' };
      return (await fetch(`${url}${target}`, { method: 'POST', headers, body: JSON.stringify(body) })).json();
    };
    const { id } = (await post('/sessions', { workspace_path: home.path })) as { id: string };
    await post(`/sessions/${id}/turns`, { content: 'hello' });
    await server.stop();
    expect([...collector.paths].sort()).toEqual(['/v1/metrics', '/v1/traces']);
    for (const { headers, resource } of collector.requests) {
      expect(headers).toMatchObject({ 'x-tenant': 'blue', authorization: 'Bearer abc' });
      expect(resource).toMatchObject({
        'service.name': 'planner-farm',
        'deployment.environment': 'test',
        'service.version': expect.any(String),
      });
    }
  });
});
