// A whole session recorded on a real wire and replayed in a fresh database, without key and network (11.12).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import type { Delta } from '#protocol/delta.ts';
import { tempFolder } from '../support/engine.ts';
import type { FakeAnswer, FakeCall } from '../support/fake-provider.ts';
import type { Parsed } from '../support/http.ts';
import { type RealServer, startReal, startStrictFake } from '../support/real-server.ts';
import { KEYS, registryAt, WIRES } from '../support/registry-at.ts';
import { withoutWorkerLine } from '../support/stored.ts';

const HEADER = 'value-of-a-header-of-ours';
const MODEL = { anthropic: 'opus', openai: 'gpt' } as const;

/** A planner that reads a file, hands out two tasks at once, and sums up; workers that read a file of their own. */
function answer(call: FakeCall): FakeAnswer {
  const usage = { input: 100 + call.system.length, cached: 30, creation: 7, output: 20 };
  if (call.system.includes('## Task')) {
    const name = call.system.includes('check alpha') ? 'alpha' : 'beta';
    return call.results.length === 0
      ? { tool_calls: [{ name: 'read_file', input: { path: `${name}.txt` } }], usage }
      : { text: `${name} holds ${call.results[0]!.trim().length > 0 ? 'text' : 'nothing'}`, usage };
  }
  if (call.results.length === 0)
    return { text: 'Looking.', tool_calls: [{ name: 'read_file', input: { path: 'alpha.txt' } }], usage };
  if (call.results.length === 1) {
    const tasks = ['alpha', 'beta'].map((name) => ({
      name: 'delegate',
      input: { tier: 'fast', task: `check ${name}` },
    }));
    return { tool_calls: tasks, usage };
  }
  return { text: `Both are back: ${call.results.map(withoutWorkerLine).join(' and ')}.`, usage, delta: 5 };
}

/** What must be the same in every run of the session. */
async function outcome(server: RealServer, workspace: string, model: string, question: string) {
  const session = await server.session(workspace, model);
  const { status, output, error_message } = await server.turn(session, question);
  const { body } = await server.call('GET', `/sessions/${session}`);
  const { events } = (await server.call('GET', `/sessions/${session}/events?include_worker_sessions=true&limit=200`))
    .body;
  const of = (type: string) => events.filter((e: Parsed) => e.type === type).map((e: Parsed) => e.payload);
  const calls = of('llm.call_completed').map((p: Parsed) =>
    [
      p.model,
      p.input_tokens,
      p.cached_input_tokens,
      p.cache_creation_input_tokens,
      p.output_tokens,
      p.cost_usd,
      p.stop_reason,
    ].join(' '),
  );
  return {
    status,
    output,
    error_message,
    own: body.cost_so_far_usd,
    workers: body.workers_cost_usd,
    calls: calls.sort(),
    tools: of('tool.called')
      .map((p: Parsed) => p.tool_name)
      .sort(),
    deltas: deltasBySession(server),
  };
}

/** The deltas of each session as they came, without what differs from run to run: ids and times. */
function deltasBySession(server: RealServer): string[] {
  const sessions = new Map<string, Delta[]>();
  for (const { session_id, delta } of server.deltas) {
    if (delta.type === 'message.appended') continue;
    sessions.set(session_id, [...(sessions.get(session_id) ?? []), delta]);
  }
  return [...sessions.values()].map(withoutIds).sort();
}
function withoutIds(deltas: readonly Delta[]): string {
  const seen = new Map<string, number>();
  return deltas
    .map((delta) => JSON.stringify(delta))
    .join('\n')
    .replaceAll(/"latency_ms":\d+/g, '"latency_ms":0')
    .replaceAll(/\b(?:tu_|sess_)?0[0-9A-HJKMNP-TV-Z]{25}\b/g, (id) => {
      if (!seen.has(id)) seen.set(id, seen.size + 1);
      return `id${seen.get(id)}`;
    });
}

