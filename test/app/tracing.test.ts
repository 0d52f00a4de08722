// Traces: one delegation as a real collector receives it, and what a server does that has none (18 §2).
import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { toPusd } from '#protocol/money.ts';
import { partsOf } from '../api/gateway/provider.ts';
import { startGateway } from '../api/gateway/world.ts';
import { listen, type Span, startCollector } from '../support/collector.ts';
import { tempFolder } from '../support/engine.ts';
import { type RealOptions, startReal, startStrictFake } from '../support/real-server.ts';
import { registryAt } from '../support/registry-at.ts';
import { until } from '../support/until.ts';
import { loadedBy } from './loaded-packages.ts';
import { address, start, temporaryHome } from './metis.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const PARENT = '00f067aa0ba902b7';
const HEADERS = { traceparent: `00-${TRACE}-${PARENT}-01`, tracestate: 'vendor=value', prefer: 'wait=60' };
/** What any request by `fetch` bears. */
const OF_FETCH = new Set(
  'accept accept-encoding accept-language connection content-length host sec-fetch-mode user-agent'.split(' '),
);
const SECRET = 'the-words-of-the-prompt';

/** An MCP server over HTTP with one tool; keeps the headers of each call of it. */
async function startMcpServer() {
  const calls: http.IncomingHttpHeaders[] = [];
  const others: http.IncomingHttpHeaders[] = [];
  const url = await listen((body, { headers }) => {
    if (body?.method !== 'tools/call') others.push(headers);
    if (body?.id === undefined) return {};
    const answer = (result: object) => ({ jsonrpc: '2.0', id: body.id, result });
    if (body.method === 'initialize') {
      const { protocolVersion } = body.params;
      return answer({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'far', version: '1' } });
    }
    if (body.method === 'tools/list') return answer({ tools: [{ name: 'look', inputSchema: { type: 'object' } }] });
    calls.push(headers);
    return answer({ content: [{ type: 'text', text: 'seen' }] });
  });
  return { url, calls, others };
}

/** A planner that calls the far tool and a worker, which calls it too. */
async function startJob(over: Partial<RealOptions>, mcpUrl: string) {
  const folder = tempFolder();
  const look = { name: 'mcp__far__look', input: {} };
  const usage = { input: 100, cached: 40, creation: 7, output: 5 };
  const fake = await startStrictFake(({ system, results }) => {
    if (results.length > 0) return { text: `done: ${SECRET}`, usage };
    if (system.includes('## Worker mode')) return { tool_calls: [look], usage };
    const input = { tier: 'fast', task: `look at ${SECRET}`, allowed_tools: ['mcp__far__look'] };
    return { tool_calls: [look, { name: 'delegate', input }], usage };
  });
  const server = await startReal({
    folder: path.join(folder, 'data'),
    registry: registryAt(fake),
    wires: ['anthropic'],
    ...over,
    config: { mcp_servers: { far: { transport: 'http', url: mcpUrl } } as never, ...over.config },
  });
  const session = await server.session(folder, 'anthropic:claude-opus-4-7');
  const run = () => server.call('POST', `/sessions/${session}/turns`, { content: SECRET }, HEADERS);
  return { server, fake, session, run };
}

