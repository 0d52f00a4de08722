// What a server and a command load: packages that few need only once somebody needs them (00 §1, 19 §3).
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it, onTestFinished } from 'vitest';
import { address, start, temporaryHome } from './metis.ts';

interface Script {
  readonly url: string;
  readonly functions: readonly {
    readonly functionName: string;
    readonly ranges: readonly { readonly count: number }[];
  }[];
}

/** The packages whose code a command has run in its life: installed beside it, or bundled into its files. */
async function loadedBy(
  args: readonly string[],
  use: (url: string) => Promise<void> = async () => {},
): Promise<ReadonlySet<string>> {
  const home = temporaryHome();
  onTestFinished(home.remove);
  const told = path.join(home.path, 'coverage');
  const command = start(args, { home: home.path, env: { NODE_V8_COVERAGE: told } });
  if (args[0] === 'serve') {
    await use(await address(command));
    expect((await command.stop()).code).toBe(0);
  } else await command.finished;
  const scripts = fs.readdirSync(told).flatMap((name) => {
    const { result } = JSON.parse(fs.readFileSync(path.join(told, name), 'utf8')) as { result: Script[] };
    return result;
  });
  return new Set(
    scripts.flatMap(listFiles).flatMap((file) => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(file)?.[1] ?? []),
  );
}

/** A file of a library; of a built file what was bundled into it, less the modules that it holds and did not run. */
function listFiles({ url, functions }: Script): readonly string[] {
  if (!url.startsWith('file:')) return [];
  const map = `${fileURLToPath(url)}.map`;
  if (url.includes('/node_modules/') || !fs.existsSync(map)) return [url];
  const { sources } = JSON.parse(fs.readFileSync(map, 'utf8')) as { sources: string[] };
  // The bundler wraps each module of the old format in a function that has the name of its file.
  const idle = functions.filter(({ ranges }) => ranges[0]!.count === 0).map(({ functionName }) => functionName);
  const names = new Set(idle.filter((name) => name.startsWith('node_modules/')));
  return sources.filter((source) => !names.has(source.replace(/^(?:\.\.\/)+/, '')));
}

const SERVE = ['serve', '--port', '0'];
const postJson = (url: string, body: object, headers: Record<string, string> = {}) =>
  fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
const openSession = (url: string) => postJson(`${url}/sessions`, { workspace_path: import.meta.dirname });

// Promise 19.24: a server loads the packages of MCP and ACP only once they are asked for.
it('a server that nobody asks for MCP or ACP loads neither package; the first call of /mcp loads its own', async () => {
  const doors = (names: ReadonlySet<string>) =>
    [...names].filter((name) => /^@(?:modelcontextprotocol|agentclientprotocol)\//.test(name));
  const names = await loadedBy(SERVE, async (url) => expect((await openSession(url)).status).toBe(201));
  expect(names).toContain('fastify');
  expect(doors(names)).toEqual([]);
  const asked = await loadedBy(SERVE, async (url) => {
    const accept = 'application/json, text/event-stream';
    await postJson(`${url}/mcp?workspace=/`, { jsonrpc: '2.0', id: 1, method: 'ping' }, { accept });
  });
  expect(doors(asked)).toContain('@modelcontextprotocol/server');
});

it('a server loads what checks schemas of others, writes YAML and counts requests only where that is asked for', async () => {
  const rare = ['ajv', 'yaml', '@fastify/rate-limit', 'pg', 'undici'];
  const names = await loadedBy(SERVE, async (url) => expect((await openSession(url)).status).toBe(201));
  expect(rare.filter((name) => names.has(name))).toEqual([]);
  const counting = await loadedBy([...SERVE, '--set', 'server.rate_limit_rpm=2'], async (url) => {
    const statuses = [await openSession(url), await openSession(url), await openSession(url)].map(
      ({ status }) => status,
    );
    expect(statuses).toEqual([201, 201, 429]);
  });
  expect(counting).toContain('@fastify/rate-limit');
});

it('help and version load nothing of what a command works with', async () => {
  for (const ask of ['--help', '--version']) {
    const names = await loadedBy([ask]);
    expect(names).toContain('commander');
    expect(['zod', 'js-yaml', 'pino'].filter((name) => names.has(name))).toEqual([]);
  }
});

it('a command that asks a server loads neither a server, nor its log, nor its database', async () => {
  const names = await loadedBy(['sessions', '--server', 'http://127.0.0.1:9']);
  expect(names).toContain('commander');
  expect(['fastify', 'pino', 'better-sqlite3', 'ajv'].filter((name) => names.has(name))).toEqual([]);
});
