// Doors as processes: one server for all of them, frames alone on stdout, and strangers on stdin and at /mcp (19 §5).
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import path from 'node:path';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import {
  acpIn,
  acpProcess,
  atSuiteEnd,
  clientOf,
  doorHome,
  type Home,
  mcpOverHttp,
  mcpOverStdio,
  serveIn,
  serveProcessIn,
  usage,
} from '../support/doors.ts';
import { until } from '../support/until.ts';
import { MAIN, NODE_FLAGS } from './metis.ts';

const ALWAYS = [{ match: {}, times: 'inf', respond: { text: 'done', usage } }];
const HANGS = [{ match: { role: 'worker' }, respond: { hang: true } }];
const DELEGATE = { name: 'delegate', arguments: { tier: 'fast', task: 'do it' } };

const serverFile = (home: Home) => path.join(home.data, 'server.json');
const owner = (home: Home) => JSON.parse(fs.readFileSync(serverFile(home), 'utf8')) as { pid: number; url: string };
const isFrame = (line: string) => (JSON.parse(line) as { jsonrpc?: unknown }).jsonrpc === '2.0';

describe('several doors on one data folder', () => {
  // Promise 19.23: three at once end with one server, and outlive its owner.
  test('three at once end with one server, and when its owner ends the others go on', async () => {
    const home = doorHome(ALWAYS);
    const editors = await Promise.all([acpProcess(home), acpProcess(home), acpProcess(home)]);
    const sessions = await Promise.all(editors.map((editor) => editor.open()));
    const { pid } = owner(home);
    const at = editors.findIndex(({ child }) => child.pid === pid);
    expect(at).toBeGreaterThanOrEqual(0);
    expect(fs.statSync(serverFile(home)).mode & 0o777).toBe(0o600);
    const listed = await (await until(() => clientOf(home))).listSessions();
    expect(listed.sessions.map(({ id }) => id).sort()).toEqual(sessions.map(({ sessionId }) => sessionId).sort());

    expect(await editors[at]!.end()).toBe(0);
    const others = editors.filter((_, i) => i !== at);
    const answers = await Promise.all(
      others.map((editor) => editor.say(sessions[editors.indexOf(editor)]!.sessionId, 'still there?')),
    );
    expect(answers).toEqual([{ stopReason: 'end_turn' }, { stopReason: 'end_turn' }]);
    expect(others.map(({ child }) => child.pid)).toContain(owner(home).pid);
  });

  // Promise 19.23: whoever takes over resumes what ran.
  test('a turn of another editor is resumed by whoever takes over', async () => {
    const home = doorHome([{ match: {}, times: 'inf', respond: { text: 'done', usage, delay_ms: 3000 } }]);
    const first = await acpProcess(home);
    const second = await acpIn(home);
    const { sessionId } = await second.open();
    const prompt = second.say(sessionId, 'go');
    const metis = await until(() => clientOf(home));
    await until(async () => (await metis.getSession(sessionId)).status === 'running');
    first.child.kill('SIGKILL');
    expect(await prompt).toEqual({ stopReason: 'end_turn' });
  });

  test('a server that runs is asked, and none is started', async () => {
    const home = doorHome(ALWAYS);
    const { url, client } = await serveIn(home);
    const { client: mcp } = await mcpOverStdio(home);
    expect(owner(home).url).toBe(url);
    expect((await mcp.callTool(DELEGATE)).structuredContent).toMatchObject({ output: 'done' });
    expect((await client.listSessions()).sessions).toMatchObject([{ door: 'mcp' }]);
  });

  test('a server that cannot start is a line on stderr and exit code 1', async () => {
    const home = doorHome(ALWAYS);
    fs.writeFileSync(path.join(home.data, 'server.yaml'), 'server: { port: nope }');
    const { code, stdout, stderr } = await talk(home, ['acp'], []);
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toContain('server.port');
  });
});

/** Less than the limit of a test: on a busy machine 11 MiB take their time. */
const PATIENCE_SECONDS = 170;

