// A whole server, built as `metis serve` builds it, whose real adapters talk to a fake provider on the loopback.
import fs from 'node:fs';
import path from 'node:path';
import { onTestFinished } from 'vitest';
import { createMetisClient, type MetisClient } from '#client/client.ts';
import type { Send } from '#models/http/provider-http.ts';
import type { Clock } from '#protocol/clock.ts';
import { defaultConfig } from '#protocol/config.ts';
import type { Delta } from '#protocol/delta.ts';
import type { AnyEvent } from '#protocol/event.ts';
import type { Turn } from '#protocol/turn.ts';
import { createServer, type RunningServer } from '#server/compose.ts';
import { createCredentials } from '#server/credentials.ts';
import { createLogger } from '#server/log.ts';
import { contractFault } from './contract.ts';
import { type ConfigOver, mergeConfig } from './engine.ts';
import { type FakeProvider, startFakeProvider } from './fake-provider.ts';
import { type Answer, answerOf, type Parsed } from './http.ts';
import { newDatabase } from './new-database.ts';
import { priceFileA } from './prices.ts';
import { KEYS, WIRES, type Wire } from './registry-at.ts';
import { strictly } from './wire-rules.ts';

export const ROOT = path.resolve(import.meta.dirname, '../..');
export interface RealOptions {
  /** Data folder: the same again is the same database. */
  readonly folder: string;
  /** Text of the registry file. */
  readonly registry: string;
  /** Texts of price files, fixture table A unless told: the first is the base. */
  readonly prices?: readonly string[];
  readonly config?: ConfigOver;
  /** Adapters that get a key, both unless told. */
  readonly wires?: readonly Wire[];
  readonly send?: Send;
  readonly clock?: Clock;
  /** Of the server's environment, beside the path. */
  readonly env?: Readonly<Record<string, string>>;
}

export interface RealServer extends RunningServer {
  readonly url: string;
  readonly client: MetisClient;
  /** Every log line so far, down to trace, as it would stand on stderr. */
  readonly log: { level: string; msg: string; [field: string]: Parsed }[];
  readonly events: AnyEvent[];
  readonly deltas: { readonly session_id: string; readonly delta: Delta }[];
  call(method: string, path: string, body?: unknown, headers?: Readonly<Record<string, string>>): Promise<Answer>;
  session(workspace: string, model: string | null, rest?: object): Promise<string>;
  /** Submits over HTTP and waits for the end. */
  turn(sessionId: string, content: unknown): Promise<Turn>;
  /** What `look` finds, now or after a batch to come. */
  until<T>(look: () => T | undefined): Promise<T>;
  /** Past or to come. */
  event(type: AnyEvent['type'], match?: (event: AnyEvent) => boolean): Promise<AnyEvent>;
}

/** A fake that refuses what the real providers refuse; closed with the test. */
export async function startStrictFake(answer: Parameters<typeof strictly>[0]): Promise<FakeProvider> {
  const fake = await startFakeProvider(strictly(answer));
  onTestFinished(() => fake.close());
  return fake;
}

export async function startReal(options: RealOptions): Promise<RealServer> {
  const { folder } = options;
  fs.mkdirSync(folder, { recursive: true });
  const registry = path.join(folder, 'registry.yaml');
  fs.writeFileSync(registry, options.registry);
  const tables = (options.prices ?? [priceFileA()]).map((text, i) => {
    const file = path.join(folder, `prices-${i}.json`);
    fs.writeFileSync(file, text);
    return file;
  });
  const ours: ConfigOver = {
    registry: { path: registry },
    pricing: { tables },
    shutdown: { drain_seconds: 0 },
    tool_confirmation: { default: { none: 'auto', read: 'auto', write: 'auto', execute: 'auto', network: 'auto' } },
  };
  const config = mergeConfig(mergeConfig(defaultConfig(folder), ours), options.config ?? {});
  config.server.port = 0;
  newDatabase(config.storage.db_path);
  const keys = Object.fromEntries((options.wires ?? WIRES).map((wire) => [wire, KEYS[wire]]));
  const credentials = createCredentials({}, keys);
  const log: RealServer['log'] = [];
  const server = await createServer({
    config,
    credentials,
    log: createLogger('trace', () => credentials.secrets, { write: (line) => void log.push(JSON.parse(line)) }),
    packageDir: ROOT,
    version: '0.0.0-test',
    env: { PATH: process.env.PATH, ...options.env },
    dataDir: folder,
    keysFile: path.join(folder, '.env'),
    ...(options.send ? { send: options.send } : {}),
    ...(options.clock ? { clock: options.clock } : {}),
  });
  onTestFinished(() => server.close());

  const events: AnyEvent[] = [];
  const deltas: RealServer['deltas'] = [];
  const waiting = new Set<() => void>();
  server.engine.bus.subscribe('test', (items) => {
    for (const item of items) {
      if (item.kind === 'event') events.push(item.event as AnyEvent);
      else deltas.push({ session_id: item.transient.session_id, delta: item.transient.delta });
    }
    for (const wake of [...waiting]) wake();
  });
  const until = <T>(look: () => T | undefined): Promise<T> =>
    new Promise((resolve) => {
      const wake = () => {
        const found = look();
        if (found === undefined) return;
        waiting.delete(wake);
        resolve(found);
      };
      waiting.add(wake);
      wake();
    });
  const { url } = await server.listen();
  const call: RealServer['call'] = async (method, target, body, headers = {}) => {
    const response = await fetch(`${url}${target}`, {
      method,
      headers: { ...(body === undefined ? {} : { 'content-type': 'application/json' }), ...headers },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const copy = response.clone();
    const fault = contractFault({
      method,
      target,
      status: response.status,
      type: response.headers.get('content-type') ?? '',
      text: await copy.text(),
    });
    if (fault !== null) throw new Error(`not as the OpenAPI document says: ${fault}`);
    return answerOf(response);
  };
  return {
    ...server,
    url,
    client: createMetisClient({ baseUrl: url }),
    log,
    events,
    deltas,
    call,
    until,
    event: (type, match = () => true) => until(() => events.find((e) => e.type === type && match(e))),
    async session(workspace, model, rest = {}) {
      const body = { workspace_path: workspace, ...(model === null ? {} : { initial_active_model: model }), ...rest };
      const { status, body: made } = await call('POST', '/sessions', body);
      if (status !== 201) throw new Error(JSON.stringify(made));
      return made.id;
    },
    async turn(sessionId, content) {
      const answer = await call('POST', `/sessions/${sessionId}/turns`, { content }, { prefer: 'wait=60' });
      if (answer.status !== 200) throw new Error(`${answer.status} ${JSON.stringify(answer.body)}`);
      return answer.body;
    },
  };
}
