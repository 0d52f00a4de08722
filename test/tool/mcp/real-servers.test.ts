// The reference servers of the protocol, as people install them: files over stdio, everything over stdio and both transports of HTTP (09 §11).
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { type McpServerConfig, McpServerSchema } from '#protocol/mcp.ts';
import { freePort } from '../../support/free-port.ts';
import { until } from '../../support/until.ts';
import { failure, workspace } from '../call.ts';
import { gone, type McpWorld, mcpWorld } from './world.ts';

const require = createRequire(import.meta.url);
const FILESYSTEM = require.resolve('@modelcontextprotocol/server-filesystem/dist/index.js');
const EVERYTHING = require.resolve('@modelcontextprotocol/server-everything/dist/index.js');

const stdio = (program: string, ...args: string[]): McpServerConfig =>
  McpServerSchema.parse({ transport: 'stdio', command: process.execPath, args: [program, ...args] });

describe('server-filesystem', () => {
  it('reads in the workspace it was given, and refuses what lies outside', async () => {
    const root = workspace({ 'notes.txt': 'water the plants' });
    const world = mcpWorld({ fs: stdio(FILESYSTEM, root) }, { root });
    expect(await world.names()).toEqual(expect.arrayContaining(['mcp__fs__read_text_file', 'mcp__fs__write_file']));
    expect(world.warnings()).toEqual([]);
    const file = path.join(root, 'notes.txt');
    expect(await world.call('mcp__fs__read_text_file', { path: file })).toBe('water the plants');
    await world.call('mcp__fs__write_file', { path: path.join(root, 'new.txt'), content: 'done' });
    expect(fs.readFileSync(path.join(root, 'new.txt'), 'utf8')).toBe('done');
    expect(await world.call('mcp__fs__read_text_file', { path: '/etc/hostname' })).toMatch(/access denied/i);
    await expect(world.call('mcp__fs__read_text_file', { path: 5 })).rejects.toThrow('path: must be string');
  });
});

async function serveHttp(port: number, kind = 'streamableHttp'): Promise<ChildProcess> {
  const env = { ...process.env, PORT: String(port) };
  const child = spawn(process.execPath, [EVERYTHING, kind], { env, stdio: ['ignore', 'ignore', 'pipe'] });
  onTestFinished(() => void child.kill('SIGKILL'));
  let said = '';
  // Read to its end: a server that writes into a closed pipe dies.
  child.stderr?.on('data', (text) => {
    said += text;
  });
  await until(() => /listening|is running/.test(said));
  return child;
}

/** A world over the server, with a way to kill it and one to have it back. */
interface Everything {
  readonly world: McpWorld;
  kill(): Promise<void>;
  restart(): Promise<void>;
}

const STARTS: Readonly<Record<string, () => Promise<Everything>>> = {
  async stdio() {
    const root = workspace({ 'run.sh': 'echo $$ > server.pid; exec "$@"' });
    const config = stdio(EVERYTHING, 'stdio');
    const args = ['run.sh', config.command ?? '', ...(config.args ?? [])];
    return {
      world: mcpWorld({ every: { ...config, command: '/bin/sh', args } }, { root }),
      async kill() {
        const pid = Number(fs.readFileSync(path.join(root, 'server.pid'), 'utf8'));
        process.kill(pid, 'SIGKILL');
        await gone(pid);
      },
      restart: async () => {},
    };
  },
  http: () => overHttp({ transport: 'http', kind: 'streamableHttp', path: 'mcp' }),
  sse: () => overHttp({ transport: 'sse', kind: 'sse', path: 'sse' }),
};

async function overHttp(by: { readonly transport: string; readonly kind: string; readonly path: string }) {
  const port = await freePort();
  let child = await serveHttp(port, by.kind);
  const config = McpServerSchema.parse({ transport: by.transport, url: `http://127.0.0.1:${port}/${by.path}` });
  return {
    world: mcpWorld({ every: config }),
    async kill() {
      child.kill('SIGKILL');
      await once(child, 'exit');
    },
    async restart() {
      child = await serveHttp(port, by.kind);
    },
  };
}

