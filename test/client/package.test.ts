// The client as the package hands it out: types that compile elsewhere, a bundle for browsers, the example.
import { execFile, spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import vm from 'node:vm';
import { build } from 'esbuild';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { type StartedHere, startHere } from '../app/here.ts';
import { address, ROOT, temporaryHome } from '../app/metis.ts';

const ENTRY = 'metis-server/client';
/** Globals that a page does not have. */
const NODE_ALONE = ['process', 'Buffer', 'global', 'require', 'module'];
let home: ReturnType<typeof temporaryHome>;
let server: StartedHere | null = null;
beforeEach(() => {
  home = temporaryHome();
});
afterEach(async () => {
  await server?.stop();
  server = null;
  home.remove();
});
function serve(): Promise<string> {
  server = startHere(['serve', '--port', '0'], { home: home.path });
  return address(server);
}

it('is bundled for a browser without a module of Node and follows a turn there', async () => {
  const source = `
    import { createMetisClient } from '${ENTRY}';
    globalThis.run = async (baseUrl, workspace_path) => {
      const client = createMetisClient({ baseUrl });
      const session = await client.createSession({ workspace_path });
      const types = [];
      for await (const event of client.turn(session.id, { content: 'Say hello.' })) types.push(event.type);
      return types;
    };`;
  const bundle = await build({
    stdin: { contents: source, resolveDir: ROOT },
    bundle: true,
    write: false,
    platform: 'browser',
    format: 'iife',
    metafile: true,
  });
  const inputs = Object.keys(bundle.metafile.inputs).filter((input) => input !== '<stdin>');
  expect(inputs.filter((input) => !input.startsWith('dist/client/'))).toEqual(['node_modules/ws/browser.js']);
  const page = vm.createContext();
  for (const name of Object.getOwnPropertyNames(globalThis)) {
    const known: boolean = vm.runInContext(`'${name}' in globalThis`, page);
    if (!known && !NODE_ALONE.includes(name)) page[name] = Reflect.get(globalThis, name);
  }
  vm.runInContext(bundle.outputFiles[0]!.text, page);
  const types: string[] = await vm.runInContext('run', page)(await serve(), home.path);
  expect(types[0]).toBe('turn.started');
  expect(types).toContain('text.delta');
  expect(types.at(-1)).toBe('turn.completed');
});

it('brings its types along, which compile without those of Node', async () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'metis-types-'));
  try {
    fs.mkdirSync(path.join(folder, 'node_modules'));
    fs.symlinkSync(ROOT, path.join(folder, 'node_modules/metis-server'));
    fs.writeFileSync(path.join(folder, 'package.json'), '{"type":"module"}');
    fs.writeFileSync(
      path.join(folder, 'use.ts'),
      `import { ApiError, createMetisClient, type Session } from '${ENTRY}';
const client = createMetisClient({ baseUrl: 'http://127.0.0.1:8420' });
export const session: Session = await client.createSession({ workspace_path: '/', max_cost_usd: '1' });
for await (const event of client.turn(session.id, { content: 'x' }, { signal: new AbortController().signal })) {
  if (event.type === 'text.delta') { const text: string = event.payload.text; void text; }
  if (event.type === 'delegate.started') { const tier: 'fast' | 'balanced' | 'deep' | null = event.payload.tier; void tier; }
}
const rows = (await client.getCost({ group_by: 'session' })).data;
export const first: string | undefined = rows[0]?.cost_usd;
export const totals: string = (await client.getCost({ group_by: 'none' })).data.cost_usd;
export const fault = new ApiError(404, 'not_found', '', {}).code;
`,
    );
    const tsc = path.join(ROOT, 'node_modules/typescript/bin/tsc');
    const flags = '--noEmit --strict --exactOptionalPropertyTypes --target es2023 --lib es2023,dom --module nodenext';
    const compiled = await promisify(execFile)(process.execPath, [tsc, ...flags.split(' '), '--types', '', 'use.ts'], {
      cwd: folder,
    }).catch((error: { stdout: string }) => error);
    expect(compiled.stdout).toBe('');
  } finally {
    fs.rmSync(folder, { recursive: true, force: true });
  }
});

it('the example submits a turn and prints its text and its cost', async () => {
  const child = spawn(process.execPath, [path.join(ROOT, 'examples/client/watch.mjs'), 'Say hello.', await serve()], {
    cwd: home.path,
    env: { PATH: process.env.PATH },
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
  }
  const code = await new Promise((resolve) => child.once('close', resolve));
  expect(output).toMatch(/end_turn\n\$[\d.]+ for [1-9]\d* model calls\n$/);
  expect(code).toBe(0);
});