/** Writes the lines, ends stdin once `enough` says so, and waits for the end. */
async function talk(home: Home, args: string[], lines: readonly string[], enough = (_: string) => true) {
  const child = spawn(process.execPath, [...NODE_FLAGS, MAIN, ...args], { cwd: home.path, env: home.env });
  onTestFinished(() => void child.kill('SIGKILL'));
  let stdout = '';
  let stderr = '';
  child.stderr.on('data', (chunk) => {
    stderr += chunk;
  });
  child.stdout.on('data', (chunk) => {
    stdout += chunk;
  });
  child.stdin.on('error', () => {});
  const closed = once(child, 'close') as Promise<[number | null]>;
  for (const line of lines) child.stdin.write(`${line}\n`);
  await Promise.race([until(() => enough(stdout), PATIENCE_SECONDS), closed]);
  child.stdin.end();
  const [code] = await closed;
  return { code, stdout, stderr, lines: stdout.split('\n').filter(Boolean) };
}
const request = (id: number, method: string, params: object) => JSON.stringify({ jsonrpc: '2.0', id, method, params });
const MCP_HELLO = [
  request(1, 'initialize', {
    protocolVersion: '2025-11-25',
    capabilities: {},
    clientInfo: { name: 't', version: '1' },
  }),
  JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' }),
];
const ACP_HELLO = [request(1, 'initialize', { protocolVersion: 1, clientCapabilities: {} })];
const GARBAGE = ['nonsense', '{"a":', '[]', '{}', '42', 'null', '"text"', '\u0000\ufffd', '{"jsonrpc":"2.0","id":7}'];
const saw = (id: number) => (stdout: string) => stdout.includes(`"id":${id}`);

describe('stdout', () => {
  // Promise 19.24: stdout is frames only.
  test.each([
    ['mcp', [...MCP_HELLO, request(2, 'tools/call', DELEGATE)]],
    ['acp', [...ACP_HELLO, request(2, 'session/new', { cwd: '.', mcpServers: [] })]],
  ])('of metis %s is frames only, at log.level trace too', async (door, lines) => {
    const home = doorHome(ALWAYS);
    // To make one is what the log tells.
    fs.rmSync(path.join(home.data, 'metis.db'));
    const said = lines.map((line) => line.replace('"cwd":"."', `"cwd":${JSON.stringify(home.workspace)}`));
    const { code, lines: out, stderr } = await talk(home, [door, '--set', 'log.level=trace'], said, saw(2));
    expect(code).toBe(0);
    expect(out.length).toBeGreaterThanOrEqual(2);
    expect(out.filter((line) => !isFrame(line))).toEqual([]);
    expect(stderr).toContain('"level":"info"');
  });
});

describe('stdin', () => {
  const atEnd = atSuiteEnd();
  let home: Home;
  beforeAll(async () => {
    home = doorHome(ALWAYS, {}, atEnd);
    await serveIn(home);
  });

  test.each([
    ['mcp', [...MCP_HELLO, ...GARBAGE, request(9, 'tools/list', {})]],
    ['acp', [...ACP_HELLO, ...GARBAGE, request(9, 'session/list', {})]],
  ])('garbage before a request of metis %s is no end of it', async (door, lines) => {
    const { code, lines: out, stderr } = await talk(home, [door], lines, saw(9));
    expect(code).toBe(0);
    // A line for each complaint, and no dump of a schema.
    expect(stderr.split('\n').filter((line) => /^[\s\]]/.test(line))).toEqual([]);
    const answer = out.map((line) => JSON.parse(line) as { id?: unknown; result?: object }).find(({ id }) => id === 9);
    expect(answer?.result).toBeDefined();
    expect(out.filter((line) => !isFrame(line))).toEqual([]);
  });

  // Promise 19.24: a frame of more than 10 MB ends the door.
  test.each([
    ['mcp', MCP_HELLO],
    ['acp', ACP_HELLO],
  ])('a message of 11 MiB ends metis %s', async (door, hello) => {
    const large = request(2, 'x'.repeat(11 * 1024 * 1024), {});
    // Never enough: only the door itself ends this.
    const { code, lines } = await talk(home, [door], [...hello, large], () => false);
    expect(code).toBe(0);
    expect(lines.filter((line) => line.includes('"id":2'))).toEqual([]);
  });

  test.each([
    ['mcp', MCP_HELLO],
    ['acp', ACP_HELLO],
  ])('a line without end of metis %s is not read to its end', async (door, hello) => {
    const child = spawn(process.execPath, [...NODE_FLAGS, MAIN, door], { cwd: home.path, env: home.env });
    onTestFinished(() => void child.kill('SIGKILL'));
    child.stdin.on('error', () => {});
    child.stdout.resume();
    child.stderr.resume();
    const closed = once(child, 'close') as Promise<[number | null]>;
    for (const line of hello) child.stdin.write(`${line}\n`);
    let over = false;
    void closed.then(() => {
      over = true;
    });
    const chunk = 'x'.repeat(1024 * 1024);
    for (let i = 0; i < 200 && !over; i++)
      if (!child.stdin.write(chunk)) await Promise.race([once(child.stdin, 'drain').catch(() => {}), closed]);
    expect((await closed)[0]).toBe(0);
  });
});

