// A test's server: the engine of `engine.ts` behind real HTTP on a free port, and a client for its sockets.
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';
import { WebSocket } from 'ws';
import type { Trees } from '#core/ports/tree-ownership.ts';
import type { Patience } from '#http/forward/other-nodes.ts';
import type { HttpApp } from '#http/http-app.ts';
import { createHttpServer } from '#http/http-server.ts';
import type { Transient } from '#protocol/delta.ts';
import { type Message, plainMetadata } from '#protocol/message.ts';
import type { Session } from '#protocol/session.ts';
import { createMcpDoor } from '#server/compose-mcp.ts';
import { createCredentials } from '#server/credentials.ts';
import { describeSettings } from '#server/settings-report.ts';
import { createMetrics } from '#server/telemetry/metrics.ts';
import { createTraceRelay } from '#server/telemetry/trace-relay.ts';
import { makeSecret } from '#server/tokens.ts';
import { createPriceVersionReader } from '#store/read/store.ts';
import { createReads } from '#store/sqlite/connection/reads.ts';
import { createAnalytics } from '#store/sqlite/report/analytics.ts';
import { watchAnswers } from './contract.ts';
import { type EngineOptions, startEngine, type TestEngine } from './engine.ts';

/** JSON from the wire: a test looks into it freely and asserts what it finds. */
export type Parsed = ReturnType<typeof JSON.parse>;
type Headers = Readonly<Record<string, string>>;

export interface Answer {
  readonly status: number;
  readonly headers: Response['headers'];
  readonly body: Parsed;
}

export interface TestDoor {
  readonly app: HttpApp;
  /** `operationId status` of every answer so far. */
  readonly answered: ReadonlySet<string>;
  readonly base: string;
  readonly port: number;
  /** From now on every request is refused. */
  drain(): void;
  /** One request; `body` goes as JSON. */
  call(method: string, path: string, body?: unknown, headers?: Headers): Promise<Answer>;
  connect(path: string, headers?: Headers): TestSocket;
}

export type TestServer = TestEngine & TestDoor;

export interface DoorOptions {
  /** Whether `/mcp` answers too. */
  readonly mcp?: boolean;
  /** Of an engine that is one of several. */
  readonly trees?: Trees;
  readonly patience?: Patience;
  /** Free unless told. */
  readonly port?: number;
}

export interface TestSocket {
  readonly ws: WebSocket;
  /** Parsed frames so far. */
  readonly frames: Parsed[];
  readonly closed: Promise<{ readonly code: number; readonly reason: string }>;
  send(frame: unknown): void;
  /** The first frame, received or to come, that matches. Rejects when the socket closes before. */
  frame(match: (frame: Parsed) => boolean): Promise<Parsed>;
  /** The first event of this type. */
  event(type: string, match?: (event: Parsed) => boolean): Promise<Parsed>;
  /** Types of the events so far. */
  types(): string[];
}

export async function startServer(options: Partial<EngineOptions> = {}): Promise<TestServer> {
  // A turn that a test leaves hanging is cut at once when the test ends.
  const config = { shutdown: { drain_seconds: 0 }, ...options.config };
  const test = await startEngine({ scenario: { version: 1, rules: [] }, ...options, config });
  return { ...test, ...(await openDoor(test)) };
}

/** A server of its own in front of the engine. */
export async function openDoor(test: TestEngine, options: DoorOptions = {}): Promise<TestDoor> {
  const { trees, patience } = options;
  let draining = false;
  const { engine } = test;
  const mcp = options.mcp ? createMcpDoor(engine.clock, '0.0.0-test', engine.config, engine.trees) : null;
  const app = createHttpServer({
    mcp: mcp?.fetch,
    engine: trees === undefined ? test.engine : { ...test.engine, trees },
    ...(patience === undefined ? {} : { patience }),
    analytics: createAnalytics(test.db.reader),
    priceVersions: createPriceVersionReader(createReads(test.db.reader)),
    metrics: createMetrics(
      test.engine.bus,
      test.engine.registry.models.map(({ id }) => id),
    ).text,
    settings: () =>
      describeSettings({
        config: test.engine.config,
        dataDir: '/data',
        keysFile: '/data/.env',
        credentials: createCredentials({}),
        adapters: new Map(),
        env: {},
        secrets: test.engine.secrets,
      }),
    traces: createTraceRelay(test.engine.bus),
    makeSecret,
    version: '0.0.0-test',
    draining: () => draining,
  });
  const { answered } = watchAnswers(app);
  await app.listen({ host: '127.0.0.1', port: options.port ?? 0 });
  onTestFinished(() => app.close());
  const { port } = app.server.address() as AddressInfo;
  const base = `http://127.0.0.1:${port}`;
  mcp?.setAddress(base);
  onTestFinished(() => mcp?.close());
  return {
    app,
    answered,
    base,
    port,
    drain: () => {
      draining = true;
    },
    call: (method, path, body, headers) => request(`${base}${path}`, method, body, headers),
    connect: (path, headers) => testSocket(`ws://127.0.0.1:${port}${path}`, headers),
  };
}