describe('with a collector', () => {
  // Promise 18.5: with a collector a model request holds no header but those of 11.1.
  // Promise 18.2: one trace under the traceparent: planner, delegate, worker, chat, as a real collector receives it; no prompt text.
  // Promise 18.6: spans of a turn's calls.
  test('one delegation is one trace under the turn that was asked for, with tokens and money on chat alone', async () => {
    const collector = await startCollector();
    const mcp = await startMcpServer();
    const env = { OTEL_EXPORTER_OTLP_ENDPOINT: collector.url };
    const { server, fake, session, run } = await startJob({ env }, mcp.url);
    expect((await run()).body).toMatchObject({ status: 'completed' });
    const { cost_so_far_usd, workers_cost_usd } = (await server.call('GET', `/sessions/${session}`)).body;
    await server.close();

    const { spans } = collector;
    expect([[...collector.paths].sort(), [...collector.services]]).toEqual([['/v1/metrics', '/v1/traces'], ['metis']]);
    expect(new Set(spans.map(({ traceId }) => traceId))).toEqual(new Set([TRACE]));
    const byId = new Map(spans.map((span) => [span.spanId, span]));
    const lineOf = (span: Span): string => {
      const parent = byId.get(span.parentSpanId ?? '');
      if (parent === undefined) expect(span.parentSpanId).toBe(PARENT);
      else expect(span.start >= parent.start && span.end <= parent.end, span.name).toBe(true);
      return parent === undefined ? span.name : `${lineOf(parent)} > ${span.name}`;
    };
    const planner = 'invoke_agent planner';
    const worker = `${planner} > execute_tool delegate > invoke_agent worker`;
    const opus = 'chat claude-opus-4-7';
    const haiku = 'chat claude-haiku-4-5';
    expect(spans.map(lineOf).sort()).toEqual(
      [
        planner,
        `${planner} > ${opus}`,
        `${planner} > ${opus}`,
        `${planner} > execute_tool mcp__far__look`,
        `${planner} > execute_tool delegate`,
        worker,
        `${worker} > ${haiku}`,
        `${worker} > ${haiku}`,
        `${worker} > execute_tool mcp__far__look`,
      ].sort(),
    );

    let cost = 0n;
    for (const { name, attributes } of spans) {
      const usage = Object.keys(attributes).filter(
        (key) => key.startsWith('gen_ai.usage.') || key === 'metis.cost.usd',
      );
      if (!name.startsWith('chat ')) {
        expect([name, usage]).toEqual([name, []]);
        continue;
      }
      expect(attributes).toMatchObject({
        'gen_ai.operation.name': 'chat',
        'gen_ai.provider.name': 'anthropic',
        'gen_ai.usage.input_tokens': 147,
        'gen_ai.usage.cache_read.input_tokens': 40,
        'gen_ai.usage.output_tokens': 5,
        'gen_ai.usage.reasoning.output_tokens': 0,
        'gen_ai.request.model': name.slice('chat '.length),
        'gen_ai.request.stream': true,
        'gen_ai.response.model': name.slice('chat '.length),
        'gen_ai.response.id': expect.stringMatching(/^msg_/),
        'server.address': '127.0.0.1',
        'server.port': Number(new URL(fake.anthropicUrl).port),
        'metis.model': `anthropic:${name.slice('chat '.length)}`,
      });
      expect(attributes['gen_ai.usage.cost']).toBe(Number(attributes['metis.cost.usd']));
      cost += toPusd(attributes['metis.cost.usd']);
    }
    expect(cost).toBe(toPusd(cost_so_far_usd) + toPusd(workers_cost_usd));
    expect(JSON.stringify(spans, (_, value) => (typeof value === 'bigint' ? String(value) : value))).not.toContain(
      SECRET,
    );

    // Each call of the far tool carries its own span; what is not a call carries none.
    const callSpans = spans.filter(({ name }) => name === 'execute_tool mcp__far__look').map(({ spanId }) => spanId);
    expect(mcp.calls.map((headers) => headers.traceparent).sort()).toEqual(
      callSpans.map((id) => `00-${TRACE}-${id}-01`).sort(),
    );
    expect(mcp.calls.map((headers) => headers.tracestate)).toEqual(['vendor=value', 'vendor=value']);
    expect(mcp.others.filter((headers) => 'traceparent' in headers)).toEqual([]);
    for (const { headers } of fake.calls) {
      const ours = Object.keys(headers).filter((name) => !OF_FETCH.has(name));
      expect(ours.sort()).toEqual(['anthropic-version', 'content-type', 'x-api-key']);
    }
  });

  // Promise 18.6: spans of the gateway's calls.
  test('a call of the gateway is a chat span like one of a turn, and a failed one says how', async () => {
    const collector = await startCollector();
    const usage = { input: 100, cached: 40, written: 7, output: 5 };
    const env = { OTEL_EXPORTER_OTLP_ENDPOINT: collector.url };
    const { server, post } = await startGateway(
      ({ path: target, body }) =>
        body.max_tokens === 1
          ? { status: 529, raw: '{}' }
          : {
              raw: partsOf(
                { path: target, body: { ...body, model: 'claude-opus-4-7-20260101' } },
                { text: SECRET, usage },
              ),
            },
      { env },
    );
    const ask = (max_tokens: number) =>
      post('/v1/messages', {
        model: 'claude-opus-4-7',
        max_tokens,
        messages: [{ role: 'user', content: SECRET }],
      });
    expect((await ask(50)).status).toBe(200);
    expect((await ask(1)).status).toBe(529);
    const [session] = (await server.client.listSessions({ door: 'gateway' })).sessions;
    await server.close();

    const { spans } = collector;
    expect(spans.map(({ name, parentSpanId }) => [name, parentSpanId ?? ''])).toEqual(
      Array(2).fill(['chat claude-opus-4-7', '']),
    );
    const [whole, failed] = spans.toSorted((a, b) => (a.start < b.start ? -1 : 1));
    expect(whole!.attributes).toMatchObject({
      'gen_ai.operation.name': 'chat',
      'gen_ai.provider.name': 'anthropic',
      'gen_ai.request.model': 'claude-opus-4-7',
      'gen_ai.response.model': 'claude-opus-4-7-20260101',
      'gen_ai.response.id': 'msg_1',
      'server.address': '127.0.0.1',
      'metis.model': 'anthropic:claude-opus-4-7',
      'gen_ai.conversation.id': session!.id,
      'gen_ai.response.finish_reasons': ['end_turn'],
      'gen_ai.usage.input_tokens': 147,
      'gen_ai.usage.cache_read.input_tokens': 40,
      'gen_ai.usage.output_tokens': 5,
      'metis.purpose': 'gateway',
      'metis.cost.usd': session!.cost_so_far_usd,
    });
    expect(whole!.attributes).not.toHaveProperty('gen_ai.request.stream');
    expect(failed!.attributes['error.type']).toBe('rate_limit');
    expect(JSON.stringify(spans, (_, value) => (typeof value === 'bigint' ? String(value) : value))).not.toContain(
      SECRET,
    );
  });

  // Promise 18.2: a dead collector delays no turn.
  test('that is not there delays no turn and no stop by more than 2 s', async () => {
    const mcp = await startMcpServer();
    // It takes connections and never answers.
    const dead = http.createServer(() => {});
    dead.listen(0, '127.0.0.1');
    await once(dead, 'listening');
    onTestFinished(() => void dead.close().closeAllConnections());
    const deaf = `http://127.0.0.1:${(dead.address() as AddressInfo).port}`;
    const { server, run } = await startJob({ env: { OTEL_EXPORTER_OTLP_ENDPOINT: deaf } }, mcp.url);
    const before = performance.now();
    expect((await run()).body).toMatchObject({ status: 'completed' });
    expect((await run()).body).toMatchObject({ status: 'completed' });
    // The exporter alone would wait for 10 s.
    expect(performance.now() - before).toBeLessThan(5000);
    await server.close();
    expect(performance.now() - before).toBeLessThan(9000);
    expect(server.log.filter(({ level }) => level === 'error')).toEqual([]);
  });

  // Promise 18.2: a collector that is away holds up no server that is stopped.
  test('that asks to be tried again holds up no server that is stopped', async () => {
    let asked = 0;
    const collector = http.createServer((request, response) => {
      asked += 1;
      request.resume().on('end', () => response.writeHead(503).end());
    });
    collector.listen(0, '127.0.0.1');
    await once(collector, 'listening');
    onTestFinished(() => void collector.close().closeAllConnections());
    const endpoint = `http://127.0.0.1:${(collector.address() as AddressInfo).port}`;
    const home = temporaryHome();
    onTestFinished(() => home.remove());
    const env = { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint };
    // A machine too busy for one request within the two seconds shows nothing: once more.
    for (let attempt = 0; asked === 0 && attempt < 5; attempt++) {
      const server = start(['serve', '--port', '0'], { home: home.path, env });
      onTestFinished(() => void server.child.kill('SIGKILL'));
      await address(server);
      expect((await server.stop()).code).toBe(0);
    }
    expect(asked).toBeGreaterThan(0);
    // There is room for three in the two seconds for last words; the exporter itself goes on for eight.
    expect(asked).toBeLessThan(4);
  });

  test('that refuses is said once, and once more when it takes spans again', async () => {
    let refuses = true;
    const server = http.createServer((request, response) => {
      request.resume().on('end', () => response.writeHead(refuses ? 400 : 200).end('{}'));
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    onTestFinished(() => void server.close().closeAllConnections());
    const { port } = server.address() as AddressInfo;
    const mcp = await startMcpServer();
    const env = { OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${port}/`, OTEL_BSP_SCHEDULE_DELAY: '20' };
    const job = await startJob({ env }, mcp.url);
    const said = () =>
      job.server.log.filter(({ msg }) => msg.startsWith('traces ')).map(({ level, msg }) => `${level} ${msg}`);
    await job.run();
    await until(() => said().length === 2);
    await job.run();
    refuses = false;
    await job.run();
    await until(() => said().length === 3);
    expect(said()).toEqual([
      'info traces are sent',
      'warn traces cannot be sent and are lost',
      'info traces are sent again',
    ]);
  });
});

describe('without OTEL_*', () => {
  // Promise 18.5: without a collector a model request holds no traceparent; MCP servers get it.
  test("the turn's trace is handed to MCP servers over HTTP as it came, and to nobody else", async () => {
    const mcp = await startMcpServer();
    const { fake, run, server } = await startJob({}, mcp.url);
    await run();
    expect(mcp.calls.map(({ traceparent, tracestate }) => [traceparent, tracestate])).toEqual(
      Array(2).fill([HEADERS.traceparent, HEADERS.tracestate]),
    );
    expect(mcp.others.filter((headers) => 'traceparent' in headers)).toEqual([]);
    expect(fake.calls.length).toBe(4);
    for (const { headers } of fake.calls) expect(Object.keys(headers)).not.toContain('traceparent');
    // What is no trace context is passed over.
    const session = await server.session(tempFolder(), 'anthropic:claude-opus-4-7');
    for (const traceparent of ['x', `00-${'0'.repeat(32)}-${PARENT}-01`, `ff-${TRACE}-${PARENT}-01`]) {
      await server.call('POST', `/sessions/${session}/turns`, { content: 'go' }, { ...HEADERS, traceparent });
    }
    expect(mcp.calls.slice(2).filter((headers) => 'traceparent' in headers)).toEqual([]);
  });

  // Promise 18.2: without OTEL_* no OpenTelemetry module is loaded.
  test('no module of OpenTelemetry is loaded, and with it they are', async () => {
    const loaded = async (env: Record<string, string>) => {
      const names = await loadedBy(['serve', '--port', '0'], async () => {}, env);
      return [...names].filter((name) => name.startsWith('@opentelemetry/')).length;
    };
    const ENDPOINT = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9' };
    const environments = [
      {},
      { ...ENDPOINT, OTEL_SERVICE_NAME: 'x', OTEL_SDK_DISABLED: 'true' },
      { ...ENDPOINT, OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' },
      ENDPOINT,
    ];
    const counts = await Promise.all(environments.map(loaded));
    expect(counts).toEqual([0, 0, 0, expect.toSatisfy((count: number) => count > 3)]);
  });
});
