// `/docs`: the OpenAPI document as a page, complete, and loading nothing (18 §2).
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import path from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { docsPage } from '#http/docs/docs-page.ts';
import { inlineResponses, openApiDocument } from '#http/openapi.ts';
import { type Parsed, startServer } from '../support/http.ts';
import { planner, scenario } from '../support/scenario.ts';
import { sha256 } from '../support/trusted.ts';

const TOKEN = 'a-token-of-at-least-thirty-two-characters';
const document: Parsed = inlineResponses(JSON.parse(await openApiDocument('0.0.0-test')));
const operations: Parsed[] = Object.entries<Parsed>(document.paths).flatMap(([url, item]) =>
  Object.entries<Parsed>(item).map(([method, operation]) => ({ ...operation, url, method: method.toUpperCase() })),
);

const { page, policy } = await docsPage('0.0.0-test');

const unescaped = (html: string) =>
  html.replace(/&(amp|lt|gt|quot);/g, (_, name) => ({ amp: '&', lt: '<', gt: '>', quot: '"' })[name as 'amp']);
const articleOf = (id: string) => new RegExp(`<article id="${id}">([\\s\\S]*?)</article>`).exec(page)?.[1] ?? '';
const codesOf = (answer: Parsed): string[] =>
  answer.content['application/json'].schema.allOf[1].properties.error.properties.code.enum;
const exampleOf = (id: string) => unescaped(/<pre>([\s\S]*?)<\/pre>/.exec(articleOf(id))?.[1] ?? '');

/** No confirmation is open, no worker has changes, the turn is over, no case was recorded: those are answers to a good question. */
function expectedStatus(operationId: string): readonly number[] {
  if (/Confirmation$|Changes(Diff)?$|ChangedFiles$|^revokeToken$/.test(operationId)) return [404];
  return /^((cancel|resume|conclude)Turn|getCase)$/.test(operationId) ? [409] : [200, 201, 202, 204];
}

describe('/docs', () => {
  // Promise 18.3: /docs lists every operation with fields, statuses and error codes.
  test('shows each operation with its parameters, fields, statuses and error codes, under its address', () => {
    expect(operations.length).toBeGreaterThan(30);
    for (const { operationId, method, url, summary, parameters = [], requestBody, responses } of operations) {
      const article = unescaped(articleOf(operationId));
      expect(article, operationId).toContain(method);
      for (const text of [url, summary]) expect(article, operationId).toContain(text);
      for (const { name, in: place, description = '' } of parameters)
        for (const text of [`<code>${name} (${place})</code>`, description])
          expect(article, operationId).toContain(text);
      const fields = Object.keys(requestBody?.content['application/json'].schema.properties ?? {});
      for (const field of fields) expect(article, operationId).toContain(`<code>${field}</code>`);
      for (const [status, answer] of Object.entries<Parsed>(responses)) {
        expect(article, operationId).toContain(status);
        if (Number(status) >= 400) {
          for (const code of codesOf(answer)) expect(article, operationId).toContain(`<code>${code}</code>`);
          continue;
        }
        const sent = Object.keys(answer.content?.['application/json']?.schema.properties ?? {});
        for (const field of sent) expect(article, operationId).toContain(`<code>${field}</code>`);
      }
      expect(page).toContain(`<a href="#${operationId}">`);
    }
    for (const [name, schema] of Object.entries<Parsed>(document.components.schemas)) {
      const article = articleOf(`schema-${name}`);
      for (const field of Object.keys(schema.properties)) expect(article, name).toContain(`<code>${field}</code>`);
    }
  });

  // Promise 18.3: /docs loads nothing from anywhere.
  test('loads nothing: no script, its own style by hash, every link within the page or the server', async () => {
    const server = await startServer({ config: { server: { auth_tokens: [TOKEN] } } });
    const served = await server.call('GET', '/docs');
    expect([served.status, served.headers.get('content-type')]).toEqual([200, 'text/html; charset=utf-8']);
    expect([served.body, served.headers.get('content-security-policy')]).toEqual([page, policy]);
    expect(page).not.toMatch(/<(script|img|iframe|link|object|embed|form|base|svg)\b|\son\w+=|\ssrc=|@import|url\(/i);
    const style = /<style>([\s\S]*?)<\/style>/.exec(page)?.[1] ?? '';
    const hash = createHash('sha256').update(style).digest('base64');
    expect(policy).toBe(
      `default-src 'none'; style-src 'sha256-${hash}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`,
    );
    const links = [...page.matchAll(/href="([^"]*)"/g)].map((m) => m[1]!);
    const ids = new Set([...page.matchAll(/\sid="([^"]*)"/g)].map((m) => m[1]));
    for (const link of links) {
      if (link.startsWith('#')) expect(ids.has(link.slice(1)), link).toBe(true);
      else expect(['/openapi.json', '/events.schema.json']).toContain(link);
    }
  });

  test('each example is a command that the server takes', async () => {
    const server = await startServer({ scenario: scenario(planner({ text: 'done' })) });
    const { workspace } = server;
    const create = () => server.call('POST', '/sessions', { workspace_path: workspace, initial_active_model: 'opus' });
    const session = (await create()).body.id;
    const { body: turn } = await server.call('POST', `/sessions/${session}/turns`, { content: 'go' });
    await server.ended(turn.turn_id);
    const env = {
      PATH: process.env.PATH ?? '',
      SESSION_ID: session,
      OTHER_SESSION_ID: (await create()).body.id,
      WORKER_SESSION_ID: session,
      TURN_ID: turn.turn_id,
      CONFIRMATION_ID: turn.turn_id,
      NAME: 'checker',
      TOKEN: 'none',
    };
    const wrong: string[] = [];
    // What makes comes first, and last what takes away that which the others read. A token closes the server to all of them.
    const rank = (id: string) => (id === 'createToken' ? 3 : /^create/.test(id) ? 0 : /^(end|delete)/.test(id) ? 2 : 1);
    const order = operations.map(({ operationId }) => operationId as string).sort((a, b) => rank(a) - rank(b));
    for (const id of order.filter((one) => one !== 'streamSession')) {
      const command = exampleOf(id)
        .replaceAll('http://127.0.0.1:8420', server.base)
        .replaceAll('~/project', workspace)
        .replaceAll(encodeURIComponent('~/project'), encodeURIComponent(workspace))
        .replace('0'.repeat(64), () => sha256(path.join(workspace, '.metis/workers/checker.yaml')))
        .replace('curl -s', 'curl -sw "\\n%{http_code}"');
      expect(command, id).toMatch(/^curl /);
      const { stdout } = await promisify(execFile)('sh', ['-c', command], { env, maxBuffer: 10_000_000 });
      const status = Number(stdout.slice(stdout.lastIndexOf('\n') + 1));
      if (!expectedStatus(id).includes(status)) wrong.push(`${id}: ${command}: ${stdout.slice(0, 300)}`);
    }
    expect(wrong).toEqual([]);
    expect(exampleOf('streamSession')).toBe('wscat -c "ws://127.0.0.1:8420/sessions/$SESSION_ID/stream?preset=chat"');
  });
});
