// The container without an engine: what its files say, checked against the project, and its start command run as they say it.
import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import path from 'node:path';
import { load } from 'js-yaml';
import picomatch from 'picomatch';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { defaultConfig } from '#protocol/config.ts';
import { CONFIG_KEYS, parseValue, toEnvironmentName } from '#server/config.ts';
import { ROOT, temporaryHome } from '../app/metis.ts';

const NOBODY = 65534;
const TOKEN = '0123456789abcdef0123456789abcdef';
/** What both compose files ask for. */
const GIVEN = { METIS_TOKEN: TOKEN, METIS_DATABASE_PASSWORD: 'letters' };
const SYSTEM = ['/usr', '/bin', '/lib', '/lib64', '/etc'];
const text = (name: string) => fs.readFileSync(path.join(ROOT, name), 'utf8');

interface Instruction {
  readonly name: string;
  readonly rest: string;
}
const instructions = text('Dockerfile')
  .replaceAll('\\\n', ' ')
  .split('\n')
  .filter((line) => line !== '' && !line.startsWith('#'))
  .map((line): Instruction => ({ name: line.split(' ')[0]!, rest: line.slice(line.indexOf(' ') + 1) }));
const bases = instructions.filter((one) => one.name === 'FROM').map((one) => one.rest);
const final = instructions.slice(instructions.findLastIndex((one) => one.name === 'FROM'));
const last = (name: string) => final.findLast((one) => one.name === name)!.rest;
/** Path in the checkout -> path in the image. */
const copied = final
  .filter((one) => one.name === 'COPY')
  .flatMap(({ rest }) => {
    const [, ...paths] = rest.split(' ');
    const target = paths.pop()!;
    return paths.map((source) => {
      const name = path.posix.relative('/app', source);
      return [name, path.posix.join('/app', target.endsWith('/') ? path.posix.join(target, name) : target)] as const;
    });
  });

/** What of the Compose specification the file uses; a key that is not here is a mistake, or belongs here. */
const Service = z.strictObject({
  image: z.string(),
  build: z.string().optional(),
  pull_policy: z.literal('never').optional(),
  user: z
    .string()
    .regex(/^\d+:\d+$/)
    .optional(),
  entrypoint: z.array(z.string()).optional(),
  command: z.array(z.string()).optional(),
  depends_on: z
    .record(z.string(), z.strictObject({ condition: z.enum(['service_healthy', 'service_completed_successfully']) }))
    .optional(),
  healthcheck: z
    .strictObject({
      test: z.tuple([z.literal('CMD')], z.string()),
      interval: z.string(),
      timeout: z.string(),
      retries: z.int(),
    })
    .optional(),
  init: z.boolean().optional(),
  stop_grace_period: z
    .string()
    .regex(/^\d+s$/)
    .optional(),
  restart: z.enum(['no', 'always', 'on-failure', 'unless-stopped']).optional(),
  read_only: z.boolean().optional(),
  tmpfs: z.array(z.string().startsWith('/')).optional(),
  cap_drop: z.array(z.string()).optional(),
  security_opt: z.array(z.string()).optional(),
  profiles: z.array(z.string().regex(/^[a-zA-Z0-9][\w.-]*$/)).optional(),
  environment: z.record(z.string(), z.union([z.string(), z.number(), z.null()])).optional(),
  ports: z.array(z.string()).optional(),
  volumes: z.array(z.string().regex(/^(?:\$\{[^}]*\}|[\w./-]+):\/[\w/-]*(?::ro)?$/)).optional(),
});
const Compose = z.strictObject({
  services: z.record(z.string(), Service),
  volumes: z.record(z.string(), z.null()).optional(),
});
const compose = Compose.parse(load(text('docker-compose.single.yml')));
const metis = compose.services.metis!;
const cluster = Compose.parse(load(text('docker-compose.yml')));

/** As Compose fills in a value: `${NAME:-default}`, `${NAME:?why}`. */
function filled(value: string, given: Record<string, string>): string {
  return value.replaceAll(/\$\{(\w+)(?::([-?])([^}]*))?\}/g, (_, name: string, kind?: string, other = '') => {
    if (given[name]) return given[name];
    if (kind === '?') throw new Error(`required variable ${name} is missing a value: ${other}`);
    return other;
  });
}

