// The contract documents: committed as generated, complete, and true of what is sent.
import fs from 'node:fs';
import path from 'node:path';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, test } from 'vitest';
import { eventsDocument, openApiDocument } from '../../src/http/openapi.ts';
import { ERROR_CODES } from '../../src/kernel/errors.ts';
import { type Answer, type Parsed, startServer } from '../support/http.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
const { version } = JSON.parse(fs.readFileSync(path.join(ROOT, 'package.json'), 'utf8'));
const STALE = 'the committed documents are out of date: run "npm run gen"';
const METHODS = ['get', 'post', 'put', 'patch', 'delete'];

const document: Parsed = JSON.parse(await openApiDocument(version));
const operations: [string, string, Parsed][] = Object.entries<Parsed>(document.paths).flatMap(([url, item]) =>
  Object.entries<Parsed>(item).map(([method, operation]): [string, string, Parsed] => [method, url, operation]),
);
const ajv = new Ajv2020({ strict: false, validateFormats: false });
ajv.addSchema(document, 'doc');

/** The schema of an answer, as a validator. */
function validator(method: string, url: string, status: number) {
  const escaped = url.replaceAll('~', '~0').replaceAll('/', '~1');
  const parts = [
    'paths',
    escaped,
    method.toLowerCase(),
    'responses',
    String(status),
    'content',
    'application~1json',
    'schema',
  ];
  return ajv.compile({ $ref: `doc#/${parts.map(encodeURIComponent).join('/')}` });
}

describe('the committed documents', () => {
  test('are what the code generates', async () => {
    const read = (name: string) => fs.readFileSync(path.join(ROOT, 'openapi', name), 'utf8');
    expect(read('openapi.json') === (await openApiDocument(version)), STALE).toBe(true);
    expect(read('events.schema.json') === eventsDocument(), STALE).toBe(true);
  });

  test('are what the server serves', async () => {
    const server = await startServer();
    const served = (await server.call('GET', '/openapi.json')).body;
    expect({ ...served, info: { ...served.info, version } }).toEqual(document);
    expect((await server.call('GET', '/events.schema.json')).body).toEqual(JSON.parse(eventsDocument()));
  });
});

