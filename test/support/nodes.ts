// Nodes of a cluster, in this process or as processes of their own, on a schema of PostgreSQL that is theirs, all asking one fake provider.
import type { ChildProcess } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import pg from 'pg';
import { onTestFinished } from 'vitest';
import { createMetisClient, type MetisClient } from '#client/client.ts';
import type { Turn } from '#protocol/turn.ts';
import { runHere, startHere } from '../app/here.ts';
import { type Finished, type Started, start } from '../app/metis.ts';
import { type FakeAnswer, type FakeCall, type FakeProvider, startFakeProvider } from './fake-provider.ts';
import { priceFileA } from './prices.ts';
import { KEYS, registryAt } from './registry-at.ts';
import { ownSchema, type Schema } from './services.ts';
import { until } from './until.ts';
import { strictly } from './wire-rules.ts';

/** Short, so that a take-over is soon; what waits for one waits for many times as long. */
export const LEASE_SECONDS = 3;

/** A model that may delegate. */
export const PLANNER = 'anthropic:claude-opus-4-7';

export interface NodesOptions {
  /** Of the service. */
  readonly database: string;
  readonly answer: (call: FakeCall) => FakeAnswer | Promise<FakeAnswer>;
  /** Keys of the configuration, of every node. */
  readonly set?: Readonly<Record<string, unknown>>;
  /** Takes what closes and removes it all, the last first; the test's end unless told. */
  readonly atEnd?: (close: () => void | Promise<void>) => void;
}

export interface NodeSettings {
  /** Keys of this node alone. */
  readonly set?: Readonly<Record<string, unknown>>;
  /** In place of the schema's address: through a proxy. */
  readonly database?: string;
  readonly env?: Readonly<Record<string, string>>;
}

/** A node that is asked and stopped, wherever it runs. */
export interface ServingNode {
  readonly name: string;
  readonly url: string;
  readonly client: MetisClient;
  /** Opens a session in a workspace of the shared root. */
  session(workspace: string, rest?: object): Promise<string>;
  /** Submits a message and waits for the turn's end. */
  turn(sessionId: string, content: string): Promise<Turn>;
  /** Lines of its log so far. */
  readonly log: () => string;
  /** SIGTERM, and the end of it. */
  stop(): Promise<Finished>;
}

/** A process of its own. */
export interface TestNode extends ServingNode {
  readonly child: ChildProcess;
  signal(signal: NodeJS.Signals): void;
  /** SIGKILL, and the end of the process. */
  kill(): Promise<Finished>;
}

export interface Nodes {
  readonly schema: Schema;
  readonly fake: FakeProvider;
  /** A shared root, where workspaces lie. */
  readonly root: string;
  /** Makes a folder below the root. */
  workspace(name: string): string;
  start(name: string, settings?: NodeSettings): Promise<TestNode>;
  /** Starts one in this process, for a test that kills and halts none and takes no service away for good. */
  startHere(name: string, settings?: NodeSettings): Promise<ServingNode>;
  /** Starts one without a wait until it serves. */
  spawn(name: string, settings?: NodeSettings): Started;
  /** Starts one that is not to come up; resolves with what it said. */
  refused(name: string, settings?: NodeSettings): Promise<Finished>;
  /** Another command of `metis` with the configuration of the nodes. */
  command(...words: readonly string[]): Promise<Finished>;
  /** Rows as the schema has them, integers as text. */
  rows<Row = Record<string, string>>(sql: string, ...values: unknown[]): Promise<Row[]>;
}

