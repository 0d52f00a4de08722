// Every command of the README and the pages for users works as it is printed, in its order, on a fresh checkout.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { toPusd } from '#protocol/money.ts';
import { type FakeAnswer, type FakeCall, startFakeProvider } from '../support/fake-provider.ts';
import { freePort } from '../support/free-port.ts';
import { until } from '../support/until.ts';
import { NODE_FLAGS, ROOT } from './metis.ts';

const COMMAND_LIMIT_MS = 90_000;

/** Commands that are not run, and why. A line of its own in a block, or the words between back-ticks. */
const LEFT_OUT: Readonly<Record<string, string>> = {
  'npm ci': 'would take away the dependencies that the checkout borrows',
  'npm ci && npm test': 'the suite does not run itself',
  'npm run demo -- --keep': 'stays until it is interrupted; test/app/demo holds it',
  'npm pack': 'test/package packs it',
  'npm install -g ./metis-server-*.tgz': 'test/package installs what npm packs',
  'npm install ../metis/metis-server-*.tgz': 'test/package installs what npm packs',
  'npm install metis-server': 'not published yet',
  'npx metis': 'another way to write the name, not a command',
  'metis demo --provider anthropic': 'needs a key and costs money',
  'npm run demo -- --worktrees': 'takes ten seconds; test/app/demo starts it without npm',
  'npm run demo -- --checked': 'takes ten seconds; test/app/demo starts it without npm',
  'metis demo --worktrees': 'the demo of `npm run demo -- --worktrees`',
  'metis demo --checked': 'the demo of `npm run demo -- --checked`',
  'metis benchmark examples/benchmark --delegation-policy sonnet-planner-haiku-worker --budget 2.00':
    'needs a key and costs money',
  'npm test': 'the suite does not run itself',
  'npm run bench': 'takes minutes',
  'npm test -- package': 'installs from the registry',
  'npm audit': 'asks the registry',
  'npx metis-server demo': 'the demo of `npm run demo`; test/package starts it so',
  'export METIS_TOKEN=$(openssl rand -hex 32)': 'for the container of the next line',
  'METIS_WORKSPACES=~/projects docker compose --file docker-compose.single.yml up --build --detach --wait':
    'needs a Docker engine',
  'METIS_REGISTRY_PATH=/app/examples/ollama/registry.yaml docker compose --file docker-compose.single.yml --profile ollama up --build --detach':
    'needs a Docker engine',
  "docker compose --file docker-compose.single.yml exec ollama sh -c 'ollama pull qwen3:14b && ollama pull qwen3:4b'":
    'needs a Docker engine',
  'metis prices update': 'needs a price table; test/app/updates holds it',
  'metis models update': 'needs a registry; test/app/updates holds it',
  'metis reconcile FILE…': 'needs what a provider exports; test/app/reconcile holds it',
  'metis reconcile cost.json': 'needs what a provider exports; test/app/reconcile holds it',
  'metis conclude SESSION': 'needs a turn that runs; test/app/worktrees holds it',
  'npm run gen:prices': 'depends on a development dependency newer than the prices',
  'metis run "TASK" --worker NAME': 'asks a model; test/app/run holds it',
  'ANTHROPIC_BASE_URL=http://127.0.0.1:8420 ANTHROPIC_AUTH_TOKEN=metis claude':
    'starts a program of others; npm test -- clients holds it',
  'node --test': "part of a sentence about the reader's own test",
};
/** Pages whose commands take minutes. */
const LONG = new Set(['performance.md']);
/** Pages for those who change the code: what their commands write, a test of its own compares. */
const FOR_CONTRIBUTORS = new Set(['architecture.md']);
/** What a reader puts in the place of a placeholder or of what the checkout has done already. */
const FILLED: Readonly<Record<string, string>> = {
  'npm ci && npm run demo': 'npm run demo',
  'metis backup FILE': 'metis backup copy.db',
  'metis restore FILE': 'metis restore copy.db --data restored',
  'metis case': 'metis help case',
  'metis case save': 'metis help case save',
  'metis run': 'metis help run',
  'metis experiment': 'metis help experiment',
  'metis routing what-if FILE': 'echo "global_default: scripted:fast" > other.yaml && metis routing what-if other.yaml',
  'metis trust .metis/checks.yaml': 'metis trust',
  'metis workers show NAME': 'metis workers list',
  'metis migrate': 'metis help migrate',
  'metis migrate --to sqlite:FOLDER': 'metis help migrate',
  'metis prune --days N': 'metis prune --days 30',
  'metis token create': 'metis help token create',
  'metis token hash': `printf '%064d' 7 | metis token hash`,
};
const NEEDS_NO_SERVER = /^metis rollups rebuild/;
const SERVER = /^(npm start|metis serve|node dist\/main\.js serve|npx metis-server$)/;
/** They bring their own server and leave nothing: seen on one page, they do the same on every other. */
const BY_ITSELF = /^npm run demo/;
/** Named over and over on one page, where they would say the same again. */
const LOOKS = /^metis (?:doctor|workers list)$/;
const ENDLESS = /^curl -sN /;

