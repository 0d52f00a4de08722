// Which adapters a configuration gives, and the recording and replaying of what they say (11.9, 11.11, 11.12).
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type AdapterConfig, readAdapterConfig } from '#core/policy/registry/adapter-config.ts';
import type { ProviderAdapter } from '#core/ports/provider.ts';
import { type AdapterSetup, createAdapters } from '#models/adapters/create-adapters.ts';
import type { Send } from '#models/http/provider-http.ts';
import { createThreadedParser } from '#models/threads/threaded-parser.ts';
import { systemClock } from '#protocol/clock.ts';
import { StartupError } from '#protocol/errors.ts';
import { createIdGenerator } from '#protocol/ids.ts';
import type { StoredMessage } from '#protocol/message.ts';
import { createLogger } from '#server/log.ts';
import { type FakeCall, type FakeProvider, startFakeProvider } from '../support/fake-provider.ts';
import { message } from '../support/messages.ts';
import { bodySend, drain, modelEntry, recordingLog, request, user } from './support.ts';

let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'metis-provider-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const config = (raw: object): AdapterConfig => {
  const errors: string[] = [];
  const read = readAdapterConfig(raw, 'adapters.x', '/', errors);
  if (read === null) throw new Error(errors.join('\n'));
  return read;
};
const DEMO = 'version: 1\nstrict: false\nfallback: { text: demo }';

function setup(adapters: Record<string, object>, keys: Record<string, string> = {}, over: Partial<AdapterSetup> = {}) {
  const { log, lines } = recordingLog();
  const all: AdapterSetup = {
    adapters: new Map(Object.entries(adapters).map(([id, raw]) => [id, config(raw)])),
    credentials: {
      forAdapter: (id, { key_optional }) =>
        id in keys || key_optional ? { key: keys[id] ?? null, base_url: null } : null,
      keyName: (id) => `${id.toUpperCase()}_API_KEY`,
      secrets: Object.values(keys),
    },
    envFile: '/data/.env',
    readScenario: (path) => ({ path: path ?? 'demo.yaml', text: DEMO }),
    record: null,
    replay: null,
    env: {},
    clock: systemClock,
    random: () => 0.5,
    ids: createIdGenerator(Date.now, Math.random),
    log,
    parser: createThreadedParser(join(import.meta.dirname, '../../src/models/threads/parser-thread.ts'), log),
    ...over,
  };
  return { all, lines, create: () => createAdapters(all) };
}

describe('what is configured', () => {
  test('an adapter without key is left out, with the variable and the file to set; key_optional needs none', () => {
    const { create, lines } = setup(
      {
        anthropic: { type: 'anthropic' },
        openai: { type: 'openai' },
        local: { type: 'openai', base_url: 'http://127.0.0.1:1/v1', key_optional: true },
      },
      { anthropic: 'k' },
    );
    expect([...create().keys()]).toEqual(['anthropic', 'local']);
    expect(lines.map((l) => [l.level, l.message])).toEqual([
      ['warn', 'no credentials configured for openai; set OPENAI_API_KEY or add it to /data/.env'],
    ]);
  });

  test('the built-in scenario stands in only where nothing else answers', async () => {
    const adapters = { anthropic: { type: 'anthropic' }, scripted: { type: 'scripted' } };
    expect([...setup(adapters, { anthropic: 'k' }).create().keys()]).toEqual(['anthropic']);
    const alone = setup(adapters).create();
    expect([...alone.keys()]).toEqual(['scripted']);
    expect((await drain(alone.get('scripted')!, request())).text).toBe('demo');
  });

  // Promise 11.20: a bad scenario stops the start naming its rule.
  test('a scenario that is refused stops the start, naming file and rule', () => {
    const { create } = setup(
      { play: { type: 'scripted', scenario: '/s/bad.yaml' } },
      {},
      {
        readScenario: (path) => ({ path: path!, text: 'version: 1\nrules: [{ id: a, respond: { text: "{{x}}" } }]' }),
      },
    );
    expect(create).toThrow(StartupError);
    expect(create).toThrow('/s/bad.yaml: rules[0] (a): unknown placeholder {{x}}');
  });

  test('recording and replaying at once stops the start', () => {
    expect(setup({ anthropic: { type: 'anthropic' } }, {}, { record: folder, replay: folder }).create).toThrow(
      /mutually exclusive/,
    );
  });

  // Promise 11.18: a configured address beats the environment's.
  test('an address in the registry beats the one from the environment, which beats the default', async () => {
    const asked: string[] = [];
    const refuse: Send = async (asking) => {
      asked.push(asking.url);
      return bodySend([Buffer.from('{}')], { status: 400 })(asking);
    };
    const credentials = {
      forAdapter: () => ({ key: 'k', base_url: 'http://env.test/' }),
      keyName: () => '',
      secrets: [],
    };
    const { create } = setup(
      { own: { type: 'anthropic', base_url: 'http://own.test' }, other: { type: 'openai' } },
      {},
      { credentials, send: refuse },
    );
    for (const adapter of create().values()) await drain(adapter, request());
    const plain = setup(
      { anthropic: { type: 'anthropic' }, openai: { type: 'openai' }, openrouter: { type: 'openrouter' } },
      { anthropic: 'k', openai: 'k', openrouter: 'k' },
      { send: refuse },
    );
    for (const adapter of plain.create().values()) await drain(adapter, request());
    expect(asked).toEqual([
      'http://own.test/v1/messages',
      'http://env.test/chat/completions',
      'https://api.anthropic.com/v1/messages',
      'https://api.openai.com/v1/chat/completions',
      'https://openrouter.ai/api/v1/chat/completions',
    ]);
  });
});