describe('a client that dies in mid-call', () => {
  test('has its worker cancelled, and the process ends', async () => {
    const home = doorHome(HANGS);
    const { client: metis } = await serveIn(home);
    const lines = [...MCP_HELLO, request(2, 'tools/call', DELEGATE)];
    let worker: string | null = null;
    const looking = (async () => {
      worker = await until(() => running(metis));
    })();
    const { code } = await talk(home, ['mcp', '--workspace', home.workspace], lines, () => worker !== null);
    await looking;
    expect(code).toBe(0);
    expect((await metis.getSession(worker!)).disposition).toBe('cancelled');
  });
});

async function running(metis: Awaited<ReturnType<typeof serveIn>>['client']): Promise<string | null> {
  const { sessions } = await metis.listSessions({ include_workers: true });
  return sessions.find(({ is_worker }) => is_worker)?.id ?? null;
}

test('a server that dies in mid-call finishes it after its restart, and the call is answered', async () => {
  const home = doorHome([
    { match: { role: 'worker' }, times: 'inf', respond: { text: 'at last', usage, delay_ms: 2000 } },
  ]);
  const first = await serveProcessIn(home);
  const { client } = await mcpOverStdio(home);
  const call = client.callTool(DELEGATE);
  const worker = await until(() => running(first.client));
  await until(async () => (await first.client.listEvents(worker, { types: ['llm.call_started'] })).events.length > 0);
  await first.server.stop('SIGKILL');
  const second = await serveIn(home);
  expect((await call).structuredContent).toMatchObject({ success: true, output: 'at last', worker_session_id: worker });
  expect((await second.client.listSessions({ include_workers: true })).sessions).toHaveLength(2);
});

test('a server that wants a token tells a door without one, and takes METIS_TOKEN', async () => {
  const token = 'a-token-of-thirty-two-characters-or-more';
  const home = doorHome(ALWAYS, { server: { auth_tokens: [token] } });
  const { url } = await serveIn(home);
  const { client: without } = await mcpOverStdio(home, { args: ['--server', url] });
  expect(await without.callTool({ name: 'cost', arguments: {} })).toMatchObject({
    isError: true,
    content: [{ text: expect.stringMatching(/^unauthorized: /) }],
  });
  const { client: authorised } = await mcpOverStdio(home, { args: ['--server', url], env: { METIS_TOKEN: token } });
  expect((await authorised.callTool(DELEGATE)).structuredContent).toMatchObject({ output: 'done' });
});

test('two clients at once have a session and a limit each', async () => {
  const home = doorHome(ALWAYS);
  const both = await Promise.all(['1', '2'].map((usd) => mcpOverStdio(home, { args: ['--budget', usd] })));
  const calls = both.flatMap(({ client }) => Array.from({ length: 4 }, () => client.callTool(DELEGATE)));
  for (const { structuredContent } of await Promise.all(calls))
    expect(structuredContent).toMatchObject({ success: true });
  const { sessions } = await (await until(() => clientOf(home))).listSessions();
  expect(sessions.map(({ max_cost_usd, worker_count }) => [max_cost_usd, worker_count]).sort()).toEqual([
    ['1', 4],
    ['2', 4],
  ]);
});

