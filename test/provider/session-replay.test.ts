// A whole session recorded on a real wire and replayed in a fresh database, without key and network (11.12).
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { expect, test } from 'vitest';
import { createServer } from '../../src/app/compose.ts';
import { createCredentials } from '../../src/app/credentials.ts';
import { defaultConfig } from '../../src/domain/config.ts';
import { createSession } from '../../src/engine/sessions.ts';
import { submitTurn, waitForTurn } from '../../src/engine/submit-turn.ts';
import { silentLogger } from '../../src/ports/log.ts';
import { tempFolder } from '../support/engine.ts';
import { type FakeAnswer, type FakeCall, startFakeProvider } from '../support/fake-provider.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const KEY = 'a-key-that-must-not-be-kept';

/** A planner that reads a file, hands out two tasks at once, and sums up; workers that read a file of their own. */
function answer(call: FakeCall): FakeAnswer {
  const usage = { input: 100 + call.system.length, output: 20 };
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
  return { text: `Both are back: ${call.results.join(' and ')}.`, usage };
}

async function run(
  folder: string,
  workspace: string,
  over: { record?: string; replay?: string; url?: string; question?: string },
) {
  const config = defaultConfig(folder);
  const server = await createServer({
    config: {
      ...config,
      registry: { path: join(ROOT, 'config', 'registry.yaml') },
      providers: { record: over.record ?? null, replay: over.replay ?? null },
    },
    credentials: createCredentials(over.url ? { ANTHROPIC_API_KEY: KEY, ANTHROPIC_BASE_URL: over.url } : {}),
    log: silentLogger,
    packageDir: ROOT,
    version: '0',
    env: {},
    dataDir: folder,
    keysFile: join(folder, '.env'),
    ...(over.url ? {} : { fetch: () => Promise.reject(new Error('the network is closed')) }),
  });
  try {
    const { engine } = server;
    const session = await createSession(engine, {
      workspace_path: workspace,
      initial_active_model: null,
      max_cost_usd: null,
      on_reached: null,
      approval_mode: null,
    });
    const content = over.question ?? 'What do the files hold?';
    const { turn_id } = await submitTurn(engine, session.id, {
      content,
      per_message_override: null,
      if_busy: 'reject',
    });
    await waitForTurn(engine, turn_id, 20_000, new AbortController().signal);
    const turn = (await engine.store.turns.view(session.id, turn_id))!;
    const after = (await engine.store.sessions.view(session.id))!;
    const { rows: events } = await engine.store.events.list({
      session_id: session.id,
      include_workers: true,
      types: ['tool.called', 'llm.call_completed', 'llm.call_failed'],
      after: null,
      until: null,
      limit: 200,
    });
    const calls = events.flatMap((e) =>
      e.type === 'llm.call_completed'
        ? [
            [
              e.payload.model,
              e.payload.input_tokens,
              e.payload.output_tokens,
              e.payload.cost_usd,
              e.payload.stop_reason,
            ].join(' '),
          ]
        : [],
    );
    const tools = events.flatMap((e) => (e.type === 'tool.called' ? [e.payload.tool_name] : []));
    const failures = events.flatMap((e) => (e.type === 'llm.call_failed' ? [e.payload.error_message_redacted] : []));
    return {
      same: {
        status: turn.status,
        output: turn.output,
        own: after.cost_so_far_usd,
        workers: after.workers_cost_usd,
        calls: calls.sort(),
        tools: tools.sort(),
      },
      failures,
    };
  } finally {
    await server.close();
  }
}

test('a session with two tool cycles and two parallel workers, recorded, is the same when replayed in a fresh database', async () => {
  const folder = tempFolder();
  const workspace = join(folder, 'workspace');
  const record = join(folder, 'recorded');
  mkdirSync(workspace);
  for (const name of ['alpha', 'beta']) writeFileSync(join(workspace, `${name}.txt`), `${name} text\n`);
  const fake = await startFakeProvider(answer);
  let live: Awaited<ReturnType<typeof run>>;
  try {
    live = await run(join(folder, 'live'), workspace, { record, url: fake.anthropicUrl });
  } finally {
    await fake.close();
  }
  expect(live.same).toMatchObject({
    status: 'completed',
    output: 'Both are back: alpha holds text and beta holds text.',
  });
  expect(live.same.calls).toHaveLength(7);
  expect(live.same.workers).not.toBe('0');
  expect(readdirSync(record)).toHaveLength(7);
  for (const name of readdirSync(record))
    expect(readFileSync(join(record, name), 'utf8')).not.toMatch(/a-key-that|x-api-key|anthropic-version/);

  const again = await run(join(folder, 'again'), workspace, { replay: record });
  expect(again.same).toEqual(live.same);
  const changed = await run(join(folder, 'changed'), workspace, { replay: record, question: 'Something else?' });
  expect(changed.same.status).toBe('failed');
  expect(changed.failures).toEqual([expect.stringContaining('no unused recording answers this request')]);
});