interface Checkout {
  readonly folder: string;
  readonly port: number;
  readonly env: Record<string, string>;
}
let checkout: Checkout;
let shell: Shell | null = null;
let server: ChildProcess | null = null;
/** Resolves when the server's process is over, and everything it had started and that could still write. */
let closed: Promise<unknown> = Promise.resolve();
/** What was seen to work as it is printed, on this checkout: what starts a server, and what needs none. */
const seen = new Set<string>();
/** The repository without what is not in it, but with its dependencies and the build that every command would make. */
async function freshCheckout(): Promise<Checkout> {
  const folder = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), 'metis-checkout-')));
  const absent = new Set(['node_modules', '.git', 'dist', '.metis'].map((name) => path.join(ROOT, name)));
  fs.cpSync(ROOT, folder, { recursive: true, filter: (source) => !absent.has(source) });
  fs.cpSync(path.join(ROOT, 'dist'), path.join(folder, 'dist'), { recursive: true });
  const modules = fs.realpathSync(path.join(ROOT, 'node_modules'));
  fs.symlinkSync(modules, path.join(folder, 'node_modules'));
  // The compiler knows the dependencies by where they really lie: else its first run here compiles everything again.
  const memory = path.join(folder, 'dist/.tsbuildinfo');
  const known = fs.readFileSync(memory, 'utf8');
  const real = path.relative(path.dirname(memory), modules);
  fs.writeFileSync(memory, known.replaceAll('"../node_modules/', `"${real}/`));
  const port = await freePort();
  const bin = path.join(folder, 'bin');
  const home = path.join(folder, 'home');
  for (const made of [bin, home]) fs.mkdirSync(made);
  // Another port than the printed one, which may be taken: the only thing that differs from the page.
  const asks = `case "$1" in routing|workers|run|sessions|cost|models) set -- "$@" --server http://127.0.0.1:${port};; esac`;
  const metis = `#!/bin/sh\n${asks}\nexec "${process.execPath}" ${NODE_FLAGS.join(' ')} "${path.join(folder, 'dist/main.js')}" "$@"\n`;
  fs.writeFileSync(path.join(bin, 'metis'), metis, { mode: 0o755 });
  const PATH = `${bin}:${path.dirname(process.execPath)}:${process.env.PATH}`;
  return {
    folder,
    port,
    env: { PATH, HOME: home, PORT: String(port), NO_COLOR: '1', NODE_COMPILE_CACHE: path.join(home, '.compiled') },
  };
}