describe('the Dockerfile', () => {
  it('builds on the Node.js that a checkout develops on, and runs on the same', () => {
    const { devDependencies } = JSON.parse(text('package.json')) as { devDependencies: { node: string } };
    const major = /^\^(\d+)\./.exec(devDependencies.node)![1];
    expect(bases).toEqual([`node:${major}-slim AS build`, `node:${major}-slim`]);
  });

  it('copies what is there, built or in the checkout, and nothing that only building needs', () => {
    expect(copied.length).toBeGreaterThan(5);
    for (const [source] of copied) expect(fs.existsSync(path.join(ROOT, source)), source).toBe(true);
    const wanted = copied.map(([source]) => source);
    for (const [name] of copied.filter(([source]) => !['dist', 'node_modules'].includes(source)))
      expect(sent(name), name).toBe(true);
    expect(wanted.filter((name) => ['src', 'test', 'scripts', 'bench'].includes(name))).toEqual([]);
  });

  it('ends as somebody who is not root, and starts a file of the image', () => {
    expect(last('USER')).toMatch(/^[1-9]\d*:[1-9]\d*$/);
    const [node, ...rest] = JSON.parse(last('ENTRYPOINT')) as string[];
    const main = rest.at(-1);
    // What Node.js is told is what `npm start` tells it.
    expect([node, ...rest.slice(0, -1), 'dist/main.js serve'].join(' ')).toBe(
      JSON.parse(text('package.json')).scripts.start.split('exec ')[1],
    );
    expect(copied.some(([source, target]) => source === 'dist' && main!.startsWith(`${target}/`))).toBe(true);
    expect(JSON.parse(text('package.json')).bin['metis-server']).toBe(path.posix.relative('/app', main!));
  });
});

/** Whether `.dockerignore` lets a file go to the engine: the last line that matches it or a folder above decides. */
function sent(name: string): boolean {
  const lines = text('.dockerignore')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'));
  const parts = name.split('/');
  const above = parts.map((_, i) => parts.slice(0, i + 1).join('/'));
  return lines.reduce((goes, line) => {
    const match = picomatch(line.replace(/^!/, ''), { dot: true });
    return above.some((folder) => match(folder)) ? line.startsWith('!') : goes;
  }, true);
}

it('what the build needs goes to the engine; keys, data, git and what was built here do not', () => {
  const needed = ['package.json', 'package-lock.json', '.npmrc', 'tsconfig.json', 'tsconfig.build.json'];
  for (const name of [...needed, 'tsconfig.client.json', 'scripts/build.mjs', 'src/main.ts'])
    expect([name, fs.existsSync(path.join(ROOT, name)), sent(name)]).toEqual([name, true, true]);
  const kept = [
    '.git/config',
    'node_modules/ws/index.js',
    'dist/main.js',
    '.env',
    'examples/.env.local',
    'test/CONTRACT.md',
  ];
  for (const name of [...kept, 'examples/auth-refactor/.metis/trust.yaml', 'metis.db', 'src/metis.db-wal'])
    expect([name, sent(name)]).toEqual([name, false]);
});

describe('docker-compose.single.yml', () => {
  it('sets keys of the configuration to values that they take, and known names besides', () => {
    const names = new Map([...CONFIG_KEYS].map(([key, schema]) => [toEnvironmentName(key), schema]));
    const set = [metis, cluster.services.metis!].flatMap(({ environment }) => Object.entries(environment!));
    for (const [name, value] of set) {
      const schema = names.get(name);
      if (schema === undefined) expect(name).toMatch(/^(?:ANTHROPIC|OPENAI|OPENROUTER)_(?:API_KEY|BASE_URL)$/);
      else if (value !== null)
        expect(schema.safeParse(parseValue(schema, filled(String(value), GIVEN))).error).toBe(undefined);
    }
  });

  it('does not start without a token, and is reached from this machine alone', () => {
    const token = String(metis.environment!.METIS_SERVER_AUTH_TOKENS);
    expect(() => filled(token, {})).toThrow('required variable METIS_TOKEN');
    expect(metis.ports!.map((port) => filled(port, {}))).toEqual([`127.0.0.1:8420:${last('EXPOSE')}`]);
  });

  it('keeps the data in a volume, and lets nothing else of the system be written', () => {
    expect(metis).toMatchObject({ read_only: true, cap_drop: ['ALL'], security_opt: ['no-new-privileges:true'] });
    expect(metis.volumes).toContain(`data:${last('VOLUME')}`);
    for (const volume of Object.values(compose.services).flatMap((one) => one.volumes ?? [])) {
      const source = filled(volume, {}).split(':')[0]!;
      expect(source in compose.volumes! || fs.existsSync(path.join(ROOT, source)), volume).toBe(true);
    }
  });

  it('brings models of its own where they are asked for', () => {
    expect(compose.services.ollama!.profiles).toEqual(['ollama']);
    const { adapters } = load(text('examples/ollama/registry.yaml')) as { adapters: { ollama: { base_url: string } } };
    expect(Object.keys(compose.services)).toContain(new URL(adapters.ollama.base_url).hostname);
  });
});

