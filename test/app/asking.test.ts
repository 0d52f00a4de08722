// `metis sessions`, `metis cost`, `metis events`: tables for people, JSON for programs, against real servers.
import { spawn } from 'node:child_process';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createMetisClient } from '#client/client.ts';
import { DIMENSIONS } from '#protocol/analytics.ts';
import { until } from '../support/until.ts';
import { runHere, type StartedHere, startHere } from './here.ts';
import { address, MAIN, PASSED_ON, type Started, start, temporaryHome } from './metis.ts';

let home: ReturnType<typeof temporaryHome>;
const running: Pick<Started, 'stop'>[] = [];
beforeEach(() => {
  home = temporaryHome();
});
afterEach(async () => {
  await Promise.all(running.splice(0).map((process) => process.stop('SIGKILL')));
  home.remove();
});
function keep(args: readonly string[], env: Record<string, string> = {}): StartedHere {
  const started = startHere(args, { home: home.path, env });
  running.push(started);
  return started;
}
const serve = (port = '0') => keep(['serve', '--port', port]);
const ask = (url: string, ...args: string[]) => runHere([...args, '--server', url], { home: home.path });

/** A server with one session, whose planner has worked with a worker. */
async function worked() {
  const server = serve();
  const url = await address(server);
  const client = createMetisClient({ baseUrl: url });
  const session = await client.createSession({ workspace_path: home.path });
  for await (const _ of client.turn(session.id, { content: 'Look at this.' }));
  return { server, url, client, session };
}