describe('record and replay', () => {
  const KEY = 'the-very-secret-key';
  let server: FakeProvider;
  beforeEach(async () => {
    server = await startFakeProvider(answer);
  });
  afterEach(() => server.close());
  const answer = (call: FakeCall) =>
    call.user === 'fail once' && call.number === 1
      ? {
          status: 529,
          headers: { 'retry-after-ms': '1', 'set-cookie': 'session=hidden' },
          error: { type: 'overloaded_error', message: `busy ${KEY}` },
        }
      : call.results.length === 0
        ? {
            text: `reading for ${call.user} — ü`,
            tool_calls: [{ name: 'read', input: { path: call.user } }],
            usage: { input: 100, cached: 30, output: 20 },
          }
        : { text: `done: ${call.results.join(', ')}`, usage: { input: 130, output: 9 } };

  /** Two cycles: the model calls a tool, gets its result, and answers. */
  async function converse(adapter: ProviderAdapter, question: string) {
    const entry = modelEntry('anthropic:m');
    const history: StoredMessage[] = [user(question)];
    const first = await drain(adapter, request({ entry, messages: history, rest: { request_id: ids.request() } }));
    if (first.complete === null) return { error: first.error, said: [] };
    const call = first.complete.final_content.find((b) => b.type === 'tool_use')!;
    history.push(message(2, 'assistant', [...first.complete.final_content]));
    history.push(
      message(3, 'tool', [
        { type: 'tool_result', tool_use_id: call.id, content: [{ type: 'text', text: 'contents' }], is_error: false },
      ]),
    );
    const second = await drain(adapter, request({ entry, messages: history, rest: { request_id: ids.request() } }));
    const strip = (content: readonly object[]) => JSON.stringify(content).replaceAll(/tu_\w{26}/g, 'tu');
    return {
      error: second.error,
      said: [first, second].map((r) => [
        strip(r.complete?.final_content ?? []),
        r.complete?.usage,
        r.complete?.stop_reason,
        r.complete?.retry_count,
      ]),
    };
  }
  const ids = createIdGenerator(Date.now, Math.random);
  const recorded = (over: Partial<AdapterSetup> = {}) =>
    setup(
      { anthropic: { type: 'anthropic', base_url: server.anthropicUrl } },
      { anthropic: KEY },
      { record: folder, ...over },
    )
      .create()
      .get('anthropic')!;
  const replayed = (over: Partial<AdapterSetup> = {}) =>
    setup(
      { anthropic: { type: 'anthropic' }, openai: { type: 'openai' } },
      {},
      { replay: folder, send: () => Promise.reject(new Error('the network is closed')), ...over },
    ).create();
  const files = () => readdirSync(folder).sort();

  test('a line of the log names its adapter once', async () => {
    const lines: string[] = [];
    const log = createLogger('trace', () => [], { write: (line) => void lines.push(line) });
    await converse(recorded({ log }), 'fail once');
    const retried = lines.filter((line) => line.includes('trying again'));
    expect(retried).toHaveLength(1);
    expect(retried[0]!.match(/"adapter":"anthropic"/g)).toHaveLength(1);
  });

  test('what was recorded is replayed the same, in a fresh run, without key and network', async () => {
    const adapter = recorded();
    const live = await Promise.all([converse(adapter, 'a.ts'), converse(adapter, 'b.ts')]);
    await adapter.close();
    expect(files()).toHaveLength(4);
    const providers = replayed();
    expect([...providers.keys()]).toEqual(['anthropic']);
    const again = providers.get('anthropic')!;
    expect(await Promise.all([converse(again, 'b.ts'), converse(again, 'a.ts')])).toEqual([live[1], live[0]]);
    expect(live[0]!.said).toHaveLength(2);
    expect(live[0]!.error).toBeNull();
  });

  test('a changed prompt, or a second use, finds no answer', async () => {
    const adapter = recorded();
    await converse(adapter, 'a.ts');
    await adapter.close();
    const again = replayed().get('anthropic')!;
    const noMatch = { error_class: 'invalid_request', error_detail: 'replay_no_match', retry_count: 0 };
    expect((await converse(again, 'c.ts')).error).toMatchObject(noMatch);
    await converse(again, 'a.ts');
    expect((await converse(again, 'a.ts')).error).toMatchObject(noMatch);
  });

  // Promise 11.22: recordings hold no key and no credential header.
  test('each attempt is a file of its own, private, without key and without headers that mean nothing', async () => {
    const adapter = recorded();
    const live = await converse(adapter, 'fail once');
    await adapter.close();
    const names = files();
    expect(names.map((n) => n.replace(/^.{26}/, 'id'))).toEqual(['id-1.json', 'id-2.json', 'id-1.json']);
    for (const name of names) {
      expect(statSync(join(folder, name)).mode & 0o777).toBe(0o600);
      const text = readFileSync(join(folder, name), 'utf8');
      for (const secret of [KEY, 'hidden', 'x-api-key', '2023-06-01']) expect(text).not.toContain(secret);
    }
    const [refused, answered] = names.map((n) => JSON.parse(readFileSync(join(folder, n), 'utf8')));
    expect(refused).toMatchObject({
      schema_version: 1,
      adapter: 'anthropic',
      method: 'POST',
      path: '/v1/messages',
      status: 529,
      end: 'complete',
      headers: { 'retry-after-ms': '1' },
    });
    expect(answered).toMatchObject({ status: 200, end: 'complete', body: { messages: [{ role: 'user' }] } });
    const again = await converse(replayed().get('anthropic')!, 'fail once');
    expect(again).toEqual(live);
    expect(again.said[0]![3]).toBe(1);
  });

  test('an aborted answer and a refused connection are recorded as such', async () => {
    const adapter = recorded();
    const abort = new AbortController();
    await drain(
      adapter,
      request({ entry: modelEntry('anthropic:m'), rest: { request_id: ids.request() } }),
      abort.signal,
      (e) => {
        if (e.type === 'text.delta') abort.abort();
      },
    );
    await adapter.close();
    const dead = setup(
      { anthropic: { type: 'anthropic', base_url: 'http://127.0.0.1:1', max_retries: 0 } },
      { anthropic: KEY },
      { record: folder },
    )
      .create()
      .get('anthropic')!;
    await drain(dead, request({ rest: { request_id: ids.request() } }));
    await dead.close();
    const [cut, refused] = files().map((n) => JSON.parse(readFileSync(join(folder, n), 'utf8')));
    expect(['aborted', 'complete']).toContain(cut.end);
    expect(refused).toMatchObject({ status: null, end: 'network', chunks: [] });
    const again = await drain(replayed().get('anthropic')!, request({ rest: { request_id: ids.request() } }));
    expect(again.error).toMatchObject({ error_class: 'invalid_request', error_detail: 'replay_no_match' });
  });

  test('a folder that cannot be written is a warning, never a failed call', async () => {
    writeFileSync(join(folder, 'file'), '');
    const { log, lines } = recordingLog();
    const adapter = recorded({ record: join(folder, 'file', 'below'), log });
    expect((await converse(adapter, 'a.ts')).error).toBeNull();
    await adapter.close();
    expect(lines.filter((l) => l.level === 'warn')).toHaveLength(2);
  });

  test('a file that is no recording stops the start, by name', () => {
    writeFileSync(join(folder, 'x.json'), '{"schema_version":2}');
    expect(() => replayed()).toThrow(/x\.json is not a recording/);
    expect(() => replayed({ replay: join(folder, 'nope') })).toThrow(
      /nope does not exist; record into it first, with providers\.record/,
    );
    expect(() => replayed({ replay: join(folder, 'x.json') })).toThrow(/x\.json is no folder/);
  });
});