describe('openapi.json', () => {
  test('is 3.1.0 with unique operation ids, declared path parameters and schemas that compile', () => {
    expect(document.openapi).toBe('3.1.0');
    const ids = operations.map(([, , operation]) => operation.operationId);
    expect(new Set(ids).size).toBe(ids.length);
    for (const [method, url, operation] of operations) {
      expect(METHODS).toContain(method);
      expect(operation.operationId).toMatch(/^[a-z][A-Za-z]+$/);
      const named = [...url.matchAll(/\{([a-z_]+)\}/g)].map((m) => m[1]);
      const declared = (operation.parameters ?? []).filter((p: Parsed) => p.in === 'path');
      expect(declared.map((p: Parsed) => p.name).sort()).toEqual(named.sort());
      for (const [status, answer] of Object.entries<Parsed>(operation.responses)) {
        expect(answer.description).not.toBe('');
        if (answer.content?.['application/json']) validator(method, url, Number(status));
      }
    }
  });

  test('covers every registered route', async () => {
    const server = await startServer();
    const routes = server.app
      .printRoutes({ commonPrefix: false })
      .split('\n')
      .filter((line) => line.includes('('));
    const methods = routes.flatMap((line) => /\(([A-Z, ]+)\)/.exec(line)![1]!.split(', '));
    expect(methods).toHaveLength(operations.length);
    for (const [method, url] of operations) {
      const pattern = url.replace(/\{([a-z_]+)\}/g, ':$1');
      expect(server.app.hasRoute({ method: method.toUpperCase() as 'GET', url: pattern }), `${method} ${url}`).toBe(
        true,
      );
    }
    const stream = document.paths['/sessions/{session_id}/stream'].get;
    expect([stream['x-websocket'], Object.keys(stream.responses)[0]]).toEqual([true, '101']);
  });

  test('lists every error code, and for each operation a closed set', () => {
    expect(document.components.schemas.ErrorEnvelope.properties.error.properties.code.enum).toEqual(ERROR_CODES);
    for (const [method, url, { responses }] of operations) {
      for (const [status, answer] of Object.entries<Parsed>(responses)) {
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
    const bodies = operations.flatMap(([, , o]) => o.requestBody?.content['application/json'].schema ?? []);
    expect(bodies.length).toBeGreaterThan(5);
    for (const body of bodies) expect(body.additionalProperties).toBe(false);
    for (const url of ['/healthz', '/readyz']) expect(document.paths[url].get.security).toEqual([]);
    expect(document.components.securitySchemes.bearerAuth).toEqual({ type: 'http', scheme: 'bearer' });
  });
});

describe('what is sent', () => {
  test('validates against the document, events against their schema', async () => {
    const server = await startServer({
      scenario: scenario(
        planner({ thinking: 'hm', tool_calls: [delegate('write it')] }, { text: 'done' }),
        worker('write it', { tool_calls: [call('write_file', { path: 'a.txt', content: 'x' })] }, { text: 'written' }),
      ),
    });
    const checked: string[] = [];
    const check = (method: string, url: string, answer: Answer) => {
      const validate = validator(method, url, answer.status);
      expect(validate(answer.body), `${method} ${url}: ${ajv.errorsText(validate.errors)}`).toBe(true);
      checked.push(`${method} ${url} ${answer.status}`);
      return answer.body;
    };
    const opened = await server.call('POST', '/sessions', {
      workspace_path: server.workspace,
      initial_active_model: 'opus',
      max_cost_usd: '1.50',
    });
    const session = check('post', '/sessions', opened);
    const base = `/sessions/${session.id}`;
    const submitted = check(
      'post',
      '/sessions/{session_id}/turns',
      await server.call('POST', `${base}/turns`, { content: 'go' }),
    );
    const asked = (await server.event('tool.confirmation_requested')).payload as Parsed;
    const prompt = `/confirmations/${asked.confirmation_request_id}`;
    check('get', '/confirmations', await server.call('GET', '/confirmations'));
    check('get', '/confirmations/{confirmation_id}', await server.call('GET', prompt));
    check('patch', '/sessions/{session_id}', await server.call('PATCH', base, { active_model: null }));
    check('post', '/confirmations/{confirmation_id}', await server.call('POST', prompt, { decision: 'approve' }));
    await server.ended(submitted.turn_id);
    const turnUrl = `${base}/turns/${submitted.turn_id}`;
    for (const [url, path] of [
      ['/healthz', '/healthz'],
      ['/readyz', '/readyz'],
      ['/sessions', '/sessions?include_workers=true'],
      ['/sessions/{session_id}', base],
      ['/sessions/{session_id}/turns', `${base}/turns`],
      ['/sessions/{session_id}/turns/{turn_id}', turnUrl],
      ['/sessions/{session_id}/messages', `${base}/messages`],
      ['/sessions/{session_id}/events', `${base}/events?include_worker_sessions=true`],
      ['/sessions/{session_id}/workers', `${base}/workers`],
      ['/models', '/models'],
      ['/pricing', '/pricing'],
      ['/routing/policy', '/routing/policy'],
      ['/sessions/{session_id}', '/sessions/nope'],
      ['/sessions/{session_id}', '/sessions/sess_01ARZ3NDEKTSV4RRFFQ69G5FAV'],
      ['/pricing', '/pricing?version=nope'],
    ] as const) {
      check('get', url, await server.call('GET', path));
    }
    check('post', '/sessions/{session_id}/turns/{turn_id}/cancel', await server.call('POST', `${turnUrl}/cancel`));
    check('post', '/sessions/{session_id}/turns/{turn_id}/resume', await server.call('POST', `${turnUrl}/resume`));
    const question = { text: '@haiku hi', workspace_path: server.workspace };
    check('post', '/routing/explain', await server.call('POST', '/routing/explain', question));
    check('post', '/routing/check', await server.call('POST', '/routing/check', { policy_yaml: 'a: 1' }));
    check('post', '/maintenance/prune', await server.call('POST', '/maintenance/prune', { dry_run: true }));
    check('delete', '/sessions/{session_id}', await server.call('DELETE', base));
    check('delete', '/sessions/{session_id}', await server.call('DELETE', `${base}?purge=true`));
    expect(checked.length).toBeGreaterThan(20);

    const schema = new Ajv2020({ strict: false, validateFormats: false }).compile(JSON.parse(eventsDocument()));
    for (const event of server.events)
      expect(schema(event), `${event.type}: ${ajv.errorsText(schema.errors)}`).toBe(true);
    expect(new Set(server.events.map((e) => e.type)).size).toBeGreaterThan(12);
  });
});