describe('/mcp', () => {
  const init = MCP_HELLO[0]!;
  const headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
  const post = (url: string, more: Record<string, string> = {}, body = init, target = '/mcp?workspace=/tmp') =>
    fetch(`${url}${target}`, { method: 'POST', headers: { ...headers, ...more }, body });

  test('needs the token, the right host and no foreign origin', async () => {
    const token = 'a-token-of-thirty-two-characters-or-more';
    const another = 'another-token-of-thirty-two-characters-or-more';
    const home = doorHome(ALWAYS, { server: { auth_tokens: [token, another] } });
    const { url } = await serveIn(home);
    expect((await post(url)).status).toBe(401);
    expect((await post(url, { authorization: `Bearer ${token}x` })).status).toBe(401);
    const authorization = `Bearer ${token}`;
    expect((await post(url, { authorization, origin: 'https://evil.example' })).status).toBe(403);
    expect((await post(url, { authorization })).status).toBe(200);
    const { client } = await mcpOverHttp(url, home, { token });
    expect((await client.callTool(DELEGATE)).structuredContent).toMatchObject({ output: 'done' });
    // Another caller's session is none.
    const opened = await post(url, { authorization });
    const session = opened.headers.get('mcp-session-id')!;
    await opened.body?.cancel();
    expect(session).toMatch(/^[0-9a-f-]{36}$/);
    const list = async (bearer: string) => {
      const known = { 'mcp-session-id': session, 'mcp-protocol-version': '2025-11-25' };
      const answer = await post(url, { authorization: `Bearer ${bearer}`, ...known }, request(2, 'tools/list', {}));
      return [answer.status, await answer.text()];
    };
    expect(await list(another)).toEqual([404, expect.stringContaining('no session with this id')]);
    expect(await list(token)).toEqual([200, expect.stringContaining('"delegate"')]);
  });

  test('a foreign host is refused', async () => {
    const { url } = await serveIn(doorHome(ALWAYS));
    const { default: http } = await import('node:http');
    const status = await new Promise<number | undefined>((resolve, reject) => {
      const sent = http.request(`${url}/mcp?workspace=/tmp`, {
        method: 'POST',
        headers: { ...headers, host: 'evil.example' },
      });
      sent.on('response', ({ statusCode }) => resolve(statusCode)).on('error', reject);
      sent.end(init);
    });
    expect(status).toBe(403);
  });

  test('what is no request of the protocol gets one plain answer', async () => {
    const { url } = await serveIn(doorHome(ALWAYS));
    const status = async (...args: [Record<string, string>?, string?, string?]) => (await post(url, ...args)).status;
    expect(await status({}, init, '/mcp')).toBe(400);
    expect(await status({}, init, '/mcp?workspace=/tmp&budget_usd=-1')).toBe(400);
    expect(await status({}, '{"jsonrpc"')).toBe(400);
    expect(await status({}, '[]')).toBe(400);
    expect(await status({}, JSON.stringify({ a: 1 }))).toBe(400);
    expect(await status({ 'mcp-session-id': 'nope' }, request(2, 'tools/list', {}))).toBe(404);
    expect(await status({}, request(2, 'tools/list', {}))).toBe(400);
    expect(await status({ 'content-type': 'text/plain' })).toBe(415);
    expect((await fetch(`${url}/mcp?workspace=/tmp`, { method: 'PUT' })).status).toBe(405);
    const deep = `${'['.repeat(200)}${']'.repeat(200)}`;
    expect(await status({}, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":${deep}}`)).toBe(400);
    expect(
      await status({}, JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'x', params: 'x'.repeat(11_000_000) })),
    ).toBe(413);
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
  });

  test('can be closed by configuration', async () => {
    const { url } = await serveIn(doorHome(ALWAYS), '--set', 'mcp.serve=false');
    expect((await post(url)).status).toBe(404);
  });
});
