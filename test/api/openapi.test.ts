// The contract documents: committed as generated, complete, and true of what is sent.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, test } from 'vitest';
import { recover } from '#core/engine/lifecycle.ts';
import { eventsDocument, inlineResponses, openApiDocument } from '#http/openapi.ts';
import { ERROR_CODES } from '#protocol/errors.ts';
import { contractFault, openApi as document, operations, validatorAt } from '../support/contract.ts';
import { type Parsed, startServer, type TestServer } from '../support/http.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
const { version } = JSON.parse(fs.readFileSync(path.join(ROOT, 'package.json'), 'utf8'));
const STALE = 'the committed documents are out of date: run "npm run gen"';
const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'];

describe('the committed documents', () => {
  test('are what the code generates', async () => {
    const read = (name: string) => fs.readFileSync(path.join(ROOT, 'openapi', name), 'utf8');
    expect(read('openapi.json') === (await openApiDocument(version)), STALE).toBe(true);
    expect(read('events.schema.json') === eventsDocument(), STALE).toBe(true);
  });

  test('are what the server serves', async () => {
    const server = await startServer();
    const served = (await server.call('GET', '/openapi.json')).body;
    expect(inlineResponses({ ...served, info: { ...served.info, version } })).toEqual(document);
    expect((await server.call('GET', '/events.schema.json')).body).toEqual(JSON.parse(eventsDocument()));
  });
});

