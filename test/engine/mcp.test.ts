// MCP tools in turns: asked for, enforced, handed to workers and taken away like the built-in ones (09 §2, §11).

import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { answerConfirmation } from '#core/engine/answer-approval.ts';
import { estimateTurn } from '#core/engine/inspect-routing.ts';
import type { McpServerConfig } from '#protocol/mcp.ts';
import { startEngine, type TestEngine } from '../support/engine.ts';
import { restart } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { resultsOf, textOf } from '../support/stored.ts';
import { until } from '../support/until.ts';
import { FIXTURE, fixture, gone, recordingLog, skippingClock } from '../tool/mcp/world.ts';

const require = createRequire(import.meta.url);
const FILESYSTEM = require.resolve('@modelcontextprotocol/server-filesystem/dist/index.js');

const said = (...calls: readonly ReturnType<typeof call>[]) =>
  scenario(planner(...calls.map((one) => ({ tool_calls: [one] })), { text: 'done' }));
const echo = (say: unknown) => call('mcp__fix__echo', { say });
const auto = { default: { none: 'auto', read: 'auto', write: 'auto', execute: 'auto', network: 'auto' } } as const;
const servers = (fix: McpServerConfig) => ({ mcp_servers: { fix }, tool_confirmation: auto });
const offered = (t: TestEngine, role: 'planner' | 'worker', n = 0) =>
  t.adapter.requests.filter((r) => r.caller.is_worker === (role === 'worker'))[n]?.tools.map(({ name }) => name);
const texts = async (t: TestEngine, sessionId: string) => (await resultsOf(t, sessionId)).map(textOf);

const started = (t: TestEngine) =>
  t.events.find((e) => e.type === 'delegate.started')?.payload as Readonly<Record<string, unknown>>;
const workerOf = (t: TestEngine) => started(t).worker_session_id as string;