describe('docker-compose.yml', () => {
  const { postgres, nats, build, metis: node } = cluster.services;

  it('starts nodes when the services are healthy and the image is built, once for all of them', () => {
    expect(node!.depends_on).toEqual({
      build: { condition: 'service_completed_successfully' },
      postgres: { condition: 'service_healthy' },
      nats: { condition: 'service_healthy' },
    });
    expect([postgres!.image, nats!.image]).toEqual(['postgres:15', expect.stringMatching(/^nats:2/)]);
    for (const service of [postgres!, nats!]) expect(service.healthcheck).toBeDefined();
    // Whoever builds is not scaled, and whoever is scaled does not build.
    expect([build!.build, build!.image, build!.restart]).toEqual(['.', node!.image, 'no']);
    expect([node!.build, node!.pull_policy]).toEqual([undefined, 'never']);
  });

  it('has ports for ten nodes on this machine alone, and nothing else that can be reached', () => {
    expect(node!.ports).toEqual([`127.0.0.1:8420-8429:${last('EXPOSE')}`]);
    for (const service of [postgres!, nats!, build!]) expect(service.ports).toBeUndefined();
    expect(JSON.parse(String(node!.environment!.METIS_SERVER_ALLOWED_HOSTS))).toEqual(['127.0.0.1', 'localhost']);
  });

  it('shares the workspaces among nodes, under a root that all of them list', () => {
    const [volume] = node!.volumes!;
    expect(build!.volumes).toEqual([volume]);
    expect(filled(volume!, {})).toBe('workspaces:/workspaces');
    expect(Object.keys(cluster.volumes!)).toEqual(['database', 'workspaces']);
    const roots = ['METIS_CLUSTER_SHARED_ROOTS', 'METIS_SERVER_WORKSPACE_ROOTS'];
    expect(roots.map((name) => JSON.parse(String(node!.environment![name])))).toEqual([
      ['/workspaces'],
      ['/workspaces'],
    ]);
  });

  it('does not start without a token and a password, and nodes are as closed as a single server', () => {
    expect(() => filled(String(node!.environment!.METIS_SERVER_AUTH_TOKENS), {})).toThrow('METIS_TOKEN');
    expect(() => filled(String(node!.environment!.METIS_DATABASE_URL), {})).toThrow('METIS_DATABASE_PASSWORD');
    const closed = ({ init, restart, read_only, tmpfs, cap_drop, security_opt }: typeof metis) => ({
      init,
      restart,
      read_only,
      tmpfs,
      cap_drop,
      security_opt,
    });
    expect(closed(node!)).toEqual(closed(metis));
  });

  // Promise 16.32: compose gives a stopped node longer than its calls may take, and a single server longer than its drain.
  it('waits for calls that are under way before it kills', () => {
    const { shutdown } = defaultConfig('/data');
    const grace = ({ stop_grace_period = '0s' }: typeof metis) => Number.parseInt(stop_grace_period, 10);
    const exitSeconds = 20;
    expect(grace(node!)).toBeGreaterThan(shutdown.linger_seconds + exitSeconds);
    expect(grace(metis)).toBeGreaterThan(shutdown.drain_seconds + exitSeconds);
  });

  it('gives a new volume of workspaces to the user of the nodes, and leaves a folder of a person alone', () => {
    const [shell, flag, script] = build!.entrypoint!;
    const [user] = last('USER').split(':');
    expect(script).toContain(`chown ${user}:`);
    const asked = (owner: string) => {
      const said = script!.replaceAll('$$', '$').replace('stat -c %u /workspaces', `echo ${owner}`);
      return spawnSync(shell!, [flag!, said.replace('chown', 'echo')], { encoding: 'utf8' });
    };
    expect(asked('0')).toMatchObject({ status: 0, stdout: `${user}:${user} /workspaces\n` });
    expect(asked('501')).toMatchObject({ status: 0, stdout: '' });
  });
});

const sandbox = spawnSync('bwrap', ['--ro-bind', '/', '/', 'true']).status === 0;
const isRoot = process.getuid?.() === 0;

