// The client has a method for every operation of the OpenAPI document, each of which reaches that operation.
import fs from 'node:fs';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createMetisClient } from '#client/client.ts';

const document = JSON.parse(fs.readFileSync(path.resolve(import.meta.dirname, '../../openapi/openapi.json'), 'utf8'));
interface Operation {
  readonly id: string;
  readonly method: string;
  readonly url: string;
  readonly query: readonly string[];
}
const operations: Operation[] = Object.entries<Record<string, Record<string, never>>>(document.paths).flatMap(
  ([url, item]) =>
    Object.entries(item).map(([method, operation]) => ({
      id: operation.operationId as unknown as string,
      method: method.toUpperCase(),
      url,
      query: ((operation.parameters ?? []) as { in: string; name: string }[])
        .filter((parameter) => parameter.in === 'query')
        .map((parameter) => parameter.name),
    })),
);

let seen: { method: string; url: string; token: string | undefined }[] = [];
const server = http.createServer((request, reply) => {
  seen.push({ method: request.method!, url: request.url!, token: request.headers.authorization });
  request.resume().on('end', () => reply.setHeader('content-type', 'application/json').end('{}'));
});
let client: Record<string, (...args: unknown[]) => Promise<unknown>>;
beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  client = createMetisClient({
    baseUrl: `http://127.0.0.1:${port}/below/`,
    token: 'a-token',
  }) as unknown as typeof client;
});
afterAll(() => void server.close());

// Promise 17.11: a method for every operation of the OpenAPI document and none more.
it('has a method for each operation and none more, but for `turn`', () => {
  const names = operations.map(({ id }) => (id === 'streamSession' ? 'stream' : id));
  expect(Object.keys(client).sort()).toEqual([...names, 'turn'].sort());
});

// Promise 17.11: each method sends its operation's method, path and parameters.
it.each(operations.filter(({ id }) => id !== 'streamSession'))(
  '$id sends its operation, $method $url',
  async ({ id, method, url, query }) => {
    seen = [];
    const ids = [...url.matchAll(/\{(\w+)\}/g)].map(([, name]) => `${name}/1`);
    const parameters = Object.fromEntries(query.map((name) => [name, `${name} 1`]));
    const takesMore = method !== 'GET' || query.length > 0;
    await client[id]!(...ids, ...(takesMore ? [parameters] : []), {});
    const filled = url.replaceAll(/\{(\w+)\}/g, (_, name) => encodeURIComponent(`${name}/1`));
    expect(seen).toHaveLength(1);
    const [request] = seen;
    expect(request!.method).toBe(method);
    expect(request!.token).toBe('Bearer a-token');
    const asked = new URL(request!.url, 'http://x');
    expect(asked.pathname).toBe(`/below${filled}`);
    expect(Object.fromEntries(asked.searchParams)).toEqual(parameters);
  },
);

/** Operations that change something and take no body. */
const BARE = ['resumeTurn', 'concludeTurn', 'applyChanges', 'revokeToken'];

it.each(operations.filter(({ id }) => id !== 'streamSession'))(
  '$id takes an AbortSignal',
  async ({ id, method, url, query }) => {
    const ids = [...url.matchAll(/\{(\w+)\}/g)].map(() => 'x');
    const takesMore = (method !== 'GET' || query.length > 0) && !BARE.includes(id);
    const reason = new Error('enough');
    const signal = AbortSignal.abort(reason);
    await expect(client[id]!(...ids, ...(takesMore ? [{}] : []), { signal })).rejects.toBe(reason);
  },
);