/** The commands of a page in the order in which they stand: the lines of its `sh` blocks, and those inside sentences. */
function commandsOf(page: string): string[] {
  const found: string[] = [];
  for (const [, block, words] of page.matchAll(/^```sh\n([\s\S]*?)^```|`((?:metis|npm|npx|node) [^`]*)`/gm)) {
    if (block === undefined) found.push(words!);
    else found.push(...linesOf(block));
  }
  return found;
}

/** One entry a command: continued lines and here-documents stay whole, comments go. */
function linesOf(block: string): string[] {
  const found: string[] = [];
  let open = '';
  for (const line of block.split('\n')) {
    open = open === '' ? line : `${open}\n${line}`;
    const here = /<<'(\w+)'/.exec(open);
    if (line.endsWith('\\') || (here && line !== here[1])) continue;
    const command = open.replace(/\s+# .*$/, '').trim();
    if (command !== '' && !command.startsWith('#')) found.push(command);
    open = '';
  }
  return found;
}

/** One bash for a page, so that its variables last. */
interface Shell {
  run(command: string): Promise<{ readonly code: number; readonly output: string }>;
  close(): Promise<void>;
}
function openShell({ folder, env }: Checkout): Shell {
  const child = spawn('bash', ['--noprofile', '--norc'], { cwd: folder, env, detached: true });
  let output = '';
  let look = () => {};
  let broken = (_: Error) => {};
  child.once('close', () => broken(new Error(`the shell ended:\n${output}`)));
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text;
      look();
    });
  child.stdin.write('set -a\n');
  return {
    run: (command) =>
      new Promise((resolve, reject) => {
        output = '';
        let over = false;
        look = () => {
          const end = /\n<<<(\d+)>>>\n/.exec(output);
          if (!end) return;
          over = true;
          resolve({ code: Number(end[1]), output: output.slice(0, end.index) });
        };
        AbortSignal.timeout(COMMAND_LIMIT_MS).onabort = () => {
          if (over) return;
          reject(new Error(`does not end: ${command}\n${output}`));
          process.kill(-child.pid!, 'SIGKILL');
        };
        broken = reject;
        child.stdin.write(`{\n${command}\n} </dev/null 2>&1\nprintf '\\n<<<%s>>>\\n' $?\n`);
      }),
    async close() {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const ended = once(child, 'close');
      child.stdin.end();
      await ended;
    },
  };
}

async function startServer(command: string, env: Record<string, string>): Promise<void> {
  await stopServer();
  const child = spawn('bash', ['-c', command], {
    cwd: checkout.folder,
    env: { ...checkout.env, ...env },
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  server = child;
  closed = once(child, 'close');
  let output = '';
  await new Promise<void>((resolve, reject) => {
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (text: string) => {
        output += text;
        if (/listens on http/.test(output)) resolve();
      });
    child.once('close', (code) => reject(new Error(`${command} ended with ${code}:\n${output}`)));
  });
}
/** The whole group: npm, its shell and the server. */
async function stopServer(): Promise<void> {
  const child = server;
  server = null;
  if (child?.pid === undefined) return;
  try {
    process.kill(-child.pid, 'SIGTERM');
  } catch {
    // Nothing of the group is left.
  }
  await closed;
}

/** Runs a page from top to bottom. Returns each command that was run, with what it printed. */
async function follow(name: string, env: Record<string, string> = {}): Promise<Map<string, string>> {
  const printed = new Map<string, string>();
  shell ??= openShell(checkout);
  for (const original of commandsOf(fs.readFileSync(path.join(ROOT, name), 'utf8'))) {
    if (Object.hasOwn(LEFT_OUT, original)) continue;
    const command = (FILLED[original] ?? original).replaceAll('localhost:8420', `localhost:${checkout.port}`);
    if (SERVER.test(command)) {
      // Whoever has seen it start leaves it running: most of these build first.
      if (!seen.has(command)) await startServer(command, env);
      else if (server === null) await startServer('metis serve', env);
      seen.add(command);
      printed.set(original, '');
      continue;
    }
    if (BY_ITSELF.test(command) && seen.has(command)) continue;
    if (LOOKS.test(command) && printed.has(original)) continue;
    seen.add(command);
    if (NEEDS_NO_SERVER.test(command)) await stopServer();
    const { code, output } = await shell.run(ENDLESS.test(command) ? untilFirstLine(command) : command);
    expect({ command, code, output }).toMatchObject({ code: 0, output: expect.not.stringContaining('"error":{') });
    printed.set(original, output);
  }
  return printed;
}

/** Ends a command that would go on for ever once it has printed something, as a reader does. */
function untilFirstLine(command: string): string {
  const quoted = command.replaceAll("'", `'\\''`);
  return `{ read -r pid; grep -m1 '^data'; kill "$pid"; } < <(bash -c 'echo $$; exec ${quoted}')`;
}

