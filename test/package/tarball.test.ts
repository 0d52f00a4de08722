// The package as npm packs it: what is in it, its two commands, and (`npm test -- package`) its installation.
import { execFile } from 'node:child_process';
import fs from 'node:fs';
import { isBuiltin } from 'node:module';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { address, ROOT, type Started, start, temporaryHome } from '../app/metis.ts';

const FULL = process.env.METIS_PACKAGE === 'full';
/** What a library tries to load and does without. */
const OPTIONAL = ['bufferutil', 'utf-8-validate', 'pg-native', 'supports-color', 'cloudflare:sockets'];
const PERMISSIVE = ['MIT', 'ISC', 'BSD-2-Clause', 'BSD-3-Clause', 'Apache-2.0', 'Unlicense', '0BSD'];
const OUT_OF_REACH = /E(?:NOTFOUND|AI_AGAIN|CONNREFUSED|CONNRESET|TIMEDOUT|NOTCACHED)|network/;
const { bin, exports, version } = JSON.parse(fs.readFileSync(path.join(ROOT, 'package.json'), 'utf8')) as {
  bin: Record<string, string>;
  exports: { './client': Record<string, string> };
  version: string;
};

interface Packed {
  readonly filename: string;
  readonly size: number;
  readonly files: readonly { readonly path: string; readonly mode: number }[];
}

const execute = promisify(execFile);
let home: ReturnType<typeof temporaryHome>;
let server: Started | null = null;
beforeEach(() => {
  home = temporaryHome();
});
afterEach(async () => {
  await server?.stop('SIGKILL');
  server = null;
  home.remove();
});

/** What was built is packed as it is; `npm pack` would build once more. */
async function pack(...flags: string[]): Promise<Packed> {
  const { stdout } = await execute('npm', ['pack', '--json', '--ignore-scripts', ...flags], { cwd: ROOT });
  // npm 12 answers with an object by name, earlier ones with a list.
  return (Object.values(JSON.parse(stdout)) as Packed[])[0]!;
}

it('the tarball holds what runs and what is read, no tests, no sources, no leavings of the build or of a run', async () => {
  // Leaves what it compiled in the package.
  await execute(process.execPath, [path.join(ROOT, bin.metis!), '--version'], { env: { HOME: home.path } });
  expect(fs.existsSync(path.join(ROOT, 'dist/.cache'))).toBe(true);
  const packed = await pack('--dry-run');
  const files = packed.files.map((file) => file.path);
  const journal = JSON.parse(fs.readFileSync(path.join(ROOT, 'migrations/meta/_journal.json'), 'utf8')) as {
    entries: { tag: string }[];
  };
  expect(files).toEqual(
    expect.arrayContaining([
      ...[...Object.values(bin), ...Object.values(exports['./client'])].map((file) => path.posix.normalize(file)),
      ...['README.md', 'LICENSE', 'NOTICE', 'CHANGELOG.md', 'config/registry.yaml', 'config/prices.json'],
      ...[
        'dist/LICENSES.txt',
        'dist/libraries.cdx.json',
        'openapi/openapi.json',
        'docs/operations.md',
        'examples/client/watch.mjs',
        'migrations/meta/_journal.json',
      ],
      ...journal.entries.map(({ tag }) => `migrations/${tag}.sql`),
    ]),
  );
  const top = new Set(files.map((file) => file.split('/')[0]));
  expect([...top].filter((name) => ['src', 'test', 'bench', 'scripts', 'node_modules'].includes(name!))).toEqual([]);
  expect(files.filter((file) => /\.cache|tsbuildinfo|snapshot\.json$|(?<!\.d)\.tsx?$|\.test\.|^\./.test(file))).toEqual(
    files.filter((file) => /^examples\/.*\.test\./.test(file)),
  );
  for (const command of Object.values(bin)) {
    expect(packed.files.find((file) => file.path === command)!.mode & 0o111).toBe(0o111);
  }
});