async function request(url: string, method: string, body: unknown, headers: Headers = {}): Promise<Answer> {
  const sent = body === undefined ? {} : { body: JSON.stringify(body) };
  const type: Headers = body === undefined ? {} : { 'content-type': 'application/json' };
  const response = await fetch(url, { method, headers: { ...type, ...headers }, ...sent });
  return answerOf(response);
}

/** JSON parsed, an empty body as null, anything else as its text. */
export async function answerOf(response: Response): Promise<Answer> {
  const { status, headers } = response;
  const text = await response.text();
  const isJson = headers.get('content-type')?.startsWith('application/json') === true;
  return { status, headers, body: text === '' ? null : isJson ? JSON.parse(text) : text };
}

export function testSocket(url: string, headers: Headers = {}): TestSocket {
  const ws = new WebSocket(url, { headers });
  const frames: Parsed[] = [];
  const waiting = new Set<() => void>();
  const wake = () => {
    for (const look of [...waiting]) look();
  };
  ws.on('message', (data) => {
    frames.push(JSON.parse(String(data)));
    wake();
  });
  // A refused upgrade also closes; the status is read from `unexpected-response` where a test wants it.
  ws.on('error', () => {});
  const closed = new Promise<{ code: number; reason: string }>((resolve) => {
    ws.on('close', (code, reason) => {
      resolve({ code, reason: String(reason) });
      wake();
    });
  });
  onTestFinished(() => ws.terminate());

  const frame: TestSocket['frame'] = (match) =>
    new Promise((resolve, reject) => {
      let seen = 0;
      const look = () => {
        const found = frames.slice(seen).find(match);
        seen = frames.length;
        if (found === undefined && ws.readyState !== WebSocket.CLOSED) return;
        waiting.delete(look);
        if (found === undefined) reject(new Error(`closed before the frame came: ${JSON.stringify(frames)}`));
        else resolve(found);
      };
      waiting.add(look);
      look();
    });
  return {
    ws,
    frames,
    closed,
    send: (value) => {
      const text = typeof value === 'string' ? value : JSON.stringify(value);
      if (ws.readyState === WebSocket.OPEN) ws.send(text);
      else ws.once('open', () => ws.send(text));
    },
    frame,
    event: async (type, match = () => true) =>
      (await frame((f) => f.type === 'event' && f.event.type === type && match(f.event))).event,
    types: () => frames.filter((f) => f.type === 'event').map((f) => f.event.type),
  };
}

/** One large frame: a user's message of this many characters, as if somebody had sent it. */
export function appended({ engine }: TestEngine, sessionId: Session['id'], length: number): Transient {
  const message: Message = {
    id: engine.ids.message(),
    session_id: sessionId,
    turn_id: null,
    role: 'user',
    content: [{ type: 'text', text: 'x'.repeat(length) }],
    metadata: plainMetadata(),
    created_at: '2026-01-01T00:00:00.000Z',
  };
  return {
    session_id: sessionId,
    turn_id: null,
    timestamp: 0,
    delta: { type: 'message.appended', payload: { message } },
  };
}

/** The HTTP answer to an upgrade that is refused. */
export async function refusedUpgrade(url: string, headers: Headers = {}): Promise<{ status: number; body: Parsed }> {
  const ws = new WebSocket(url, { headers });
  ws.on('error', () => {});
  const [, response] = await once(ws, 'unexpected-response');
  const parts: Buffer[] = [];
  for await (const part of response) parts.push(part);
  return { status: response.statusCode, body: JSON.parse(Buffer.concat(parts).toString('utf8')) };
}
