// `metis doctor --online`: each key is tried with one request that costs nothing (17 §2).
import { once } from 'node:events';
import fs from 'node:fs';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { runHere } from './here.ts';
import { temporaryHome } from './metis.ts';

/** A provider that answers each request by its path. */
async function startProvider(answer: (request: IncomingMessage) => { status: number; body: unknown }) {
  const asked: { method: string; url: string; headers: IncomingMessage['headers'] }[] = [];
  const server = createServer((request, response) => {
    asked.push({ method: request.method ?? '', url: request.url ?? '', headers: request.headers });
    const { status, body } = answer(request);
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return { asked, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

test('metis doctor --online tries every key by a GET that costs nothing, and says which are rejected', async () => {
  const { asked, url } = await startProvider(({ url: at }) =>
    at === '/b/models'
      ? { status: 401, body: { error: { message: 'Incorrect API key: not-its-key-at-all', code: 'invalid_api_key' } } }
      : at === '/d/models'
        ? { status: 503, body: {} }
        : { status: 200, body: { data: [] } },
  );
  const home = temporaryHome();
  onTestFinished(() => home.remove());
  const data = path.join(home.path, '.metis');
  fs.mkdirSync(data, { mode: 0o700 });
  const model = '{ capabilities: { max_context_tokens: 8192, max_output_tokens: 1024 } }';
  fs.writeFileSync(
    path.join(data, 'registry.yaml'),
    `adapters:
  good: { type: anthropic, base_url: ${url}/a }
  bad: { type: openai, base_url: ${url}/b }
  router: { type: openrouter, base_url: ${url}/c }
  away: { type: openai, base_url: ${url}/d, key_optional: true }
  unused: { type: openai }
models:
  good:m: ${model}
  bad:m: ${model}
`,
  );
  const env = { GOOD_API_KEY: 'its-own-key', BAD_API_KEY: 'not-its-key-at-all', ROUTER_API_KEY: 'a-third-key' };
  const doctor = (...args: string[]) => runHere(['doctor', '--port', '0', ...args], { home: home.path, env });
  expect((await doctor()).stdout).not.toContain('accepted');
  expect(asked).toEqual([]);

  const { code, stdout } = await doctor('--online');
  expect(code).toBe(1);
  expect(stdout).toMatch(/^ok +good: the key is accepted$/m);
  expect(stdout).toMatch(/^ok +router: the key is accepted$/m);
  expect(stdout).toMatch(
    /^error +bad: the key is rejected: 401 .*; check BAD_API_KEY in the environment or in .*\.env$/m,
  );
  expect(stdout).toMatch(/^warning +away: the key could not be checked: 503/m);
  for (const key of Object.values(env)) expect(stdout).not.toContain(key);
  expect(asked.map(({ method, url: at }) => `${method} ${at}`).sort()).toEqual([
    'GET /a/v1/models?limit=1',
    'GET /b/models',
    'GET /c/key',
    'GET /d/models',
  ]);
  expect(asked.find(({ url: at }) => at.startsWith('/a'))!.headers).toMatchObject({ 'x-api-key': 'its-own-key' });
  expect(asked.find(({ url: at }) => at === '/c/key')!.headers).toMatchObject({ authorization: 'Bearer a-third-key' });
});