/** Everything is closed and removed with the test. */
export async function startNodes({ database, answer, set = {}, atEnd = onTestFinished }: NodesOptions): Promise<Nodes> {
  const folder = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), 'metis-nodes-')));
  const root = path.join(folder, 'workspaces');
  fs.mkdirSync(root);
  atEnd(() => fs.rmSync(folder, { recursive: true, force: true }));
  const schema = await ownSchema(database);
  atEnd(() => schema.drop());
  const fake = await startFakeProvider(strictly(answer));
  atEnd(() => fake.close());
  const files = { registry: path.join(folder, 'registry.yaml'), prices: path.join(folder, 'prices.json') };
  fs.writeFileSync(files.registry, registryAt(fake));
  fs.writeFileSync(files.prices, priceFileA());
  // A pool, since the database may be restarted under it.
  const eyes = new pg.Pool({ connectionString: schema.url, max: 1 });
  eyes.on('error', () => {});
  atEnd(() => eyes.end());
  const alike = {
    'server.port': 0,
    'log.level': 'info',
    'registry.path': files.registry,
    'pricing.tables': [files.prices],
    'tool_confirmation.default.write': 'auto',
    'tool_confirmation.default.execute': 'auto',
    'shutdown.drain_seconds': 0,
    'shutdown.linger_seconds': 0,
    'cluster.name': schema.name,
    'cluster.lease_seconds': LEASE_SECONDS,
    'cluster.shared_roots': [root],
    ...set,
  };

  /** Folder, flags and keys of a command that a node runs. */
  function prepare(name: string, settings: NodeSettings, words: readonly string[]) {
    const home = path.join(folder, `home-${name}`);
    fs.mkdirSync(home, { recursive: true });
    const keys = {
      'database.url': settings.database ?? schema.url,
      'cluster.node_name': name,
      ...alike,
      ...settings.set,
    };
    const flags = Object.entries(keys).flatMap(([key, value]) => [
      '--set',
      `${key}=${typeof value === 'string' ? value : JSON.stringify(value)}`,
    ]);
    const env = { ANTHROPIC_API_KEY: KEYS.anthropic, OPENAI_API_KEY: KEYS.openai, ...settings.env };
    return { words: [...words, ...flags], at: { home, env } };
  }

  function spawned(name: string, settings: NodeSettings) {
    const { words, at } = prepare(name, settings, ['serve']);
    const node = start(words, at);
    atEnd(async () => {
      // One that was stopped does not hear anything else.
      await node.stop('SIGKILL');
    });
    return node;
  }

  async function serving(name: string, node: Pick<Started, 'line' | 'output' | 'stop'>): Promise<ServingNode> {
    const [, url] = await node.line(/listens on (http:\/\/[^,\s]+)/);
    const client = createMetisClient({ baseUrl: url! });
    return {
      name,
      url: url!,
      client,
      async session(workspace, rest = {}) {
        const model = { initial_active_model: PLANNER };
        return (await client.createSession({ workspace_path: workspace, ...model, ...rest })).id;
      },
      async turn(sessionId, content) {
        const { turn_id } = await client.submitTurn(sessionId, { content });
        return until(async () => {
          const turn = await client.getTurn(sessionId, turn_id);
          return turn.ended_at !== null && turn;
        }, 60);
      },
      log: () => node.output.stderr,
      stop: () => node.stop('SIGTERM'),
    };
  }

  return {
    schema,
    fake,
    root,
    workspace(name) {
      const workspace = path.join(root, name);
      fs.mkdirSync(workspace, { recursive: true });
      return workspace;
    },
    async start(name, settings = {}) {
      const node = spawned(name, settings);
      return {
        ...(await serving(name, node)),
        child: node.child,
        signal: (signal) => void node.child.kill(signal),
        kill: () => node.stop('SIGKILL'),
      };
    },
    startHere(name, settings = {}) {
      const { words, at } = prepare(name, settings, ['serve']);
      const node = startHere(words, at);
      atEnd(async () => void (await node.stop()));
      return serving(name, node);
    },
    spawn: (name, settings = {}) => spawned(name, settings),
    refused: (name, settings = {}) => spawned(name, settings).finished,
    command(...words) {
      const prepared = prepare('command', {}, words);
      return runHere(prepared.words, prepared.at);
    },
    rows: async (sql, ...values) => (await eyes.query(sql, values)).rows,
  };
}