describe.skipIf(!sandbox)('the start command as another user, with nothing to write to but the data', () => {
  let home: ReturnType<typeof temporaryHome>;
  let child: ChildProcess | null = null;
  beforeEach(() => {
    home = temporaryHome();
    if (isRoot) fs.chownSync(home.path, NOBODY, NOBODY);
  });
  afterEach(async () => {
    if (child !== null && child.exitCode === null && child.signalCode === null) {
      child.kill('SIGKILL');
      await once(child, 'exit');
    }
    child = null;
    home.remove();
  });

  /** The image as the Dockerfile lays it out, below a root that is read-only. */
  function inside(command: readonly string[], environment: Record<string, string>): [string, string[]] {
    const [node, ...args] = command;
    expect(node).toBe('node');
    const bind = (from: string, to: string) => ['--ro-bind', from, to];
    const open = (folder: string) => ['--perms', '0755', '--dir', folder];
    const user = isRoot
      ? ['--cap-add', 'CAP_SETUID', '--cap-add', 'CAP_SETGID']
      : ['--unshare-user', '--uid', String(NOBODY), '--gid', String(NOBODY)];
    const become = isRoot ? ['setpriv', `--reuid=${NOBODY}`, `--regid=${NOBODY}`, '--clear-groups'] : [];
    const flags = [
      ...['--perms', '0755', '--tmpfs', '/', '--proc', '/proc', '--dev', '/dev', ...open('/app'), ...open('/opt')],
      ...SYSTEM.filter((folder) => fs.existsSync(folder)).flatMap((folder) => bind(folder, folder)),
      ...metis.tmpfs!.flatMap((folder) => ['--perms', '1777', '--tmpfs', folder]),
      ...copied.flatMap(([source, target]) => bind(path.join(ROOT, source), target)),
      ...bind(path.join(ROOT, 'examples'), '/workspaces'),
      ...bind(fs.realpathSync(process.execPath), '/opt/node'),
      ...['--bind', home.path, last('VOLUME'), '--remount-ro', '/', '--chdir', last('WORKDIR'), '--die-with-parent'],
      ...['--clearenv', '--setenv', 'PATH', '/usr/bin:/bin'],
      ...Object.entries(environment).flatMap(([name, value]) => ['--setenv', name, value]),
    ];
    return ['bwrap', [...flags, ...user, '--', ...become, '/opt/node', ...args]];
  }

  it('listens, keeps its data, is found healthy by the image itself, refuses who has no token, and ends at SIGTERM', async () => {
    const set = Object.entries(metis.environment!).filter((pair): pair is [string, string] => pair[1] !== null);
    const environment = {
      ...Object.fromEntries(
        last('ENV')
          .split(' ')
          .map((pair) => pair.split('=') as [string, string]),
      ),
      ...Object.fromEntries(set.map(([name, value]) => [name, filled(value, { METIS_TOKEN: TOKEN })])),
      PORT: '0',
    };
    const started = JSON.parse(last('ENTRYPOINT')).concat(JSON.parse(last('CMD')));
    const [program, flags] = inside(started, environment);
    child = spawn(program, ['--info-fd', '3', ...flags], { stdio: ['ignore', 'pipe', 'pipe', 'pipe'] });
    // bwrap stays beside what it starts, and takes no signal on.
    let told = '';
    (child.stdio[3]! as NodeJS.ReadableStream).setEncoding('utf8').on('data', (piece: string) => {
      told += piece;
    });
    let said = '';
    child.stderr!.setEncoding('utf8').on('data', (piece: string) => {
      said += piece;
    });
    const ended = once(child, 'exit');
    await new Promise<void>((resolve) => {
      child!.once('exit', () => resolve());
      child!.stdout!.setEncoding('utf8').on('data', (piece: string) => {
        said += piece;
        if (/listens on /.test(said)) resolve();
      });
    });
    const port = /listens on http:\/\/[^\s,]*:(\d+)/.exec(said)?.[1];
    expect(port, said).toBeDefined();
    const owner = fs.statSync(path.join(home.path, 'metis.db'));
    expect([owner.mode & 0o777, isRoot ? owner.uid : NOBODY]).toEqual([0o600, NOBODY]);

    const base = `http://127.0.0.1:${port}`;
    const headers = { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' };
    const body = JSON.stringify({ workspace_path: '/workspaces/auth-refactor' });
    expect((await fetch(`${base}/sessions`)).status).toBe(401);
    expect((await fetch(`${base}/sessions`, { method: 'POST', headers, body })).status).toBe(201);

    const [, check] = /CMD (\[.*\])$/.exec(last('HEALTHCHECK'))!;
    const asked = JSON.parse(check!) as string[];
    expect(asked[0]).toBe('node');
    const healthWith = (ports: Record<string, string>) =>
      spawnSync(...inside(asked, { ...environment, ...ports })).status;
    const health = (at: string) => healthWith({ PORT: at });
    expect(health(port!)).toBe(0);
    // As the server itself: the product's own name says more than the general one.
    expect(healthWith({ PORT: '1', METIS_SERVER_PORT: port! })).toBe(0);

    process.kill((JSON.parse(told) as { 'child-pid': number })['child-pid'], 'SIGTERM');
    expect(await ended).toEqual([0, null]);
    expect(health(port!)).toBe(1);
  });

  it('can write to its data and to /tmp, and nowhere else', () => {
    const tries = ['/app/x', '/app/dist/x', '/usr/x', '/x', '/workspaces/x', '/data/x', '/tmp/x'];
    const script = `for (const f of ${JSON.stringify(tries)}) try { fs.writeFileSync(f, ''); console.log(f); } catch {}`;
    const written = execFileSync(...inside(['node', '-e', script], {}), { encoding: 'utf8' });
    expect(written.trim().split('\n')).toEqual(['/data/x', '/tmp/x']);
  });
});