describe('openapi.json', () => {
  // Promise 05.23: the OpenAPI document is 3.1.0 with schemas that compile.
  test('is 3.1.0 with unique operation ids, declared path parameters and schemas that compile', () => {
    expect(document.openapi).toBe('3.1.0');
    const compiled = new Set<Parsed>();
    const ids = operations.map(({ id }) => id);
    expect(new Set(ids).size).toBe(ids.length);
    for (const { id, method, url, item } of operations) {
      expect(METHODS).toContain(method);
      expect(id).toMatch(/^[a-z][A-Za-z]+$/);
      const named = [...url.matchAll(/\{([a-z_]+)\}/g)].map((m) => m[1]);
      const declared = (item.parameters ?? []).filter((p: Parsed) => p.in === 'path');
      expect(declared.map((p: Parsed) => p.name).sort()).toEqual(named.sort());
      const asked = (item.parameters ?? []).filter((p: Parsed) => p.in === 'query');
      expect(asked.filter((p: Parsed) => !p.description).map((p: Parsed) => `${id}: ${p.name} says nothing`)).toEqual(
        [],
      );
      for (const [status, answer] of Object.entries<Parsed>(item.responses)) {
        expect(answer.description).not.toBe('');
        const place = [
          'paths',
          url,
          method.toLowerCase(),
          'responses',
          status,
          'content',
          'application/json',
          'schema',
        ];
        // A shared answer is one schema wherever it is answered.
        if (answer.content?.['application/json'] && !compiled.has(answer)) validatorAt(...place);
        compiled.add(answer);
      }
    }
  });

  test('names the headers that matter, and the fields a socket takes in its URL', () => {
    const submit = document.paths['/sessions/{session_id}/turns'].post;
    const headers = (o: Parsed) => o.parameters.filter((p: Parsed) => p.in === 'header').map((p: Parsed) => p.name);
    expect(headers(submit)).toEqual(['Idempotency-Key', 'Prefer']);
    expect(Object.keys(submit.responses[202].headers)).toEqual(['Location', 'Idempotency-Replayed']);
    expect(Object.keys(submit.responses[401].headers)).toEqual(['WWW-Authenticate']);
    expect(Object.keys(submit.responses[429].headers)).toEqual(['Retry-After']);
    expect(headers(document.paths['/sessions/{session_id}/events'].get)).toEqual(['Last-Event-ID']);
    const fields = document.paths['/sessions/{session_id}/stream'].get.parameters.map((p: Parsed) => p.name);
    expect(fields.sort()).toEqual(
      ['include_worker_sessions', 'preset', 'session_id', 'since', 'snapshot', 'types'].sort(),
    );
  });

  // Promise 05.23: it covers every registered route.
  test('covers every registered route', async () => {
    const server = await startServer();
    const routes = server.app
      .printRoutes({ commonPrefix: false })
      .split('\n')
      .filter((line) => line.includes('('));
    // The gateway's paths, with those below them, have the contracts of their wires.
    let below = Number.POSITIVE_INFINITY;
    const own = routes.filter((line) => {
      const depth = line.search(/[/*]/);
      if (depth > below) return false;
      below = /\/v1\/|\/count_tokens|\* /.test(line) ? depth : Number.POSITIVE_INFINITY;
      return below === Number.POSITIVE_INFINITY;
    });
    // HEAD is GET without its body.
    const methods = own
      .flatMap((line) => /\(([A-Z, ]+)\)/.exec(line)![1]!.split(', '))
      .filter((method) => method !== 'HEAD');
    expect(methods).toHaveLength(operations.length);
    for (const { method, url } of operations) {
      const pattern = url.replace(/\{([a-z_]+)\}/g, ':$1');
      expect(server.app.hasRoute({ method: method as 'GET', url: pattern }), `${method} ${url}`).toBe(true);
    }
    const stream = document.paths['/sessions/{session_id}/stream'].get;
    expect([stream['x-websocket'], Object.keys(stream.responses)[0]]).toEqual([true, '101']);
  });

  test('lists every error code, and for each operation a closed set', () => {
    expect(document.components.schemas.ErrorEnvelope.properties.error.properties.code.enum).toEqual(ERROR_CODES);
    for (const { method, url, item } of operations) {
      for (const [status, answer] of Object.entries<Parsed>(item.responses)) {
        if (Number(status) < 400) continue;
        const { schema } = answer.content['application/json'];
        expect(schema.allOf[1].properties.error.properties.code.enum, `${method} ${url} ${status}`).not.toEqual([]);
      }
    }
  });

  test('names decimals, writes null as a type, and closes request bodies only', () => {
    const { properties } = document.components.schemas.Session;
    expect(properties.cost_so_far_usd).toMatchObject({ type: 'string', format: 'decimal' });
    expect(properties.max_cost_usd).toMatchObject({ type: ['string', 'null'], format: 'decimal' });
    expect(JSON.stringify(document.components)).not.toContain('"additionalProperties":false');
    const bodies = operations.flatMap(({ item }) => item.requestBody?.content['application/json'].schema ?? []);
    expect(bodies.length).toBeGreaterThan(5);
    for (const body of bodies) expect(body.additionalProperties).toBe(false);
    for (const url of ['/healthz', '/readyz', '/nodes/self']) expect(document.paths[url].get.security).toEqual([]);
    expect(document.components.securitySchemes.bearerAuth).toEqual({ type: 'http', scheme: 'bearer' });
  });
});

/** One whose turn was cut by a crash: it is resumed, and then cancelled. */
async function serverThatHolds(): Promise<TestServer> {
  const asks = scenario(planner({ tool_calls: [call('write_file', { path: 'a.txt', content: 'x' })] }, { text: 'ok' }));
  const first = await startServer({ scenario: asks });
  const session = await first.session();
  const turnId = await first.submit(session, 'go');
  await first.event('tool.confirmation_requested');
  first.abandon();
  const second = await startServer({
    scenario: asks,
    folder: first.folder,
    config: { recovery: { on_start: 'hold' } },
  });
  await recover(second.engine);
  const url = `/sessions/${session.id}/turns/${turnId}`;
  await second.call('POST', `${url}/resume`);
  await second.call('POST', `${url}/cancel`);
  await second.ended(turnId);
  return second;
}

/** From the first token on, every call needs one. */
async function makeAndRevokeToken(server: TestServer): Promise<void> {
  const { secret } = (await server.call('POST', '/tokens', { name: 'root', role: 'admin' })).body;
  const headers = { authorization: `Bearer ${secret}` };
  await server.call('POST', '/tokens', { name: 'reader', role: 'viewer' }, headers);
  await server.call('DELETE', '/tokens/reader', undefined, headers);
}

describe('what is sent', () => {
  // Promise 05.23: every operation is called, and every answer of a test's server is as the document says; stored events validate against the event schema.
  test('every operation is called, answers well, and as documented; events are as their schema says', async () => {
    const server = await startServer({
      files: { 'workers/helper.yaml': 'instructions: Help.' },
      scenario: scenario(
        planner({ thinking: 'hm', tool_calls: [delegate('write it')] }, { text: 'done' }),
        worker('in a tree', { text: 'done' }),
        worker('write it', { tool_calls: [call('write_file', { path: 'a.txt', content: 'x' })] }, { text: 'written' }),
      ),
    });
    // Every answer is held against the document where it is sent; here each operation has its turn.
    const ask = async (method: string, path: string, body?: unknown) => (await server.call(method, path, body)).body;
    const session = await ask('POST', '/sessions', {
      workspace_path: server.workspace,
      initial_active_model: 'opus',
      max_cost_usd: '1.50',
    });
    const base = `/sessions/${session.id}`;
    const socket = server.connect(`${base}/stream?snapshot=true`);
    await socket.frame((frame) => frame.type === 'snapshot');
    const submitted = await ask('POST', `${base}/turns`, { content: 'go' });
    const turnUrl = `${base}/turns/${submitted.turn_id}`;
    const asked = (await server.event('tool.confirmation_requested')).payload as Parsed;
    const prompt = `/confirmations/${asked.confirmation_request_id}`;
    await ask('GET', '/confirmations');
    await ask('GET', prompt);
    await ask('PATCH', base, { active_model: null });
    await ask('POST', `${turnUrl}/conclude`, {});
    await ask('POST', prompt, { decision: 'approve' });
    await server.ended(submitted.turn_id);
    await ask('PUT', `${turnUrl}/score`, { score: 'good' });
    for (const path of [
      '/healthz',
      '/nodes/self',
      '/readyz',
      '/nodes',
      '/settings',
      '/metrics',
      '/docs',
      '/openapi.json',
      '/events.schema.json',
      '/sessions?include_workers=true',
      base,
      `${base}/turns`,
      turnUrl,
      `${base}/messages`,
      `${base}/events?include_worker_sessions=true`,
      `${base}/calls`,
      `${base}/workers`,
      '/models',
      '/pricing',
      '/routing/policy',
      `/patterns?workspace_path=${server.workspace}`,
      `/workers?workspace_path=${server.workspace}`,
      `/workers/helper?workspace_path=${server.workspace}`,
      `/tools?workspace_path=${server.workspace}`,
      '/analytics/cost?from=all&group_by=parent_session',
      '/analytics/savings?from=all&baseline=opus',
      '/analytics/routing?from=all',
      '/analytics/reliability?from=all',
      '/analytics/ledger?from=all',
      '/analytics/verified?from=all&group_by=check',
      `/analytics/quality?workspace_path=${server.workspace}`,
      '/analytics/forecast',
      '/tokens',
      '/tokens/self',
      '/audit',
    ]) {
      await ask('GET', path);
    }
    for (const path of ['/sessions/nope', '/sessions/sess_01ARZ3NDEKTSV4RRFFQ69G5FAV', '/pricing?version=nope', '/no'])
      await ask('GET', path);
    await ask('POST', `${base}/estimate`, { content: 'again' });
    const { messages } = await ask('GET', `${base}/messages`);
    const answer = messages.findLast(({ role }: Parsed) => role === 'assistant');
    const fork = { at_message_id: answer.id, workspace: 'none' };
    await ask('POST', `${base}/fork`, { ...fork, dry_run: true });
    const forked = await ask('POST', `${base}/fork`, fork);
    await ask('POST', `${base}/fork`, { ...fork, at_message_id: messages[0].id });
    await ask('GET', `/sessions/${forked.session.id}/messages?prefix=true`);
    await ask('GET', `${base}/case`);
    const recorded = await ask('POST', '/sessions', { workspace_path: server.workspace, record_case: true });
    await ask('GET', `/sessions/${recorded.id}/case`);
    await ask('GET', `${base}/compare?with=${forked.session.id}`);
    await ask('POST', `${base}/delegations`, { tier: 'fast', task: 'once more' });
    execFileSync('git', ['init', '-q'], { cwd: server.workspace });
    const isolated = { tier: 'fast', task: 'in a tree', isolation: 'worktree', apply: 'never' };
    const { worker_session_id } = await ask('POST', `${base}/delegations`, isolated);
    await server.event('delegate.completed', ({ payload }) => payload.worker_session_id === worker_session_id);
    await ask('GET', `/delegations/${worker_session_id}/diff`);
    await ask('GET', `/delegations/${worker_session_id}/files`);
    await ask('POST', `/delegations/${worker_session_id}/apply`);
    await ask('GET', '/worktrees');
    await ask('POST', '/worktrees/prune', { all: true });
    await ask('POST', '/routing/explain', { text: '@haiku hi', workspace_path: server.workspace });
    const kept = { workspace_path: server.workspace, definition: { name: 'kept', instructions: 'Keep.' } };
    await ask('POST', '/workers', kept);
    await ask('PUT', '/workers/kept', kept);
    const trusted = { workspace_path: server.workspace, path: '.metis/workers/kept.yaml' };
    const where = new URLSearchParams(trusted);
    const { files } = (await server.call('GET', `/workspaces/trust?${where}`)).body;
    await ask('GET', `/workspaces/trust?${where}`);
    await ask('POST', '/workspaces/trust', { ...trusted, sha256: files[0].sha256 });
    await ask('DELETE', `/workspaces/trust?${where}`);
    await ask('DELETE', `/workers/kept?workspace_path=${server.workspace}`);
    await ask('POST', '/analytics/what-if', { from: 'all', models: { opus: 'haiku' }, group_by: 'day' });
    await ask('POST', '/routing/check', { policy_yaml: 'a: 1' });
    await ask('PUT', '/routing/default', { model: 'haiku', dry_run: true, workspace_path: server.workspace });
    await ask('POST', '/maintenance/prune', { dry_run: true });
    await ask('DELETE', base);
    await ask('DELETE', `${base}?purge=true`);
    await makeAndRevokeToken(server);

    const held = await serverThatHolds();
    const good = [server, held].flatMap(({ answered }) => [...answered]).filter((line) => / (101|2\d\d)$/.test(line));
    const called = new Set(['streamSession', ...good.map((line) => line.split(' ')[0])]);
    expect(operations.map(({ id }) => id).filter((id) => !called.has(id))).toEqual([]);

    const schema = new Ajv2020({ strict: false, validateFormats: false }).compile(JSON.parse(eventsDocument()));
    for (const event of server.events) {
      expect(schema(event), `${event.type}: ${JSON.stringify(schema.errors)}`).toBe(true);
    }
    expect(new Set(server.events.map((e) => e.type)).size).toBeGreaterThan(12);
  });

  // Promise 05.23: an answer that is not as documented fails the test it was given in.
  test('an answer that is not as documented fails its test', () => {
    const sent = {
      method: 'GET',
      target: '/readyz',
      status: 200,
      type: 'application/json',
      text: '{"status":"ready"}',
    };
    expect(contractFault(sent)).toBeNull();
    for (const other of [
      { text: '{"status":"so so"}' },
      { text: '{}' },
      { status: 201 },
      { type: 'text/plain' },
      { target: '/nowhere' },
      { status: 503, text: '{"error":{"code":"not_found","message":""}}' },
    ]) {
      expect(contractFault({ ...sent, ...other }), JSON.stringify(other)).toMatch(/^GET \/\w+ \d+: /);
    }
  });
});