describe('a tool of an MCP server', () => {
  // Promise 09.18: An MCP tool prompts by default and is remembered under its name.
  it('prompts by default, runs when it is approved, and `always` is remembered under its name', async () => {
    const t = await startEngine({
      scenario: said(echo('hello'), echo('again')),
      config: { mcp_servers: { fix: fixture() } },
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    const asked = (await t.event('tool.confirmation_requested')).payload as Record<string, unknown>;
    const id = asked.confirmation_request_id as string;
    await until(() => t.engine.approvals.get(id as never));
    expect(asked).toMatchObject({ tool_name: 'mcp__fix__echo' });
    await answerConfirmation(t.engine, id, {
      decision: 'approve',
      scope: 'always',
      reason: null,
      modified_input: null,
    });
    expect((await t.ended(turnId)).status).toBe('completed');
    expect(await texts(t, session.id)).toEqual(['hello', 'again']);
    expect(fs.readFileSync(path.join(t.workspace, '.metis/trust.yaml'), 'utf8')).toContain('mcp__fix__echo');
    expect(offered(t, 'planner')).toEqual([...offered(t, 'planner')!].sort());
  });

  // Promise 09.18: Its schema with oneOf is passed on and enforced.
  it('is offered to the model with its schema, which is enforced before anybody is asked', async () => {
    const t = await startEngine({ scenario: said(echo(true)), config: { mcp_servers: { fix: fixture() } } });
    const session = await t.session();
    expect((await t.run(session, 'go')).status).toBe('completed');
    const [request] = t.adapter.requests;
    expect(request?.tools.find(({ name }) => name === 'mcp__fix__echo')?.input_schema).toMatchObject({
      properties: { say: { oneOf: [{ type: 'string' }, { type: 'integer' }] } },
    });
    expect(t.typesOf(session.id)).toContain('tool.input_invalid');
    expect(t.typesOf(session.id)).not.toContain('tool.confirmation_requested');
    expect((await texts(t, session.id))[0]).toContain('say: must match exactly one schema');
  });

  // Promise 09.18: A killed MCP server fails the next call as unavailable, then recovers.
  it('whose server was killed fails with one sentence, stays offered, and works again ten seconds later', async () => {
    const clock = skippingClock();
    const t = await startEngine({
      scenario: {
        version: 1,
        rules: [1, 2, 3].flatMap((turn) => [
          { match: { role: 'planner', turn, call: 1 }, respond: { tool_calls: [call('mcp__fix__pid', {})] } },
          { match: { role: 'planner', turn, call: 2 }, respond: { text: 'done' } },
        ]),
      },
      config: servers(fixture()),
      clock,
    });
    const session = await t.session();
    await t.run(session, 'one');
    const [pid] = await texts(t, session.id);
    process.kill(Number(pid), 'SIGKILL');
    await gone(Number(pid));
    expect((await t.run(session, 'two')).status).toBe('completed');
    const failed = t.events.find((e) => e.type === 'tool.failed');
    expect(failed?.payload).toMatchObject({ error_class: 'execution_error' });
    expect((await texts(t, session.id))[1]).toContain("MCP server 'fix' is unavailable");
    expect(offered(t, 'planner', 2)).toEqual(offered(t, 'planner', 0));
    clock.skip(10_000);
    await t.run(session, 'three');
    const third = (await texts(t, session.id))[2];
    expect(Number(third)).toBeGreaterThan(0);
    expect(third).not.toBe(pid);
  });

  it('that hangs is cut off at its limit, and cancelled through the protocol', async () => {
    const t = await startEngine({
      scenario: said(call('mcp__fix__hang', {}), call('mcp__fix__cancelled', {})),
      config: servers(fixture('good', { call_timeout_seconds: 0.3 })),
    });
    const session = await t.session();
    expect((await t.run(session, 'go')).status).toBe('completed');
    expect(t.events.find((e) => e.type === 'tool.failed')?.payload).toMatchObject({ error_class: 'timeout' });
    expect((await texts(t, session.id))[1]).toBe('1');
  });

  it('that its server adds in a turn is offered from the next one on', async () => {
    const t = await startEngine({
      scenario: {
        version: 1,
        rules: [
          ...planner({ tool_calls: [call('mcp__fix__learn', { name: 'trick' })] }, { text: 'done' }),
          { match: { role: 'planner', turn: 2, call: 1 }, respond: { text: 'done' } },
        ],
      },
      config: servers(fixture()),
    });
    const session = await t.session();
    await t.run(session, 'one');
    await t.run(session, 'two');
    expect(offered(t, 'planner', 1)).not.toContain('mcp__fix__trick');
    expect(offered(t, 'planner', 2)).toContain('mcp__fix__trick');
  });

  it('can be switched off like any other', async () => {
    const t = await startEngine({
      scenario: said(echo('hello')),
      config: { ...servers(fixture()), tools: { disabled: ['mcp__fix__e*'] } },
    });
    const session = await t.session();
    await t.run(session, 'go');
    expect(offered(t, 'planner')).toContain('mcp__fix__pid');
    expect(offered(t, 'planner')).not.toContain('mcp__fix__echo');
    expect(t.events.find((e) => e.type === 'tool.failed')?.payload).toMatchObject({ error_class: 'not_found' });
  });
});

describe('a server that does not start', () => {
  it.each(['mute', 'garbage', 'exits'])('%s: one warning, and the turn goes on without it', async (manner) => {
    const { log, lines } = recordingLog();
    const t = await startEngine({
      scenario: said(),
      config: servers(fixture(manner, { startup_timeout_seconds: 0.3 })),
      log,
    });
    expect((await t.run(await t.session(), 'go')).status).toBe('completed');
    expect(offered(t, 'planner')).toContain('read_file');
    const warnings = () => lines.filter(({ level }) => level === 'warn').map(({ message }) => message);
    await until(() => warnings().length > 0);
    expect(warnings()).toEqual([expect.stringMatching(/^MCP server 'fix' .*; it has no tools until it answers$/)]);
  });

  it('is not started by a question about cost', async () => {
    const t = await startEngine({
      scenario: said(),
      config: servers(fixture('exits, then mute')),
      files: { 'was-here': '' },
    });
    const began = performance.now();
    const session = await t.session();
    const question = { content: 'go', per_message_override: null };
    expect((await estimateTurn(t.engine, session.id, question)).fits_budget).toBe(true);
    expect(performance.now() - began).toBeLessThan(10_000);
  });
});

describe('workers', () => {
  const team = (allowed: readonly string[], ...does: readonly ReturnType<typeof call>[]) =>
    scenario(
      planner({ tool_calls: [delegate('the job', { allowed_tools: allowed })] }, { text: 'done' }),
      worker('the job', ...does.map((one) => ({ tool_calls: [one] })), { text: 'worked' }),
    );

  // Promise 09.22: A worker that is allowed one MCP tool has that one.
  it('get the tool that is allowed, and nothing else', async () => {
    const t = await startEngine({ scenario: team(['mcp__fix__echo'], echo('hello')), config: servers(fixture()) });
    const session = await t.session();
    await t.run(session, 'go');
    expect(offered(t, 'worker')).toEqual(['_request_context', 'mcp__fix__echo']);
    expect(started(t)).toMatchObject({ dropped_tools: [], allowed_tool_count: 1 });
    expect(await texts(t, workerOf(t))).toEqual(['hello']);
  });

  // Promise 09.22: Tools of a server for planners only are dropped.
  it('of a server that is for planners only get none of its tools', async () => {
    const t = await startEngine({
      scenario: team(['mcp__fix__echo', 'read_file'], echo('hello')),
      config: servers(fixture('good', { allow_workers: false })),
    });
    await t.run(await t.session(), 'go');
    expect(offered(t, 'planner')).toContain('mcp__fix__echo');
    expect(offered(t, 'worker')).toEqual(['_request_context', 'read_file']);
    expect(started(t)).toMatchObject({
      dropped_tools: ['mcp__fix__echo'],
    });
    expect(t.events.find((e) => e.type === 'tool.failed')?.payload).toMatchObject({ error_class: 'not_found' });
  });

  it('read through server-filesystem with that one tool alone', async () => {
    const { mcp_servers, ...rest } = servers(fixture());
    const fs: McpServerConfig = { ...mcp_servers.fix, args: [FILESYSTEM, '.'] };
    const t = await startEngine({
      scenario: team(
        ['mcp__fs__read_file'],
        call('mcp__fs__read_file', { path: 'notes.txt' }),
        call('mcp__fs__write_file', { path: 'x', content: 'x' }),
      ),
      config: { ...rest, mcp_servers: { fs } },
      files: { 'notes.txt': 'water the plants' },
    });
    await t.run(await t.session(), 'go');
    expect(offered(t, 'worker')).toEqual(['_request_context', 'mcp__fs__read_file']);
    expect(await texts(t, workerOf(t))).toEqual([
      'water the plants',
      "Tool 'mcp__fs__write_file' is not available in this session.",
    ]);
  });
});

describe('named workers', () => {
  // Promise 09.25: MCP tools keep their own names, which definitions find; what they do not find is named where they run.
  it('find tools by their own names; what no tool is called is said where they run', async () => {
    const { log, lines } = recordingLog();
    const t = await startEngine({
      scenario: scenario(
        planner({ tool_calls: [call('scout', { input: 'the job' })] }, { text: 'done' }),
        worker('the job', { tool_calls: [call('mcp__fix-it__look-up', { a: 1 })] }, { text: 'worked' }),
      ),
      config: {
        mcp_servers: { 'fix-it': fixture('schemas', { args: [FIXTURE, 'schemas', '{"look-up":{"type":"object"}}'] }) },
        tool_confirmation: auto,
        workers: { planner_allow_workers: ['*'] } as never,
      },
      files: {
        'workers/scout.yaml': 'instructions: x\ntools: [mcp__fix-it__look-up, mcp__gone__look-up, "mcp__gone__*"]',
      },
      log,
    });
    await t.run(await t.session(), 'go');
    expect(offered(t, 'worker')).toEqual(['_request_context', 'mcp__fix-it__look-up']);
    expect(await texts(t, workerOf(t))).toEqual(['{"a":1}']);
    expect(started(t)).toMatchObject({ dropped_tools: ['mcp__gone__*', 'mcp__gone__look-up'] });
    expect(lines.filter(({ message }) => message.includes('runs without'))).toEqual([
      {
        level: 'warn',
        message: 'worker "scout" runs without mcp__gone__*, mcp__gone__look-up, which its definition names',
        fields: { session_id: workerOf(t), worker: 'scout', tools: ['mcp__gone__*', 'mcp__gone__look-up'] },
      },
    ]);
  });

  it('opened by a person warn in their first turn', async () => {
    const { log, lines } = recordingLog();
    const t = await startEngine({
      scenario: scenario(planner({ text: 'one' }), [{ match: { role: 'planner', turn: 2 }, respond: { text: 'two' } }]),
      config: servers(fixture()),
      files: { 'workers/scout.yaml': 'instructions: x\ntools: [mcp__gone__x]' },
      log,
    });
    const session = await t.session({ worker: 'scout' });
    await t.run(session, 'one');
    await t.run(session, 'two');
    expect(lines.filter(({ message }) => message.includes('runs without mcp__gone__x'))).toHaveLength(1);
  });

  // Promise 09.25: Rules, modes and trust find each spelling.
  it('have rules, trust and modes for a tool under each spelling of its name', async () => {
    const t = await startEngine({
      scenario: said(call('mcp__fix__Crash_Now', {}), call('mcp__fix__env', {}), call('mcp__fix__pid', {})),
      config: {
        ...servers(fixture()),
        tools: { disabled: ['mcp__FIX__p*'] } as never,
        tool_confirmation: { ...auto, per_tool: { mcp__fix__crash_now: 'deny' } } as never,
      },
      files: { '.metis/trust.yaml': 'always_deny: [mcp__Fix__ENV]' },
    });
    const session = await t.session();
    await t.run(session, 'go');
    expect(await texts(t, session.id)).toEqual([
      'Denied by policy.',
      'Denied by policy.',
      "Tool 'mcp__fix__pid' is not available in this session.",
    ]);
  });
});

describe('after a restart', () => {
  // Promise 09.22: After a restart the next turn of an old session has the MCP tools.
  it('the next turn of an old session has the tools', async () => {
    const config = servers(fixture());
    const first = await startEngine({ scenario: said(), config });
    const session = await first.session();
    await first.run(session, 'one');
    const rules = [
      { match: { role: 'planner', turn: 2, call: 1 }, respond: { tool_calls: [echo('hello')] } },
      { match: { role: 'planner', turn: 2, call: 2 }, respond: { text: 'done' } },
    ];
    const second = await restart(first, { scenario: { version: 1, rules }, config });
    await second.run(session, 'two');
    expect(await texts(second, session.id)).toEqual(['hello']);
  });

  it('a turn that goes on has what is still offered of its tools', async () => {
    const hanging = scenario(planner({ text: 'never', hang: true }));
    const first = await startEngine({ scenario: hanging, config: servers(fixture()) });
    const session = await first.session();
    const turnId = await first.submit(session, 'one');
    await first.event('llm.call_started');
    const tools = { echo: { enabled: false } };
    const second = await restart(first, { scenario: said(), config: servers(fixture('good', { tools })) });
    expect((await second.ended(turnId)).status).toBe('completed');
    expect(offered(second, 'planner')).toEqual(expect.arrayContaining(['mcp__fix__pid', 'read_file']));
    expect(offered(second, 'planner')).not.toContain('mcp__fix__echo');
  });
});

it('a worker that goes on after a restart has lost what is for planners only by now', async () => {
  const job = delegate('the job', { allowed_tools: ['mcp__fix__echo', 'read_file'] });
  const team = (does: Readonly<Record<string, unknown>>) =>
    scenario(planner({ tool_calls: [job] }, { text: 'done' }), worker('the job', does));
  const first = await startEngine({ scenario: team({ hang: true }), config: servers(fixture()) });
  const turnId = await first.submit(await first.session(), 'go');
  await until(() => offered(first, 'worker'));
  const config = servers(fixture('good', { allow_workers: false }));
  const second = await restart(first, { scenario: team({ text: 'worked' }), config });
  expect((await second.ended(turnId)).status).toBe('completed');
  expect(offered(first, 'worker')).toContain('mcp__fix__echo');
  expect(offered(second, 'worker')).toEqual(['_request_context', 'read_file']);
});

describe("a workspace's .mcp.json", () => {
  const file = (env: Readonly<Record<string, string>> = {}, name = 'fix') => {
    const { command, args } = fixture();
    return { '.mcp.json': JSON.stringify({ mcpServers: { [name]: { command, args, env } } }) };
  };

  // Promise 09.18: A project file starts nothing by default.
  it('starts nothing unless the configuration says so', async () => {
    const t = await startEngine({ scenario: said(), files: file() });
    await t.run(await t.session(), 'go');
    expect(offered(t, 'planner')?.filter((name) => name.startsWith('mcp__'))).toEqual([]);
  });

  it('starts nothing behind a link in its place', async () => {
    const [text = ''] = Object.values(file());
    const config = { mcp: { project_files: true } };
    const t = await startEngine({ scenario: said(), files: { 'servers.json': text }, config });
    fs.symlinkSync('servers.json', path.join(t.workspace, '.mcp.json'));
    await t.run(await t.session(), 'go');
    expect(offered(t, 'planner')?.filter((name) => name.startsWith('mcp__'))).toEqual([]);
  });

  // `constructor` is a name that every object knows, and no server of the configuration.
  // Promise 09.22: A project file learns no key of a provider.
  it.each(['fix', 'constructor'])('adds %s when it does, and gives it no key of a provider', async (name) => {
    const variable = (name: string) => `$\u007b${name}}`;
    const env = {
      A: variable('ANTHROPIC_API_KEY'),
      B: variable('METIS_TOKEN'),
      C: variable('OTHER'),
      D: variable('COPY'),
      E: variable('HEADER'),
    };
    const t = await startEngine({
      scenario: said(call(`mcp__${name}__env`, {})),
      files: file(env, name),
      config: { mcp: { project_files: true }, tool_confirmation: auto },
      env: {
        PATH: process.env.PATH,
        ANTHROPIC_API_KEY: 'sk-1',
        METIS_TOKEN: 'm-1',
        OTHER: 'yes',
        COPY: 'sk-1',
        HEADER: 'Bearer sk-1',
      },
    });
    const session = await t.session();
    await t.run(session, 'go');
    const [given = ''] = await texts(t, session.id);
    expect(JSON.parse(given)).toMatchObject({ A: '', B: '', C: 'yes', D: '', E: '' });
    expect(given).not.toMatch(/sk-1|m-1/);
  });
});
