// `metis serve` as a person starts it: what it says, what it refuses, how it stops.

import { execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import fs from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import type { Command } from 'commander';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { CommandContext } from '#server/context.ts';
import { createProgram } from '#server/program.ts';
import { until } from '../support/until.ts';
import { runHere, type StartedHere, startHere } from './here.ts';
import { address, getJson, MAIN, PASSED_ON, ROOT, run, type Started, start, temporaryHome } from './metis.ts';

let home: ReturnType<typeof temporaryHome>;
const running: Pick<Started, 'stop'>[] = [];
beforeEach(() => {
  home = temporaryHome();
});
afterEach(async () => {
  await Promise.all(running.splice(0).map((server) => server.stop('SIGKILL')));
  home.remove();
});

function serve(args: readonly string[] = [], env: Record<string, string> = {}): Started {
  const server = start(['serve', '--port', '0', ...args], { home: home.path, env });
  running.push(server);
  return server;
}
const refused = (args: readonly string[], env: Record<string, string> = {}) => run(args, { home: home.path, env });
/** In this process: a server that is asked and stopped. */
function serveHere(args: readonly string[] = [], env: Record<string, string> = {}): StartedHere {
  const server = startHere(['serve', '--port', '0', ...args], { home: home.path, env });
  running.push(server);
  return server;
}
/** In this process: what is refused with its configuration, and what only looks. */
const asked = (args: readonly string[], env: Record<string, string> = {}) => runHere(args, { home: home.path, env });
/** What is written for people: without the log's JSON lines. */
const lines = (text: string) => text.split('\n').filter((line) => line !== '' && !line.startsWith('{'));
async function post(url: string, body: unknown, headers: Record<string, string> = {}) {
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
  return { status: response.status, body: (await response.json()) as Record<string, unknown> };
}

it.runIf(process.features.typescript)('the server runs from source, the thread of its reports too', async () => {
  const server = start(['serve', '--port', '0'], { home: home.path, main: path.join(ROOT, 'src/main.ts') });
  running.push(server);
  expect(await getJson(`${await address(server)}/analytics/cost`)).toMatchObject({ warnings: [] });
  expect(server.output.stderr).not.toContain('"level":"error"');
});

describe.runIf(fs.existsSync('/proc/self/fd'))('reports', () => {
  // Promise 07.17: The server reads its reports over a thread of their own.
  it('are read over a connection of their own thread, which the first report opens', async () => {
    const server = serve();
    const url = await address(server);
    await getJson(`${url}/sessions`);
    const folder = `/proc/${server.child.pid}/fd`;
    const connections = () =>
      fs.readdirSync(folder).filter((fd) => {
        try {
          return fs.readlinkSync(path.join(folder, fd)).endsWith('/metis.db');
        } catch {
          return false;
        }
      }).length;
    const before = connections();
    expect(await getJson(`${url}/analytics/cost?group_by=none&from=all`)).toMatchObject({ totals: { call_count: 0 } });
    expect(connections()).toBe(before + 1);
    expect((await server.stop()).code).toBe(0);
  });
});

describe('a first start without any key', () => {
  // Promise 11.21: without key and configuration a message is answered by the demo scenario and costs money.
  it('says so in one plain sentence, answers through the scripted models, and counts real money', async () => {
    const server = serveHere();
    const url = await address(server);
    await server.line(/No provider key is configured, so simulated models answer/);
    expect(server.output.stdout.match(/listens on/g)).toHaveLength(1);

    const session = await post(`${url}/sessions`, { workspace_path: home.path });
    expect(session.status).toBe(201);
    const turn = await post(
      `${url}/sessions/${session.body.id}/turns`,
      { content: 'What now?' },
      { prefer: 'wait=60' },
    );
    expect(turn).toMatchObject({ status: 200, body: { status: 'completed' } });
    expect(turn.body.output).toContain('Both workers have reported');
    const cost = await getJson(`${url}/analytics/cost?group_by=parent_session&from=all`);
    expect(cost.data).toHaveLength(1);
    expect(cost.data[0]).toMatchObject({ parent_session_id: session.body.id, call_count: 4, worker_call_count: 2 });
    expect(cost.data[0].cost_usd).toMatch(/^0\.\d*[1-9]$/);
    expect(cost.data[0].worker_cost_usd).toMatch(/^0\.\d*[1-9]$/);
  });

  it('keeps everything below --data', async () => {
    const data = path.join(home.path, 'elsewhere');
    const server = serveHere(['--data', data]);
    await address(server);
    expect(fs.existsSync(path.join(data, 'metis.db'))).toBe(true);
    expect(fs.existsSync(path.join(home.path, '.metis'))).toBe(false);
  });
});

describe.runIf(fs.existsSync('/usr/bin/script'))('on a terminal', () => {
  /** All that a person sees until the sentence about keys, through a terminal of its own. */
  async function seen(rest: string): Promise<string> {
    const command = `'${process.execPath}' '${MAIN}' serve --port 0 ${rest}`;
    const terminal = spawn('/usr/bin/script', ['-qefc', command, '/dev/null'], {
      env: { ...PASSED_ON, HOME: home.path },
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    const closed = once(terminal, 'close');
    let text = '';
    for await (const part of terminal.stdout) {
      text += String(part);
      if (text.includes('for real ones.')) terminal.kill();
    }
    await closed;
    return text;
  }

  it('plain sentences come alone, and log lines when they are asked for', async () => {
    expect((await seen('')).trim().split(/\r?\n/)).toEqual([
      expect.stringMatching(/^Metis .* listens on (http:\S+), data in .*; the dashboard is at \1\/$/),
      expect.stringMatching(/^No provider key is configured/),
    ]);
    expect(await seen('--set log.level=warn')).toMatch(/"level":"warn".*no credentials configured for anthropic/);
  });
});

it('the address comes first, and the log lines of the start follow it', async () => {
  const both = path.join(home.path, 'both.log');
  const command = `exec '${process.execPath}' '${MAIN}' serve --port 0 > '${both}' 2>&1`;
  const server = spawn('sh', ['-c', command], { env: { ...PASSED_ON, HOME: home.path }, stdio: 'ignore' });
  try {
    await until(() => fs.existsSync(both) && fs.readFileSync(both, 'utf8').includes('for real ones.'));
  } finally {
    server.kill();
    await once(server, 'close');
  }
  const [first, ...rest] = fs.readFileSync(both, 'utf8').split('\n');
  expect(first).toMatch(/^Metis .* listens on http/);
  expect(rest.join('\n')).toMatch(/"msg":"no credentials configured for/);
});

describe('keys', () => {
  it('are read from a private .env, and are neither printed nor logged', async () => {
    const key = 'sk-ant-test-0123456789abcdef0123456789';
    const data = path.join(home.path, '.metis');
    fs.mkdirSync(data);
    fs.writeFileSync(path.join(data, '.env'), `ANTHROPIC_API_KEY=${key}\n`, { mode: 0o600 });
    const server = serveHere([], { METIS_LOG_LEVEL: 'trace' });
    const url = await address(server);
    const { models } = await getJson(`${url}/models`);
    expect(models.length).toBeGreaterThan(0);
    const { stdout, stderr } = await server.stop();
    expect(stdout).not.toContain('No provider key');
    expect(stdout + stderr).not.toContain(key);
    expect(stderr).not.toContain('no credentials configured for anthropic');
    expect(stderr.match(/no credentials configured/g)).toHaveLength(1);
    expect(stderr).toMatch(
      /no credentials configured for openai, openrouter; set OPENAI_API_KEY .*; set OPENROUTER_API_KEY/,
    );
  });

  // Promise 11.16: a .env that others can read is not read, with an error that says how to mend it; the server is up and the provider not configured.
  it('are not read from a .env that others can read; the server says how to mend it and starts', async () => {
    const data = path.join(home.path, '.metis');
    fs.mkdirSync(data);
    fs.writeFileSync(path.join(data, '.env'), 'ANTHROPIC_API_KEY=some-key\n');
    fs.chmodSync(path.join(data, '.env'), 0o644);
    const server = serveHere();
    const url = await address(server);
    await server.line(/No provider key is configured/);
    expect(server.output.stderr).toMatch(/"level":"error".*0644.*chmod 600/);
    const session = await post(`${url}/sessions`, {
      workspace_path: home.path,
      initial_active_model: 'anthropic:claude-haiku-4-5',
    });
    const turn = await post(`${url}/sessions/${session.body.id}/turns`, { content: 'hi' });
    expect(turn.status).toBe(422);
    expect(JSON.stringify(turn.body)).toContain('not_configured');
  });
});

it('an empty HOME is none: the data stay out of the current folder', async () => {
  const doctor = await run(['doctor', '--port', '0'], { home: home.path, env: { HOME: '' } });
  expect(doctor.stdout).toContain(`data folder ${path.join(os.userInfo().homedir, '.metis')}`);
});

describe('help', () => {
  it.each([
    [['help', 'routing', 'explain'], /^Usage: metis routing explain /],
    [['help', 'run'], /^Usage: metis run /],
    [['-v'], /^\d+\.\d+\.\d+\n$/],
    [['--version'], /^\d+\.\d+\.\d+\n$/],
  ])('%j is answered', async (args, pattern) => {
    expect(await refused(args)).toMatchObject({ code: 0, stdout: expect.stringMatching(pattern), stderr: '' });
  });

  it('shows an example of every command, on lines of at most 80 columns', () => {
    const everyCommand = (command: Command): Command[] => [command, ...command.commands.flatMap(everyCommand)];
    const [program, ...commands] = everyCommand(createProgram({ version: '1' } as CommandContext, () => {}));
    expect(commands.length).toBeGreaterThan(20);
    for (const command of [program!, ...commands]) {
      let text = '';
      command.configureOutput({ writeOut: (part) => (text += part), getOutHelpWidth: () => 80 }).outputHelp();
      expect(text).toMatch(command === program ? /\nBegin with:\n {2}\$ / : /\nExamples?:\n {2}\$ /);
      for (const line of text.split('\n')) expect(line.length, line).toBeLessThanOrEqual(80);
    }
  });

  it('says of every --server which server is asked without it', () => {
    const { commands } = createProgram({ version: '1' } as CommandContext, () => {});
    const told = commands.flatMap(({ options }) => options.filter(({ long }) => long === '--server'));
    expect(told.length).toBeGreaterThan(5);
    for (const { description } of told) expect(description).toContain('else the one of the data folder');
  });
});

describe('what keeps it from starting is one clear line each, without a stack trace', () => {
  const expectRefusal = (
    result: { code: number | null; stderr: string; stdout: string },
    pattern: RegExp,
    count = 1,
  ) => {
    expect(result.code).not.toBe(0);
    expect(result.stdout).toBe('');
    expect(lines(result.stderr)).toHaveLength(count);
    expect(result.stderr).toMatch(pattern);
    expect(result.stderr).not.toMatch(/\n\s+at /);
  };

  // Promise 17.5: a taken port is one clear line.
  it('a port that is taken', async () => {
    const other = net.createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => other.once('listening', resolve));
    const { port } = other.address() as net.AddressInfo;
    const result = await refused(['serve', '--port', String(port)]);
    other.close();
    expectRefusal(result, new RegExp(`port ${port} on 127.0.0.1 is taken; .*--port`));
  });

  // Promise 17.5: an unwritable data folder is one clear line.
  it('a data folder that cannot be made', async () => {
    fs.writeFileSync(path.join(home.path, 'file'), '');
    expectRefusal(
      await asked(['serve', '--port', '0', '--data', path.join(home.path, 'file/data')]),
      /database_unwritable/,
    );
  });

  it.runIf(fs.existsSync('/proc/self'))('a data folder where none can ever be made', async () => {
    for (const data of ['/proc/nope', '/proc/nope/deeper']) {
      expectRefusal(await asked(['serve', '--port', '0', '--data', data]), /database_unwritable: .*ENOENT.*storage/);
    }
  });

  // Promise 17.5: broken YAML is one clear line.
  it('broken YAML', async () => {
    const file = path.join(home.path, 'server.yaml');
    fs.writeFileSync(file, 'server: [\n');
    expectRefusal(await asked(['serve', '--config', file]), /server\.yaml: malformed YAML: .*line \d/);
  });

  it('a list that is no JSON, with how one is written', async () => {
    const token = { METIS_SERVER_AUTH_TOKENS: 't'.repeat(32) };
    expectRefusal(
      await asked(['serve', '--port', '0'], token),
      /environment METIS_SERVER_AUTH_TOKENS: server\.auth_tokens: must be .*; a list is written as JSON, like '\["one"/,
    );
  });

  it('a temporary folder of the demo that cannot be written', async () => {
    expectRefusal(
      await refused(['demo'], { TMPDIR: '/nope/at/all' }),
      /^metis: the temporary folder \/nope\/at\/all cannot be written \(ENOENT\); name one in TMPDIR$/m,
    );
  });

  // Promise 17.5: an unknown flag is one clear line.
  it('an unknown flag', async () => {
    // And where the right ones are listed.
    expectRefusal(await refused(['serve', '--nope']), /unknown option '--nope'\nmetis help serve shows/, 2);
  });

  // Promise 17.5: a missing key of a chosen provider is one clear line.
  it('a missing key of a provider that was asked for', async () => {
    expectRefusal(await asked(['demo', '--provider', 'anthropic']), /--provider anthropic: set ANTHROPIC_API_KEY/);
  });

  // Promise 05.20: a reachable address needs tokens and workspace roots, one line says so.
  it('a reachable address without tokens or without workspace roots', async () => {
    const tokens = { METIS_SERVER_AUTH_TOKENS: JSON.stringify(['t'.repeat(32)]) };
    expectRefusal(
      await asked(['serve', '--host', '0.0.0.0', '--port', '0']),
      /server\.auth_tokens and server\.workspace_roots/,
    );
    expectRefusal(
      await asked(['serve', '--host', '0.0.0.0', '--port', '0'], tokens),
      /set server\.workspace_roots first/,
    );
  });

  // Promise 15.2: every configuration fault stops the start with one line that names source, key and reason.
  it('several faults of the configuration, one line each', async () => {
    const file = path.join(home.path, 'server.yaml');
    fs.writeFileSync(file, 'delegation: { max_dept: 2, max_depth: 9 }\nrecovery: { on_start: mark }\n');
    const result = await asked(['serve', '--config', file], { METIS_NOPE: '1' });
    expectRefusal(result, /METIS_NOPE/, 4);
    expect(result.stderr).toMatch(/delegation\.max_dept: unknown key; did you mean "delegation\.max_depth"/);
    fs.writeFileSync(file, 'delegation: { max_depth: 2, delegate_depth: 3 }\n');
    expectRefusal(await asked(['serve', '--config', file]), /delegation\.delegate_depth: must not be above/);
  });

  // Promise 11.19: unknown adapter key, inline api_key and duplicate alias stop the start, naming the path.
  it('a registry that breaks its rules', async () => {
    const file = path.join(home.path, 'registry.yaml');
    const model = '{ aliases: [twin], adapter: b, capabilities: { max_context_tokens: 1, max_output_tokens: 1 } }';
    fs.writeFileSync(
      file,
      `adapters: { a: { type: anthropic, api_key: secret, nope: 1 }, b: { type: openai } }\nmodels: { "b:1": ${model}, "b:2": ${model} }\n`,
    );
    const result = await asked(['serve', '--set', `registry.path=${file}`]);
    expectRefusal(result, /adapters\.a\.api_key: .*environment/, 3);
    expect(result.stderr).toMatch(/adapters\.a.*nope/);
    expect(result.stderr).toMatch(/twin/);
    expect(result.stderr).not.toContain('secret');
  });
});

// Promise 05.20: with both, requests need a token and /healthz does not.
it('with tokens and workspace roots a reachable address is served, to callers with a token only', async () => {
  const token = 't'.repeat(32);
  const server = serveHere(['--host', '0.0.0.0'], {
    METIS_SERVER_AUTH_TOKENS: JSON.stringify([token]),
    METIS_SERVER_WORKSPACE_ROOTS: JSON.stringify([home.path]),
  });
  const url = (await address(server)).replace('0.0.0.0', '127.0.0.1');
  expect((await fetch(`${url}/healthz`)).status).toBe(200);
  expect((await fetch(`${url}/sessions`)).status).toBe(401);
  expect((await fetch(`${url}/sessions`, { headers: { authorization: `Bearer ${token}` } })).status).toBe(200);
});

// Promise 23.1: a token made beside the stopped server alone protects a bind beyond loopback; without one the start is refused.
it('a reachable address with a token of the database alone is served, to callers with that token only', async () => {
  const data = path.join(home.path, 'data');
  fs.mkdirSync(data);
  fs.writeFileSync(path.join(data, 'server.yaml'), `server: { host: 0.0.0.0, workspace_roots: ["${home.path}"] }\n`);
  const bare = await asked(['serve', '--port', '0', '--data', data]);
  expect(bare.code).toBe(1);
  expect(bare.stderr).toMatch(
    /^metis: .*no token protects it; set server\.auth_tokens or run metis token create NAME --role admin --data DIR/m,
  );
  const made = await asked(['token', 'create', 'root', '--role', 'admin', '--data', data, '--json']);
  expect(made.code).toBe(0);
  const { secret } = JSON.parse(made.stdout) as { secret: string };
  const server = serveHere(['--data', data]);
  const url = (await address(server)).replace('0.0.0.0', '127.0.0.1');
  const statusWith = async (headers: Record<string, string>, at = '/sessions') =>
    (await fetch(`${url}${at}`, { headers })).status;
  expect(await statusWith({}, '/healthz')).toBe(200);
  for (const at of ['/sessions', '/metrics', '/v1/models', '/mcp?workspace=/'])
    expect([at, await statusWith({}, at)]).toEqual([at, 401]);
  expect(await statusWith({ authorization: `Bearer ${secret}x` })).toBe(401);
  expect(await statusWith({ authorization: `Bearer ${secret}` })).toBe(200);
});

// Promise 23.1: one token has one name and one role: the configuration lists it once.
it('a token that the configuration lists twice is refused at the start, with both places', async () => {
  const token = 't'.repeat(32);
  const token_sha256 = createHash('sha256').update(token).digest('hex');
  const file = path.join(home.path, 'server.yaml');
  const entry = { token_sha256, role: 'viewer' };
  for (const [first, second, config] of [
    [
      'server.tokens.ann',
      'server.tokens.bob',
      { server: { tokens: { ann: entry, bob: { ...entry, role: 'admin' } } } },
    ],
    ['server.auth_tokens[0]', 'server.tokens.ann', { server: { auth_tokens: [token], tokens: { ann: entry } } }],
    [
      'server.tokens.ann',
      'gateway.keys.ci',
      { server: { tokens: { ann: entry } }, gateway: { keys: { ci: { token_sha256 } } } },
    ],
  ] as const) {
    fs.writeFileSync(file, JSON.stringify(config));
    const start = await asked(['serve', '--port', '0', '--config', file]);
    expect([start.code, start.stderr]).toEqual([
      1,
      expect.stringContaining(`${first} and ${second} are the same token`),
    ]);
    expect(start.stderr).not.toContain(token_sha256);
  }
});

it('a reachable server says at its start which names it serves and how to add one, and then serves that one', async () => {
  const names = { METIS_SERVER_AUTH_TOKENS: JSON.stringify(['t'.repeat(32)]), METIS_SERVER_WORKSPACE_ROOTS: '["/"]' };
  const asked = async (url: string, host: string) => {
    const { port, hostname } = new URL(url);
    const request = http.get({ hostname, port, path: '/healthz', headers: { host: `${host}:${port}` } });
    const [answer] = (await once(request, 'response')) as [http.IncomingMessage];
    answer.resume();
    return answer.statusCode;
  };
  const first = serveHere(['--host', '0.0.0.0'], names);
  const url = (await address(first)).replace('0.0.0.0', '127.0.0.1');
  const told = await first.line(/^It serves requests to (.*?) and answers 403 .*--set '(server\.allowed_hosts=.*)'/m);
  expect(told[1]).toBe('localhost, 127.0.0.1, [::1], 0.0.0.0');
  for (const name of told[1]!.split(', ')) expect(await asked(url, name)).toBe(200);
  expect(await asked(url, '192.168.1.5')).toBe(403);
  await first.stop();

  const second = serveHere(['--host', '0.0.0.0', '--set', told[2]!], names);
  const again = (await address(second)).replace('0.0.0.0', '127.0.0.1');
  expect((await second.line(/^It serves requests to (.*?) and/m))[1]).toBe(`${told[1]}, 192.168.1.5`);
  expect(await asked(again, '192.168.1.5')).toBe(200);
  await second.stop();

  const local = serveHere();
  await address(local);
  expect((await local.stop()).stdout).not.toContain('It serves requests');
});

// Promise 01.2: a second server on the same file ends with database_in_use and disturbs nobody.
it('a second server on the same file ends with database_in_use and disturbs nobody', async () => {
  const first = serve();
  const url = await address(first);
  const second = await refused(['serve', '--port', '0']);
  expect(second.code).not.toBe(0);
  expect(lines(second.stderr).filter((line) => line.includes('database_in_use'))).toHaveLength(1);
  expect((await fetch(`${url}/readyz`)).status).toBe(200);
  expect((await post(`${url}/sessions`, { workspace_path: home.path })).status).toBe(201);
});

it('SIGTERM ends it with exit code 0, and the next start finds everything', async () => {
  const first = serve();
  const session = await post(`${await address(first)}/sessions`, { workspace_path: home.path });
  expect((await first.stop('SIGTERM')).code).toBe(0);
  const url = await address(serve());
  expect((await fetch(`${url}/sessions/${session.body.id}`)).status).toBe(200);
});

describe('metis config check', () => {
  it('accepts what the server would accept and names the files', async () => {
    const result = await asked(['config', 'check']);
    expect(result).toMatchObject({ code: 0, stderr: '' });
    expect(result.stdout).toMatch(/configuration ok/);
    expect(result.stdout).toMatch(/registry ok: .*config\/registry\.yaml/);
  });
  it('refuses what the server would refuse', async () => {
    const result = await asked(['config', 'check', '--set', 'server.port=x']);
    expect(result.code).toBe(1);
    expect(result.stderr).toMatch(/--set: server\.port: /);
  });
});

describe('metis doctor', () => {
  it('tells for every part whether it is in order and what to do, and never shows a key', async () => {
    const result = await asked(['doctor', '--port', '0'], { ANTHROPIC_API_KEY: 'sk-ant-0123456789abcdef0123' });
    expect(result.code).toBe(0);
    expect(result.stdout).toMatch(/^ok +anthropic: key found$/m);
    expect(result.stdout).toMatch(/^ok +openai: not used, OPENAI_API_KEY is not set$/m);
    expect(result.stdout).toMatch(/^ok +all \d+ models of .* have prices/m);
    expect(result.stdout).toMatch(/^ok +ripgrep \d/m);
    expect(result.stdout).not.toContain('sk-ant');
  });
  it('reports whether git will do for worktrees: its version, or why not', async () => {
    const doctor = (env: Readonly<Record<string, string>>, ...set: string[]) =>
      refused(['doctor', '--port', '0', ...set.flatMap((one) => ['--set', one])], env);
    const version = execFileSync('git', ['version'], { encoding: 'utf8' }).match(/\d+\.\d+(\.\d+)*/)![0];
    expect((await doctor({})).stdout).toContain(`git ${version}: workers can have worktrees`);
    const isolated = await doctor({}, 'delegation.isolation=worktree');
    expect([isolated.code, isolated.stdout]).toEqual([0, expect.stringMatching(/^ok +git \d/m)]);
    expect(isolated.stdout).toMatch(
      /^warning +delegation\.isolation is "worktree", but commands run without a sandbox/m,
    );
    const bin = path.join(home.path, 'bin');
    fs.mkdirSync(bin);
    const old = { PATH: `${bin}:${process.env.PATH}` };
    fs.writeFileSync(path.join(bin, 'git'), '#!/bin/sh\necho git version 2.37.9\n', { mode: 0o755 });
    const problem = 'git 2.38 or newer is needed, this is git version 2.37.9: workers cannot have worktrees';
    expect(await doctor(old)).toMatchObject({ code: 0, stdout: expect.stringMatching(`warning +${problem}`) });
    expect(await doctor(old, 'delegation.isolation=worktree')).toMatchObject({
      code: 1,
      stdout: expect.stringMatching(`error +${problem}`),
    });
    expect((await doctor({ PATH: home.path })).stdout).toMatch(
      /^warning +git is not installed: workers cannot have worktrees/m,
    );
  });
  it('warns that commands can read the keys where there are keys and no sandbox', async () => {
    const warning = /^warning +commands of the shell tool .*tools\.shell\.sandbox to "required"$/m;
    const doctor = async (args: readonly string[], env = {}) =>
      (await asked(['doctor', '--port', '0', ...args], env)).stdout;
    const keys = { OPENAI_API_KEY: 'some-key' };
    expect(await doctor([], keys)).toMatch(warning);
    expect(await doctor([])).not.toMatch(warning);
    expect(await doctor(['--set', 'tools.shell.sandbox=required'], keys)).not.toMatch(warning);
  });
  it('lists the configured MCP servers, without what may be secret of them', async () => {
    const servers = {
      node: { transport: 'stdio', command: process.execPath, args: ['--token=hush'] },
      gone: { transport: 'stdio', command: 'metis-no-such-program' },
      web: { transport: 'http', url: 'https://example.com/mcp?key=hush', headers: { Authorization: 'hush' } },
      off: { transport: 'stdio', command: 'metis-no-such-program', enabled: false },
    };
    const set = ['--set', `mcp_servers=${JSON.stringify(servers)}`, '--set', 'mcp.project_files=true'];
    const { stdout, code } = await asked(['doctor', '--port', '0', ...set]);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^ok +MCP server node runs .*node$/m);
    expect(stdout).toMatch(
      /^warning +MCP server gone: metis-no-such-program is not there; install it or change mcp_servers\.gone\.command$/m,
    );
    expect(stdout).toMatch(/^ok +MCP server web at https:\/\/example\.com$/m);
    expect(stdout).toMatch(/^ok +MCP server off is switched off$/m);
    expect(stdout).toMatch(/^ok +the \.mcp\.json of a workspace is read/m);
    expect(stdout).not.toContain('hush');
  });
  it('names the field of an MCP server that is wrong', async () => {
    const wrong = async (server: unknown) =>
      (await asked(['doctor', '--set', `mcp_servers=${JSON.stringify({ fix: server })}`])).stderr;
    expect(await wrong({ transport: 'stdio' })).toContain('mcp_servers.fix.command: is required');
    expect(await wrong({ transport: 'pigeon' })).toContain('mcp_servers.fix.transport: must be one of "stdio", ');
    expect(await wrong({ transport: 'stdio', command: 'x', url: 'https://x' })).toContain(
      'mcp_servers.fix.url: is not',
    );
    expect(await wrong({ transport: 'stdio', command: 'x', tols: {} })).toContain('mcp_servers.fix.tols: unknown key');
  });
  it('ends with 1 when the server could not start', async () => {
    const data = path.join(home.path, '.metis');
    fs.mkdirSync(data);
    fs.writeFileSync(path.join(data, 'registry.yaml'), 'models: []\n');
    expect((await asked(['doctor', '--port', '0'])).code).toBe(1);
  });
});

it('every command explains itself with an example', async () => {
  for (const command of [['serve'], ['demo'], ['doctor'], ['config', 'check']]) {
    const result = await asked([...command, '--help']);
    expect(result.code).toBe(0);
    expect(result.stdout).toContain(`$ metis ${command.join(' ')}`);
  }
});

const SOMAXCONN = '/proc/sys/net/core/somaxconn';
const allowed = fs.existsSync(SOMAXCONN) ? Number(fs.readFileSync(SOMAXCONN, 'utf8')) : 0;
it.runIf(allowed >= 4096)('a crowd that comes at once waits to be taken and is not turned away', async () => {
  const server = serve();
  const { hostname, port } = new URL(await address(server));
  server.child.kill('SIGSTOP');
  const sockets = Array.from({ length: 2000 }, () => net.connect(Number(port), hostname).on('error', () => {}));
  try {
    // Nobody takes them: only the queue of the system does.
    await Promise.all(sockets.map((socket) => once(socket, 'connect')));
  } finally {
    for (const socket of sockets) socket.destroy();
    server.child.kill('SIGCONT');
  }
});