describe.each(WIRES)('recorded on the %s wire', (wire) => {
  async function record() {
    const folder = tempFolder();
    const workspace = path.join(folder, 'workspace');
    const recordings = path.join(folder, 'recorded');
    fs.mkdirSync(workspace);
    for (const name of ['alpha', 'beta']) fs.writeFileSync(path.join(workspace, `${name}.txt`), `${name} text\n`);
    const fake = await startStrictFake(answer);
    const registry = registryAt(fake).replaceAll(/_url: (\S+) /g, `_url: $1, extra_headers: { x-team: ${HEADER} } `);
    expect(registry).toContain(HEADER);
    const server = await startReal({
      folder: path.join(folder, 'live'),
      registry,
      wires: [wire],
      config: { providers: { record: recordings } },
    });
    const live = await outcome(server, workspace, MODEL[wire], 'What do the files hold?');
    await server.close();
    let runs = 0;
    const replay = () =>
      startReal({
        folder: path.join(folder, `again-${++runs}`),
        registry,
        wires: [],
        config: { providers: { replay: recordings } },
        send: () => Promise.reject(new Error('the network is closed')),
      });
    return { workspace, recordings, fake, live, replay };
  }

  // Promise 11.22: a recorded session replays the same in a fresh database with the network closed; a changed prompt finds nothing.
  test('a session with two tool cycles and two parallel workers, recorded, is the same when replayed in a fresh database', async () => {
    const { workspace, fake, live, replay } = await record();
    expect(live).toMatchObject({
      status: 'completed',
      output: 'Both are back: alpha holds text and beta holds text.',
    });
    expect(live.calls).toHaveLength(7);
    expect(live.workers).not.toBe('0');
    expect(live.deltas).toHaveLength(3);
    expect(live.deltas.every((said) => said.includes(`"text.delta"`))).toBe(true);

    const connections = fake.connections();
    for (const again of [await replay(), await replay()])
      expect(await outcome(again, workspace, MODEL[wire], 'What do the files hold?')).toEqual(live);
    // The registry still names the provider's address: nobody went there.
    expect([fake.connections(), fake.calls.length]).toEqual([connections, 7]);
  });

  // Promise 11.22: a changed prompt finds no recording; only recorded adapters serve.
  test('a changed prompt finds no recording, and an adapter without recordings serves nothing', async () => {
    const { workspace, replay } = await record();
    const server = await replay();
    expect([...server.providers.keys()]).toEqual([wire]);
    expect(server.notice).toBeNull();
    const changed = await outcome(server, workspace, MODEL[wire], 'Something else?');
    expect(changed).toMatchObject({
      status: 'failed',
      error_message: expect.stringContaining('no unused recording answers this request'),
    });
    const other = MODEL[wire === 'anthropic' ? 'openai' : 'anthropic'];
    const refused = await server.call('POST', `/sessions/${await server.session(workspace, other)}/turns`, {
      content: 'hi',
    });
    expect(refused.body.error).toMatchObject({
      code: 'explicit_model_rejected',
      details: { validation_failure: 'not_configured' },
    });
  });

  // Promise 11.22: recordings are private and hold no key and no sent header.
  test('the folder is private and holds no key and no header that was sent', async () => {
    const { recordings } = await record();
    const files = fs.readdirSync(recordings);
    expect(files).toHaveLength(7);
    expect(fs.statSync(recordings).mode & 0o777).toBe(0o700);
    for (const name of files) {
      expect(name).toMatch(/^[0-9A-Z]{26}-1\.json$/);
      const file = path.join(recordings, name);
      expect(fs.statSync(file).mode & 0o777).toBe(0o600);
      const text = fs.readFileSync(file, 'utf8');
      for (const value of [KEYS[wire], HEADER, 'x-api-key', 'authorization', 'Bearer', '2023-06-01'])
        expect(text).not.toContain(value);
    }
  });
});
