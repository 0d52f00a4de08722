// A server, as its own process or in this one, beside a fake provider: killed, stopped and started again on the same files and the same port.
import fs from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { createMetisClient, type MetisClient } from '#client/client.ts';
import { ApiError, type RequestOptions, request } from '#client/request.ts';
import { runHere, type StartedHere, startHere } from '../app/here.ts';
import { address, type Finished, type Started, start, temporaryHome } from '../app/metis.ts';
import { type FakeAnswer, type FakeCall, type FakeProvider, startFakeProvider } from '../support/fake-provider.ts';
import { freePort } from '../support/free-port.ts';
import { priceFileA } from '../support/prices.ts';
import { until } from '../support/until.ts';

export interface World {
  readonly home: string;
  readonly workspace: string;
  /** The data folder, whose database is `metis.db`. */
  readonly data: string;
  /** The same for every start. */
  readonly url: string;
  readonly provider: FakeProvider;
  readonly client: MetisClient;
  /** Starts a process that may not listen yet. */
  launch(...args: string[]): Started;
  /** Runs another command on the same data folder to its end. */
  command(...args: string[]): Promise<Finished>;
  /** Starts one and waits until it listens. */
  serve(...args: string[]): Promise<Started>;
  /** The same in this process, for one that is not killed; its end waits for no call. */
  serveHere(...args: string[]): Promise<StartedHere>;
  /** JSON over HTTP. Throws `ApiError` for an error's answer. */
  ask<T = Json>(method: string, path: string, options?: RequestOptions): Promise<T>;
  session(body?: Json): Promise<string>;
  submit(sessionId: string, content: string): Promise<string>;
  /** Asks over and over, through restarts, until the turn has ended. */
  ended(sessionId: string, turnId: string): Promise<Json>;
  /** Reads the database file, also beside a server. */
  read<T>(use: (db: Database.Database) => T): T;
  rows<T = Json>(sql: string, ...values: unknown[]): T[];
  close(): Promise<void>;
}
// Answers of the wire: a test looks into them freely and asserts what it finds.
export type Json = Readonly<Record<string, ReturnType<typeof JSON.parse>>>;

/** A turn may outlast many restarts on a busy machine. */
const ENDED_SECONDS = 300;

export const TERMINAL = ['turn.completed', 'turn.failed', 'turn.cancelled'];

/**
 * Models: `plan` speaks Messages and delegates, `work` speaks Chat Completions and is the fast tier.
 * @param start the number of the server's start, which every one of its requests carries in its path
 * @param window tokens of every model
 */
function registry({ anthropicUrl }: FakeProvider, start: number, window: number): string {
  const model = (adapter: string, tier: string, pricing: string) =>
    JSON.stringify({
      adapter,
      tier,
      aliases: [adapter],
      pricing_id: pricing,
      capabilities: { max_context_tokens: window, max_output_tokens: 8192, supports_structured_output: true },
    });
  return `adapters:
  plan: { type: anthropic, base_url: "${anthropicUrl}/start-${start}", key_optional: true }
  work: { type: openai, base_url: "${anthropicUrl}/start-${start}/v1", key_optional: true }
models:
  plan:planner: ${model('plan', 'balanced', 'anthropic:claude-sonnet-4-6')}
  work:worker: ${model('work', 'fast', 'anthropic:claude-haiku-4-5')}
`;
}

function isWritable(folder: string): boolean {
  try {
    fs.accessSync(folder, fs.constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

/**
 * @param answer what the provider says; it may take its time
 * @param rest tokens of every model's window; what the server's environment holds beside what every process has
 */
export async function startWorld(
  answer: (call: FakeCall) => FakeAnswer | Promise<FakeAnswer>,
  { window = 200_000, env = {} }: { readonly window?: number; readonly env?: Readonly<Record<string, string>> } = {},
): Promise<World> {
  const home = temporaryHome();
  const workspace = path.join(home.path, 'workspace');
  const data = path.join(home.path, 'data');
  for (const folder of [workspace, data]) fs.mkdirSync(folder);
  const provider = await startFakeProvider(answer);
  const prices = path.join(home.path, 'prices.json');
  fs.writeFileSync(prices, priceFileA());
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const started: Pick<Started, 'stop'>[] = [];
  const fixed = ['--port', String(port), '--data', data];
  const settings = [`pricing.tables=${JSON.stringify([prices])}`, 'tool_confirmation.mode=approve_all'];

  const ask: World['ask'] = (method, where, options) => request({ baseUrl: url }, method, where, options);
  const options = { home: home.path, env };
  /** Words of the next start, whose registry is written. */
  const prepare = (args: readonly string[]) => {
    if (isWritable(data))
      fs.writeFileSync(path.join(data, 'registry.yaml'), registry(provider, started.length + 1, window));
    return ['serve', ...fixed, ...settings.flatMap((s) => ['--set', s]), ...args];
  };
  const launch: World['launch'] = (...args) => {
    const server = start(prepare(args), options);
    // Nobody may read what a killed process had to say.
    server.finished.catch(() => {});
    started.push(server);
    return server;
  };
  const read: World['read'] = (use) => {
    const db = new Database(path.join(data, 'metis.db'), { readonly: true, fileMustExist: true });
    try {
      return use(db);
    } finally {
      db.close();
    }
  };
  return {
    home: home.path,
    data,
    workspace,
    url,
    provider,
    client: createMetisClient({ baseUrl: url }),
    launch,
    command: (...args) => runHere([...args, ...fixed, ...settings.flatMap((s) => ['--set', s])], { home: home.path }),
    async serve(...args) {
      const server = launch(...args);
      await address(server);
      return server;
    },
    async serveHere(...args) {
      const server = startHere(prepare(['--set', 'shutdown.drain_seconds=0', ...args]), options);
      started.push(server);
      await address(server);
      return server;
    },
    ask,
    session: async (body = {}) =>
      (await ask('POST', '/sessions', { body: { workspace_path: workspace, initial_active_model: 'plan', ...body } }))
        .id,
    submit: async (sessionId, content) =>
      (await ask('POST', `/sessions/${sessionId}/turns`, { body: { content } })).turn_id,
    async ended(sessionId, turnId) {
      const where = `/sessions/${sessionId}/turns/${turnId}`;
      return until(async () => {
        const turn = await ask('GET', where).catch((error: unknown) => {
          if (error instanceof ApiError) throw error;
          return null;
        });
        return turn !== null && ['completed', 'failed', 'cancelled'].includes(turn.status) && turn;
      }, ENDED_SECONDS);
    },
    read,
    rows: <T>(sql: string, ...values: unknown[]) => read((db) => db.prepare(sql).all(...values) as T[]),
    async close() {
      await Promise.all(started.map((server) => server.stop('SIGKILL')));
      await provider.close();
      home.remove();
    },
  };
}