test('ids of calls and results match when a session moves from one wire to the other', async () => {
  const server = await startFakeProvider((call) =>
    call.results.length > 0 ? { text: 'ok' } : { tool_calls: [{ name: 'read', input: {} }] },
  );
  try {
    for (const [from, to] of [
      ['anthropic', 'openai'],
      ['openai', 'anthropic'],
    ] as const) {
      const make = () =>
        setup(
          {
            anthropic: { type: 'anthropic', base_url: server.anthropicUrl },
            openai: { type: 'openai', base_url: server.openaiUrl },
          },
          { anthropic: 'k', openai: 'k' },
        ).create();
      const { complete } = await drain(make().get(from)!, request({ entry: modelEntry(`${from}:m`) }));
      const call = complete!.final_content[0]!;
      if (call.type !== 'tool_use') throw new Error('no call');
      // Through JSON and into new adapters, as after a restart.
      const history = JSON.parse(
        JSON.stringify([
          user('q'),
          message(2, 'assistant', [call]),
          message(3, 'tool', [{ type: 'tool_result', tool_use_id: call.id, content: [], is_error: false }]),
        ]),
      ) as StoredMessage[];
      expect((await drain(make().get(to)!, request({ entry: modelEntry(`${to}:m`), messages: history }))).text).toBe(
        'ok',
      );
      expect(JSON.stringify(server.calls.at(-1)!.body).split(call.id)).toHaveLength(3);
    }
  } finally {
    await server.close();
  }
});