it('every library that the build does not hold is one that the package installs', () => {
  const { dependencies } = JSON.parse(fs.readFileSync(path.join(ROOT, 'package.json'), 'utf8')) as {
    dependencies: Record<string, string>;
  };
  const built = fs
    .readdirSync(path.join(ROOT, 'dist'), { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.c?js$/.test(name) && !name.startsWith('dashboard'));
  const imported = built.flatMap((name) =>
    [
      ...fs
        .readFileSync(path.join(ROOT, 'dist', name), 'utf8')
        .matchAll(/(?:\b(?:from|import|__require)|\$req)\s*\(?\s*"([\w@][\w@/.:-]*)"/g),
    ].map(([, one]) => one!),
  );
  const names = new Set(imported.map((name) => /^(?:@[^/]+\/)?[^/]+/.exec(name)![0]));
  expect([...names]).toEqual(expect.arrayContaining(['better-sqlite3', '@vscode/ripgrep', 'ws', 'node:fs']));
  const missing = [...names].filter((name) => !isBuiltin(name) && !Object.hasOwn(dependencies, name));
  expect(missing.filter((name) => !OPTIONAL.includes(name))).toEqual([]);
});

it('every library in the build is listed with its version and its terms', () => {
  const read = (name: string) => fs.readFileSync(path.join(ROOT, 'dist', name), 'utf8');
  const { components } = JSON.parse(read('libraries.cdx.json')) as {
    components: { group?: string; name: string; version: string; purl: string; licenses: { expression: string }[] }[];
  };
  const terms = read('LICENSES.txt');
  const named = components.map(
    ({ group, name, version }) => `${group === undefined ? '' : `${group}/`}${name} ${version}`,
  );
  expect(named.filter((line) => !terms.includes(`\n${line}\n`) && !terms.startsWith(`${line}\n`))).toEqual([]);
  const { devDependencies } = JSON.parse(fs.readFileSync(path.join(ROOT, 'package-lock.json'), 'utf8')).packages[''];
  const bundled = ['fastify', 'undici', 'pg', '@nats-io/transport-node', '@opentelemetry/sdk-trace', 'gpt-tokenizer'];
  expect(bundled.filter((name) => !named.some((line) => line.startsWith(`${name} `)))).toEqual([]);
  expect(bundled.filter((name) => !(name in devDependencies))).toEqual([]);
  const licenses = new Set(components.flatMap((component) => component.licenses.map(({ expression }) => expression)));
  expect([...licenses].filter((name) => !PERMISSIVE.includes(name))).toEqual([]);
  expect(components.find(({ name }) => name === 'sdk-trace')?.purl).toMatch(/^pkg:npm\/%40opentelemetry\/sdk-trace@\d/);
});

describe('metis-server', () => {
  const main = path.join(ROOT, bin['metis-server']!);

  it('serves when it is given nothing, and when it is given only flags', async () => {
    server = start([], { home: home.path, main, env: { PORT: '0' } });
    expect((await fetch(`${await address(server)}/healthz`)).status).toBe(200);
    await server.stop();
    server = start(['--port', '0', '--data', path.join(home.path, 'elsewhere')], { home: home.path, main });
    await address(server);
    expect(fs.existsSync(path.join(home.path, 'elsewhere/metis.db'))).toBe(true);
  });

  it('is metis where a command or help is asked for', async () => {
    const wrong = start(['serv'], { home: home.path, main }).finished;
    const help = start(['--help'], { home: home.path, main }).finished;
    const brief = start(['-v'], { home: home.path, main }).finished;
    const told = start(['--version'], { home: home.path, main }).finished;
    expect((await told).stdout).toBe(`${version}\n`);
    expect((await brief).stdout).toBe(`${version}\n`);
    expect((await help).stdout).toMatch(/^Usage: metis .*\n[\s\S]*doctor/);
    expect(await wrong).toMatchObject({ code: 2, stdout: '' });
  });
});

it.skipIf(!FULL)(
  'installed from its tarball in an empty folder, the demo runs, the client is imported, and both are as large as the documents say',
  async ({ skip }) => {
    const packed = await pack('--pack-destination', home.path);
    const folder = path.join(home.path, 'empty');
    fs.mkdirSync(folder);
    const flags = ['--prefer-offline', '--no-audit', '--no-fund', '--fetch-retries=0', '--prefix', folder];
    const installed = await execute('npm', ['install', ...flags, path.join(home.path, packed.filename)], {
      cwd: folder,
    }).catch((error: { stderr: string }) => error);
    if ('code' in installed) {
      skip(OUT_OF_REACH.test(installed.stderr), 'the registry is out of reach');
      throw installed;
    }
    const command = path.join(folder, 'node_modules/.bin/metis');
    const env = { PATH: `${path.dirname(process.execPath)}:${process.env.PATH}`, HOME: home.path };
    const demo = await execute(`${command}-server`, ['demo'], { cwd: folder, env });
    expect(demo.stdout).toMatch(/^total +15 .* \$0\.1093401$/m);

    const asks = "import('metis-server/client').then((m) => console.log(Object.keys(m).join()))";
    const client = await execute(process.execPath, ['-e', asks], { cwd: folder, env });
    expect(client.stdout).toContain('createMetisClient');

    server = start(['--port', '0'], { home: home.path, main: path.join(folder, 'node_modules/.bin/metis-server') });
    expect((await fetch(`${await address(server)}/readyz`)).status).toBe(200);

    const kilobytes = Math.round(packed.size / 1000);
    const megabytes = Math.round(size(path.join(folder, 'node_modules')) / 1e6);
    console.log(`tarball ${kilobytes} kB, installed ${megabytes} MB`);
    const page = fs.readFileSync(path.join(ROOT, 'docs/operations.md'), 'utf8');
    const [, told, tree] = /tarball of about (\d+) MB; installed with everything it needs it takes (\d+) MB/.exec(
      page,
    )!;
    expect(Math.abs((Number(told) * 1000) / kilobytes - 1)).toBeLessThan(0.25);
    expect(Math.abs(Number(tree) / megabytes - 1)).toBeLessThan(0.25);
  },
  300_000,
);

function size(folder: string): number {
  return fs
    .readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .reduce((sum, entry) => sum + fs.statSync(path.join(entry.parentPath, entry.name)).size, 0);
}