describe.each(Object.keys(STARTS))('server-everything over %s', (kind) => {
  const start = () => STARTS[kind]!();
  const slow = { duration: 60, steps: 60 };

  it('lists its tools, and those it adds when it knows its client', async () => {
    const { world } = await start();
    expect(await world.names()).toEqual(expect.arrayContaining(['mcp__every__echo', 'mcp__every__get-sum']));
    await until(async () => (await world.names()).includes('mcp__every__get-roots-list'));
    expect(await world.call('mcp__every__get-roots-list')).toContain(world.root);
  });

  it('answers: text, an image, structured content, a resource', async () => {
    const { world } = await start();
    expect(await world.call('mcp__every__echo', { message: 'hello' })).toBe('Echo: hello');
    expect(await world.call('mcp__every__get-sum', { a: 2, b: 3 })).toContain('5');
    expect(await world.call('mcp__every__get-tiny-image')).toContain('[image/png]');
    expect(await world.call('mcp__every__get-structured-content', { location: 'Chicago' })).toContain('temperature');
    expect(await world.call('mcp__every__get-resource-links', { count: 2 })).toMatch(/\(demo:\/\//);
  });

  it('reports progress, and an error is an answer', async () => {
    const { world } = await start();
    await world.tools();
    const progress: unknown[] = [];
    const logger = { debug: (fields: unknown) => void progress.push(fields) } as never;
    const done = await world.call(
      'mcp__every__trigger-long-running-operation',
      { duration: 0.3, steps: 3 },
      { logger },
    );
    expect(done).toContain('completed');
    expect(progress).toEqual(expect.arrayContaining([{ progress: '1/3 ' }, { progress: '2/3 ' }]));
    const wrong = await world.call('mcp__every__get-resource-reference', { resourceType: 'Text', resourceId: -1 });
    expect(wrong).toMatch(/invalid/i);
  });

  it('a call that is cancelled or late ends, and the next one is answered', async () => {
    const { world } = await start();
    await world.tools();
    const scope = new AbortController();
    const cancelled = world.call('mcp__every__trigger-long-running-operation', slow, { signal: scope.signal });
    setImmediate(() => scope.abort(new Error('enough')));
    await expect(cancelled).rejects.toThrow('enough');
    const late = world.call('mcp__every__trigger-long-running-operation', slow, { timeout_seconds: 0.1 });
    expect((await failure(late)).error_class).toBe('timeout');
    expect(await world.call('mcp__every__echo', { message: 'still here' })).toBe('Echo: still here');
  });

  // Promise 09.18: The reference servers, over stdio and HTTP, are killed in the middle of a call and come back.
  it('killed in the middle of a call: the call fails at once, and it comes back', async () => {
    const { world, kill, restart } = await start();
    await world.tools();
    let begun = () => {};
    const running = new Promise<void>((resolve) => {
      begun = resolve;
    });
    const logger = { debug: () => begun() } as never;
    const call = failure(
      world.call('mcp__every__trigger-long-running-operation', { duration: 60, steps: 1200 }, { logger }),
    );
    await running;
    await kill();
    expect((await call).message).toMatch(/^MCP server 'every' is unavailable: it (was ended by SIGKILL|closed the)/);
    expect((await failure(world.call('mcp__every__echo', { message: 'hello' }))).message).toContain('is unavailable');
    await restart();
    world.clock.skip(10_000);
    expect(await world.call('mcp__every__echo', { message: 'back' })).toBe('Echo: back');
    expect(await world.names()).toContain('mcp__every__echo');
  });
});

it('a server over HTTP that was started again knows no session: one call fails, then it works', async () => {
  const { world, kill, restart } = await STARTS.http!();
  expect(await world.call('mcp__every__echo', { message: 'one' })).toBe('Echo: one');
  await kill();
  await restart();
  expect((await failure(world.call('mcp__every__echo', { message: 'two' }))).message).toContain('is unavailable');
  world.clock.skip(10_000);
  expect(await world.call('mcp__every__echo', { message: 'three' })).toBe('Echo: three');
});