describe('the commands', () => {
  beforeAll(async () => {
    checkout = await freshCheckout();
  });
  afterEach(async () => {
    await stopServer();
    await shell?.close();
    shell = null;
  });
  afterAll(() => fs.rmSync(checkout.folder, { recursive: true, force: true }));

  it('of the README', async () => {
    const printed = await follow('README.md');
    const of = (start: RegExp) => [...printed].find(([command]) => start.test(command))?.[1];
    expect(of(/^npm ci && npm run demo/)).toMatch(/Saved by delegating/);
    expect(of(/turns .*Prefer/s)).toMatch(/"status":"completed"/);
    expect(of(/^curl -sN/)).toMatch(/^data: \{"type":"subscribe_ack"/m);
    expect(of(/^metis routing check/)).toMatch(/^ok +\.metis\/routing\.yaml/m);
    expect(of(/^metis routing explain/)).toMatch(/input tokens/);
    expect(of(/\/estimate/)).toMatch(/"estimated_input_tokens":\d+/);
    expect(of(/-X PATCH/)).toMatch(/"max_cost_usd":"2"/);
    expect((await shell!.run('npx metis --version')).code).toBe(0);
    // It builds, serves and runs demos in turn.
  }, 300_000);

  it('of the page on benchmarks', async () => {
    const [, printed = ''] =
      [...(await follow('docs/benchmark.md'))].find(([line]) => line.endsWith('--scripted')) ?? [];
    const page = fs.readFileSync(path.join(ROOT, 'docs/benchmark.md'), 'utf8');
    // The seconds alone differ from run to run.
    const figures = (text: string) => text.match(/^multi-step.*\$[\d.]+/gm);
    expect(figures(printed)).toEqual(figures(page));
    expect(figures(page)).toHaveLength(3);
  });

  it('of the pages on operations, workers, configuration and security', async () => {
    const printed = await follow('docs/operations.md');
    expect(printed.get('metis rollups verify')).toMatch(/agree/);
    expect(printed.get('metis backup FILE')).toMatch(/bytes, a copy of/);
    expect(printed.get('metis restore FILE')).toMatch(/restored\/metis\.db: \d+ sessions, .* a copy of/);
    await startServer('metis serve', {});
    await follow('docs/workers.md');
    expect((await follow('docs/configuration.md')).get('metis config check')).toMatch(/configuration ok/);
    expect((await follow('docs/security.md')).get('metis doctor')).toMatch(/ripgrep/);
    expect((await follow('docs/cluster.md')).get('metis migrate')).toMatch(/Usage: metis migrate/);
  });

  it('of the page on what would have happened otherwise', async () => {
    const printed = await follow('docs/what-if.md');
    expect(printed.get('metis case run cases/files --junit report.xml')).toMatch(/^ok +requests$/m);
    const changed = [...printed].find(([command]) => command.includes('exit code'))?.[1];
    expect(changed).toMatch(/call 1 of the planner differs at head\.system_prompt[\s\S]*exit code 1/);
    const compared = [...printed].find(([command]) => command.includes('/compare?with='))?.[1];
    expect(compared).toMatch(/"shared":\{"messages":5,"calls":4,/);
    const page = fs.readFileSync(path.join(ROOT, 'docs/what-if.md'), 'utf8');
    const readBill = (text = '') => text.match(/^(?:scripted:balanced|total) .*\$.*$|^\d+ of \d+ decisions/gm) ?? [];
    const bill = [...printed].find(([command]) => command.startsWith('metis routing what-if'))?.[1];
    const amounts = (text = '') => [...text.matchAll(/\$(\S+)/g)].map((match) => toPusd(match[1]!));
    // Numbers follow the sessions of the data folder, here those of other pages too; how they belong together does not.
    for (const [row, total, count] of [readBill(page), readBill(bill)]) {
      const [, few, many] = /^(\d+) of (\d+) decisions$/.exec(count!)!;
      expect([row, total]).toEqual([
        expect.stringMatching(new RegExp(`^scripted:balanced +scripted:fast +- +${few} +\\$`)),
        expect.stringMatching(new RegExp(`^total +${many} +\\$`)),
      ]);
      for (const sum of [row, total].map(amounts)) expect([sum.length, sum[0]! > sum[2]!]).toEqual([3, true]);
    }
  });

  it('of the pages that need a model, with a model that is played', async () => {
    const writes = { name: 'write_file', input: { path: 'made.txt', content: 'new' } };
    const say = (call: FakeCall): FakeAnswer =>
      call.user === 'write' && call.results.length === 0 ? { tool_calls: [writes] } : { text: 'src and test' };
    const provider = await startFakeProvider(say);
    const env = { ANTHROPIC_API_KEY: 'a-key-of-the-test', ANTHROPIC_BASE_URL: provider.anthropicUrl };
    try {
      await startServer('metis serve', env);
      shell = openShell(checkout);
      const at = `curl -s localhost:${checkout.port}/sessions`;
      const json = `-H 'content-type: application/json'`;
      await shell.run(
        `S=$(${at} ${json} -d "{\\"workspace_path\\": \\"$PWD/examples\\"}" | sed 's/.*"id":"\\([^"]*\\)".*/\\1/')`,
      );
      await shell.run(`${at}/$S/turns ${json} -d '{"content": "write"}'`);
      const open = `curl -s "localhost:${checkout.port}/confirmations"`;
      await until(async () => (await shell!.run(open)).output.includes('"write_file"'));
      await follow('docs/http.md');
      await until(() => fs.existsSync(path.join(checkout.folder, 'examples/made.txt')));

      const printed = await follow('docs/replay.md', env);
      const turn = [...printed.values()].find((output) => output.includes('src and test'));
      expect(turn).toMatch(/"status":"completed"/);
      expect(fs.readdirSync(path.join(checkout.folder, 'recorded'))).toHaveLength(1);
    } finally {
      await stopServer();
      await provider.close();
    }
  });

  it('that start a server end it with the npm that started it', async () => {
    await startServer('exec npm start', {});
    const npm = server!;
    const ended = once(npm, 'exit');
    npm.kill('SIGTERM');
    await ended;
    await expect(fetch(`http://127.0.0.1:${checkout.port}/healthz`)).rejects.toThrow();
  });
});

it('the commands of every page are run, or left out for a reason', () => {
  const pages = fs.readdirSync(path.join(ROOT, 'docs')).filter((name) => name.endsWith('.md'));
  const followed = [
    'operations.md',
    'workers.md',
    'configuration.md',
    'security.md',
    'http.md',
    'replay.md',
    'doors.md',
    'client.md',
    'benchmark.md',
    'cluster.md',
    'what-if.md',
  ];
  const rest = pages.filter((name) => !followed.includes(name) && !LONG.has(name) && !FOR_CONTRIBUTORS.has(name));
  const left = rest.flatMap((name) => commandsOf(fs.readFileSync(path.join(ROOT, 'docs', name), 'utf8')));
  expect(left).toEqual([]);
  const all = ['README.md', ...followed.map((name) => `docs/${name}`)].flatMap((name) =>
    commandsOf(fs.readFileSync(path.join(ROOT, name), 'utf8')),
  );
  for (const command of [...Object.keys(LEFT_OUT), ...Object.keys(FILLED)]) expect(all).toContain(command);
});
