// A server that lies: whatever it says, no command writes what a terminal would act on, and the token stays with it.
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { showCost } from '#cli/cost.ts';
import { showEvents } from '#cli/events.ts';
import { explainRoute, setDefaultModel } from '#cli/routing.ts';
import { listSessions } from '#cli/sessions.ts';
import type { Terminal } from '#cli/terminal.ts';
import { checkWorkers, listWorkers, printWorker } from '#cli/worker-definitions.ts';
import { createMetisClient } from '#client/client.ts';
import { type Parsed, startServer } from '../support/http.ts';
import { planner, scenario } from '../support/scenario.ts';
import { runHere, startHere } from './here.ts';
import { address, temporaryHome } from './metis.ts';

const LIE = 'x\x1b]52;c;cm0=\x07\x1b[2J\u009b31m\u202e\u200b\u{e0041}\r\b\x7f\u2028';
const ACTED_ON = /(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u;

async function listening(server: Server): Promise<string> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Every text of an answer made worse, but for figures, times and what pages on. */
function lied(value: Parsed): Parsed {
  if (typeof value === 'string') return /^-?[\d.]+$|^\d{4}-\d\d-\d\dT/.test(value) ? value : `${value}${LIE}`;
  if (Array.isArray(value)) return value.map(lied);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [key, key === 'next_cursor' ? null : lied(item)]),
  );
}

test('no command shows on a terminal what it would act on, wherever the server puts it', async () => {
  const files = { 'workers/a.yaml': 'instructions: mine', 'workers/b.yaml': 'nonsense: 1' };
  const server = await startServer({ scenario: scenario(planner({ text: 'done' })), files });
  const { id } = await server.session();
  const { body: turn } = await server.call('POST', `/sessions/${id}/turns`, { content: 'go' });
  await server.ended(turn.turn_id);
  const proxy = createServer(async (request, response) => {
    let body = '';
    for await (const part of request) body += String(part);
    const given = await server.call(request.method!, request.url!, body === '' ? undefined : JSON.parse(body));
    response.writeHead(given.status, { 'content-type': 'application/json' }).end(JSON.stringify(lied(given.body)));
  });
  const target = { baseUrl: await listening(proxy) };
  let shown = '';
  const write = (text: string) => {
    shown += text;
  };
  const output = { isTTY: true, columns: 200, write };
  const terminal: Terminal = { env: { NO_COLOR: '1' }, cwd: server.workspace, stdout: output, stderr: output };
  const { signal } = new AbortController();
  for (const json of [false, true]) {
    for (const [name, command] of Object.entries({
      sessions: () => listSessions(terminal, target, { limit: 5, json }),
      events: () => showEvents(terminal, target, id, { signal, json }),
      workers: () => listWorkers(terminal, target, { json }),
      'workers show': () => printWorker(terminal, target, 'a', { json }),
      'workers check': () => checkWorkers(terminal, target, { json }),
      'cost by session': () => showCost(terminal, target, { groupBy: 'session,model', since: '24h', json }),
      'routing explain': () => explainRoute(terminal, target, 'hello', { json }),
      'routing use': () => setDefaultModel(terminal, target, 'haiku', { json }),
      'routing use --dry-run': () => setDefaultModel(terminal, target, 'opus', { json, dryRun: true }),
      refused: () => showEvents(terminal, target, 'sess_nobody', { signal, json }),
    })) {
      shown = '';
      await command();
      expect(shown.length, name).toBeGreaterThan(10);
      expect(ACTED_ON.exec(shown)?.index, `${name}: ${JSON.stringify(shown)}`).toBeUndefined();
    }
  }
});

test('a command that works through the server shows nothing of its refusal that a terminal acts on', async () => {
  const liar = createServer((_, response) =>
    response
      .writeHead(409, { 'content-type': 'application/json' })
      .end(JSON.stringify({ error: { code: LIE, message: LIE, details: {} } })),
  );
  const home = temporaryHome();
  onTestFinished(() => home.remove());
  const server = await listening(liar);
  const data = path.join(home.path, 'data');
  const owner = startHere(['serve', '--port', '0', '--data', data], { home: home.path });
  await address(owner);
  // The file is held, so `prune` asks the server that is named.
  const refused = await runHere(['prune', '--days', '1', '--data', data, '--server', server], { home: home.path });
  await owner.stop();
  expect(refused.code).toBe(1);
  expect(refused.stderr).toContain('the server refused: x');
  expect(ACTED_ON.exec(refused.stderr)).toBeNull();
});

test('an answer without an end is given up', async () => {
  const endless = createServer((_, response) => {
    const part = 'x'.repeat(1024 * 1024);
    const more = () => {
      while (!response.destroyed && response.write(part));
    };
    response.on('drain', more);
    more();
  });
  const client = createMetisClient({ baseUrl: await listening(endless) });
  await expect(client.getSession('x')).rejects.toMatchObject({
    name: 'ApiError',
    message: expect.stringContaining('answered more than 128 MiB'),
  });
});

test('the client follows no redirect: nobody else is handed its token or its words', async () => {
  const met: IncomingMessage[] = [];
  const thief = await listening(
    createServer((request, response) => {
      met.push(request);
      response.end('{}');
    }),
  );
  for (const status of [301, 302, 303, 307, 308]) {
    const baseUrl = await listening(
      createServer((_, response) => response.writeHead(status, { location: `${thief}/sessions` }).end()),
    );
    const client = createMetisClient({ baseUrl, token: 'a-token-of-at-least-thirty-two-characters' });
    await expect(client.createSession({ workspace_path: '/' })).rejects.toMatchObject({ name: 'ApiError', status });
    await expect(client.getSession('x')).rejects.toMatchObject({ name: 'ApiError', status });
  }
  expect(met).toEqual([]);
});