/** What a terminal of `columns` shows: script(1) gives the command one of its own. */
function onTerminal(columns: number, command: string, env: Record<string, string> = {}): Promise<string> {
  const child = spawn('script', ['-qec', `stty cols ${columns}; ${process.execPath} ${MAIN} ${command}`, '/dev/null'], {
    cwd: home.path,
    env: { ...PASSED_ON, HOME: home.path, TERM: 'xterm', ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let text = '';
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk;
  });
  return new Promise((resolve) => child.once('close', () => resolve(text)));
}
const ESCAPES = new RegExp(`${String.fromCharCode(27)}\\[[0-9;?]*[a-zA-Z]`, 'g');

describe('without an address', () => {
  const sessions = (...args: string[]) => runHere(['sessions', '--json', ...args], { home: home.path });

  // Promise 19.23: a command without an address asks the server of its data folder.
  it('the server of the data folder is asked, wherever it listens', async () => {
    const { session } = await worked();
    const own = await sessions();
    expect([own.code, JSON.parse(own.stdout).id]).toEqual([0, session.id]);
    const data = path.join(home.path, 'other');
    const other = createMetisClient({ baseUrl: await address(keep(['serve', '--port', '0', '--data', data])) });
    const { id } = await other.createSession({ workspace_path: home.path });
    const named = await sessions('--data', data);
    expect([named.code, JSON.parse(named.stdout).id]).toEqual([0, id]);
  });

  it('a data folder without a server is not mistaken for that of another', async () => {
    await worked();
    const data = path.join(home.path, 'empty');
    const { code, stdout, stderr } = await sessions('--data', data);
    expect([code, stdout, stderr]).toEqual([1, '', expect.stringContaining(`no server answers for ${data}`)]);
  });
});

describe('sessions and cost', () => {
  it('are tables in a file and on terminals of 80 and 140 columns, and JSON with --json', async () => {
    const { url, client, session } = await worked();
    const shown = await client.getSession(session.id);
    const { totals } = await client.getCost();
    // What has no title yet goes by the name that its client gave it.
    const kept = { door: 'mcp', client: 'an-editor', client_ref: 'build-42' } as const;
    const named = await client.createSession({ workspace_path: home.path, ...kept });

    const sessions = await ask(url, 'sessions');
    expect(sessions.stdout).toMatch(new RegExp(`^${named.id} +an-editor build-42 `, 'm'));
    expect(sessions.stdout.split('\n')[0]).toMatch(/^session +title +state +model +workers +cost +active$/);
    expect(sessions.stdout).toContain(session.id);
    expect(sessions.stdout).toMatch(/idle/);
    expect(sessions.code).toBe(0);
    const json = await ask(url, 'sessions', '--json', '--workers');
    const lines = json.stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(lines).toHaveLength(2 + shown.worker_count);
    expect(lines.find((line) => line.id === session.id)).toEqual(shown);
    expect((await ask(url, 'sessions', '--status', 'running')).stdout).toBe('no sessions\n');
    expect(sessions.stdout).toMatch(
      new RegExp(`^${session.id} .* idle +scripted:\\S+ +${shown.worker_count} +simulated`, 'm'),
    );

    const cost = await ask(url, 'cost', '--group-by', 'session,model', '--since', 'all');
    expect(cost.stdout).toContain(session.id);
    expect(cost.stdout).toMatch(new RegExp(`^total .*\\$${totals.cost_usd.replace('.', '\\.')}$`, 'm'));
    expect(cost.stdout).toMatch(/^session .* example \$$/m);
    expect(cost.stdout).toMatch(/^Calls until \d{4}-\d\d-\d\d \d\d:\d\d UTC\.$/m);
    expect((await ask(url, 'cost', '--session', named.id, '--since', '24h')).stdout).toMatch(
      /^no calls from \d{4}-\d\d-\d\d \d\d:\d\d to \d{4}-\d\d-\d\d \d\d:\d\d UTC\n$/,
    );
    expect(cost.stdout).toMatch(/^Simulated: a script answered, at example prices; nothing was spent\.$/m);
    expect(sessions.stdout).toMatch(/ simulated \$\d/);
    const bySource = await ask(url, 'cost', '--group-by', 'source,workspace');
    expect(bySource.stdout).toMatch(/^source +workspace .*example \$$/m);
    expect(bySource.stdout).toMatch(new RegExp(`^api +${session.workspace_path} `, 'm'));
    const report = JSON.parse((await ask(url, 'cost', '--json', '--group-by', 'none')).stdout);
    expect(report.totals).toEqual(totals);

    for (const columns of [80, 140])
      for (const command of ['sessions', 'cost --group-by session,model', `events ${session.id} --workers`]) {
        const coloured = await onTerminal(columns, `${command} --server ${url}`);
        expect(coloured).toMatch(ESCAPES);
        if (command !== 'cost --group-by session,model')
          expect(coloured.replaceAll(ESCAPES, '')).toContain(command === 'sessions' ? session.id : 'turn.completed');
        const plain = await onTerminal(columns, `${command} --server ${url}`, { NO_COLOR: '1' });
        expect(plain).not.toMatch(ESCAPES);
        const widths = [coloured.replaceAll(ESCAPES, ''), plain].flatMap((text) =>
          text.split(/\r?\n/).map((line) => line.length),
        );
        expect(Math.max(...widths)).toBeLessThanOrEqual(columns);
        expect(Math.max(...widths)).toBeGreaterThan(40);
      }
  });

  it('name a session whose cap must be raised', async () => {
    const { url, client } = await worked();
    const { id } = await client.createSession({ workspace_path: home.path, max_cost_usd: '0.001' });
    await client.submitTurn(id, { content: 'Look at this.' });
    await until(async () => (await client.getSession(id)).status === 'interrupted');
    expect((await ask(url, 'sessions')).stdout).toMatch(new RegExp(`^${id} .* needs budget `, 'm'));
    expect((await ask(url, 'sessions', '--failed')).stdout).toBe('no failed sessions\n');
  });

  it.each([
    [['cost', '--since', 'yesterday'], 2, /'yesterday' is invalid. It must be like 24h/],
    [['sessions', '--limit', '0'], 2, /from 1 to 100000/],
    [['sessions', '--status', 'asleep'], 2, /Allowed choices are/],
    [['events'], 2, /^metis: missing required argument 'session'\nmetis help events shows what it takes\n$/],
    [['routing', 'explain'], 2, /^metis: missing .*\nmetis help routing explain shows what it takes\n$/],
    [
      ['sesions'],
      2,
      /^metis: unknown command 'sesions'\n\(Did you mean sessions\?\)\nmetis help shows what it takes\n$/,
    ],
    [['cost', '--session', 'sess_x'], 2, /must be the id of a session/],
    [['sessions', '--server', '127.0.0.1:1'], 1, /^metis: no server answers at http:\/\/127.0.0.1:1; metis serve/],
    [['sessions', '--server', 'http://me:word@127.0.0.1:1'], 2, /It must not contain a user or password/],
    [['events', 'sess_x', '--follow', '--server', '127.0.0.1:1'], 1, /^metis: no server answers/],
  ])('%j says what is wrong', async (args, code, message) => {
    const answer = await runHere(args, { home: home.path });
    expect(answer.stderr).toMatch(message);
    expect(answer.code).toBe(code);
    expect(answer.stdout).toBe('');
  });

  it('ask the configured server with its token where no other is named, also one that binds every address', async () => {
    const env: Record<string, string> = {
      METIS_SERVER_HOST: '0.0.0.0',
      METIS_SERVER_AUTH_TOKENS: JSON.stringify(['t'.repeat(32)]),
      METIS_SERVER_WORKSPACE_ROOTS: JSON.stringify([home.path]),
    };
    const server = keep(['serve', '--port', '0'], env);
    env.METIS_SERVER_PORT = new URL(await address(server)).port;
    for (const command of ['sessions', 'cost'])
      expect(await runHere([command], { home: home.path, env })).toMatchObject({ code: 0, stderr: '' });
    // What another address is asked with is named beside it: no token goes elsewhere by itself.
    const elsewhere = await runHere(['sessions', '--server', `127.0.0.1:${env.METIS_SERVER_PORT}`], {
      home: home.path,
      env,
    });
    expect(elsewhere.stderr).toContain('give one with --token or METIS_TOKEN');
  });

  it('say what the server refuses', async () => {
    const url = await address(serve());
    // The list is that of the help, and every name in it is taken.
    const answer = await ask(url, 'cost', '--group-by', 'moon');
    const list = /^metis: --group-by must be none, or one or two of (.+)\n$/.exec(answer.stderr)?.[1] ?? '';
    expect(answer.code).toBe(2);
    const help = (await runHere(['cost', '--help'], { home: home.path })).stdout.replaceAll('\n', ' ');
    expect(help).toContain(`Groups: ${list}. Separate two`);
    expect(
      list
        .split(', ')
        .map((name) => (name === 'source' ? 'door' : name))
        .sort(),
    ).toEqual([...DIMENSIONS].sort());
    for (const name of [...list.split(', '), 'door']) expect((await ask(url, 'cost', '--group-by', name)).code).toBe(0);
    const verified = await ask(url, 'cost', '--verified', '--group-by', 'moon');
    expect([verified.code, verified.stderr]).toEqual([1, expect.stringMatching(/^metis: .*group_by/)]);
    expect((await ask(url, 'events', 'sess_01JZZZZZZZZZZZZZZZZZZZZZZZ')).stderr).toMatch(/^metis: /);
  });
});

describe('events', () => {
  it('prints all that is stored, one a line', async () => {
    const { url, client, session } = await worked();
    const stored = async () =>
      (await client.listEvents(session.id, { include_worker_sessions: true, limit: 1000 })).events;
    // The turn has ended, but its judgement is stored in its own time.
    const { events, json } = await until(async () => {
      const before = await stored();
      const json = await ask(url, 'events', session.id, '--workers', '--json');
      return (await stored()).length === before.length && { events: before, json };
    });
    expect(
      json.stdout
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line)),
    ).toEqual(events);
    const text = await ask(url, 'events', session.id);
    expect(text.stdout).toMatch(/delegate\.started .*dropped_tools=delegate,memory_add,/);
    expect(text.stdout).toMatch(/^\d\d:\d\d:\d\d\.\d{3} session +turn\.completed +stop_reason=end_turn /m);
    expect(text.stdout).not.toMatch(ESCAPES);
  });

  // Promise 17.4: events --follow over the kill of its server shows every event once and misses none.
  it('--follow goes on by itself after the server was killed: every event once, none missing; ends with the session', async () => {
    const first = start(['serve', '--port', '0'], { home: home.path });
    running.push(first);
    const url = await address(first);
    const client = createMetisClient({ baseUrl: url });
    const session = await client.createSession({ workspace_path: home.path });
    const follower = keep(['events', session.id, '--follow', '--workers', '--json', '--server', url]);
    await follower.line(/session\.created/);
    await client.submitTurn(session.id, { content: 'Look at this.' });
    await follower.line(/"delegate\.started"/);
    await first.stop('SIGKILL');
    await address(serve(new URL(url).port));
    await follower.line(new RegExp(`"session_id":"${session.id}"[^\\n]*"turn\\.completed"`));
    await client.endSession(session.id);
    const { code, stdout, stderr } = await follower.finished;
    const stored = await client.listEvents(session.id, { include_worker_sessions: true, limit: 1000 });
    // Behind its end the session is only judged.
    const events = stored.events.slice(
      0,
      stored.events.findIndex((e) => e.type === 'session.ended' && e.session_id === session.id) + 1,
    );
    expect(
      stdout
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line)),
    ).toEqual(events);
    expect(events.map((event) => event.type)).toContain('turn.resumed');
    expect([code, stderr]).toEqual([0, '']);
  });

  it('--follow ends with 0 when it is interrupted', async () => {
    const url = await address(serve());
    const session = await createMetisClient({ baseUrl: url }).createSession({ workspace_path: home.path });
    const follower = keep(['events', session.id, '--follow', '--server', url]);
    await follower.line(/session\.created/);
    expect((await follower.stop('SIGINT')).code).toBe(0);
  });
});
