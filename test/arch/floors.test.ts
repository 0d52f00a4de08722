// Who may import whom (docs/architecture.md), and how a file of the house looks.
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { imports, ROOT, typescriptFiles, valueImports } from './source.ts';

const CORE = ['ports', 'policy', 'domain', 'kernel'];
/** Folder -> the other folders it may import. */
const ALLOWED: Readonly<Record<string, readonly string[]>> = {
  kernel: [],
  domain: ['kernel'],
  ports: ['domain', 'kernel'],
  policy: ['domain', 'kernel'],
  wire: ['policy', 'domain', 'kernel'],
  store: CORE,
  provider: ['wire', ...CORE],
  tool: CORE,
  workspace: CORE,
  bus: CORE,
  learning: CORE,
  engine: CORE,
  http: ['engine', ...CORE],
  client: ['domain'],
  cli: ['client', 'domain', 'kernel'],
  mcp: ['client', 'domain', 'kernel'],
  acp: ['client', 'domain', 'kernel'],
  dashboard: ['client', 'domain', 'kernel'],
  app: [
    'http',
    'engine',
    'store',
    'provider',
    'tool',
    'workspace',
    'bus',
    'learning',
    'cli',
    'mcp',
    'acp',
    'client',
    ...CORE,
  ],
  'main.ts': ['app', 'cli'],
  'server.ts': ['main.ts'],
};
const FORBIDDEN_FOLDERS = ['utils', 'util', 'helpers', 'services', 'common', 'shared', 'misc', 'lib'];
const MAX_LINES = 300;

const files = typescriptFiles('src');
const folderOf = (file: string) => file.split('/')[1]!;

it('the walk finds the source', () => {
  expect(files.length).toBeGreaterThan(100);
  expect(files.map((f) => f.path)).toContain('src/main.ts');
  expect(
    imports(
      "import type {\n  A,\n} from './a.ts';\nexport { b } from './b.ts';\nawait import('./c.ts');\nimport './d.ts';",
    ),
  ).toEqual(['./a.ts', './b.ts', './c.ts', './d.ts']);
});

it('every folder has its floor', () => {
  expect([...new Set(files.map((f) => folderOf(f.path)))].filter((folder) => !(folder in ALLOWED))).toEqual([]);
});

it('a file imports its own floor or one it may see', () => {
  const wrong = files.flatMap((file) => {
    const own = folderOf(file.path);
    const allowed = [own, ...(ALLOWED[own] ?? [])];
    return imports(file.text)
      .filter((name) => name.startsWith('.'))
      .map((name) => path.posix.join(path.posix.dirname(file.path), name))
      .filter((target) => !target.startsWith('src/') || !allowed.includes(folderOf(target)))
      .map((target) => `${file.path} imports ${target}`);
  });
  expect(wrong).toEqual([]);
});

it('people and programs get only types of the domain', () => {
  const wrong = files
    .filter((file) => ['client', 'cli', 'dashboard'].includes(folderOf(file.path)))
    .flatMap((file) =>
      valueImports(file.text)
        .filter((name) => name.includes('/domain/'))
        .map((name) => `${file.path} imports values of ${name}`),
    );
  expect(wrong).toEqual([]);
});

it('imports of our own files carry their ending and exist', () => {
  const wrong = files.flatMap((file) =>
    imports(file.text)
      .filter((name) => name.startsWith('.'))
      .filter((name) => !fs.existsSync(path.join(ROOT, path.dirname(file.path), name)) || !/\.(tsx?|json)$/.test(name))
      .map((name) => `${file.path}: ${name}`),
  );
  expect(wrong).toEqual([]);
});

it('policy and wire are pure: no files, no network, no waiting', () => {
  const wrong = files
    .filter((file) => ['policy', 'wire'].includes(folderOf(file.path)))
    .flatMap((file) => [
      ...imports(file.text)
        .filter((name) =>
          /^(node:(fs|net|http|https|child_process|timers|worker_threads|dns|os)|fastify|better-sqlite3)/.test(name),
        )
        .map((name) => `${file.path} imports ${name}`),
      ...(/\basync\s+(function|\()|\bawait\b|\bsetTimeout\b|\bfetch\(/.test(withoutComments(file.text))
        ? [`${file.path} waits`]
        : []),
    ]);
  expect(wrong).toEqual([]);
});

it('provider SDKs are types only', () => {
  const wrong = files.flatMap((file) =>
    valueImports(file.text)
      .filter((name) => /^(@anthropic-ai\/|openai$)/.test(name))
      .map((name) => `${file.path} imports ${name}`),
  );
  expect(wrong).toEqual([]);
});

describe('clock, chance and environment', () => {
  const users = (pattern: RegExp, allowed: readonly string[]) =>
    files
      .filter((file) => !allowed.some((place) => file.path.startsWith(place)))
      .filter((file) => pattern.test(withoutComments(file.text)))
      .map((file) => file.path);

  it('the time comes from the injected clock', () => {
    expect(users(/\bDate\.now\(|\bnew Date\(\)|\bperformance\.now\(/, ['src/kernel/clock.ts'])).toEqual([]);
  });
  it('chance is injected', () => {
    expect(users(/\bMath\.random\b|\brandomUUID\b|\brandomBytes\b|\bgetRandomValues\b/, ['src/app/'])).toEqual([]);
  });
  it('the environment is read where the process starts', () => {
    expect(users(/\bprocess\.env\b/, ['src/app/command-line.ts'])).toEqual([]);
  });
});

describe('how a file looks', () => {
  it('its first line says its purpose', () => {
    const wrong = files.filter((file) => !/^(#!.*\n)?\/\/ \S.{10,}/.test(file.text)).map((file) => file.path);
    expect(wrong).toEqual([]);
  });
  it(`it has at most ${MAX_LINES} lines`, () => {
    const long = files.filter((file) => file.text.split('\n').length - 1 > MAX_LINES).map((file) => file.path);
    expect(long).toEqual([]);
  });
  it('it is no barrel', () => {
    const wrong = files.filter((file) => /(?:^|\/)index\.tsx?$/.test(file.path) || /^export \* from/m.test(file.text));
    expect(wrong.map((file) => file.path)).toEqual([]);
  });
  it('it stands in no drawer for everything', () => {
    const wrong = files.filter((file) => file.path.split('/').some((part) => FORBIDDEN_FOLDERS.includes(part)));
    expect(wrong.map((file) => file.path)).toEqual([]);
  });
  it('no rule is switched off in source or tests', () => {
    const switches = new RegExp(
      `biome${'-'}ignore|@ts${'-'}(ignore|expect-error|nocheck)|eslint${'-'}disable|\\bas ${'any'}\\b`,
    );
    const wrong = [...files, ...typescriptFiles('test')].filter((file) => switches.test(file.text));
    expect(wrong.map((file) => file.path)).toEqual([]);
  });
  it('nothing is left for later', () => {
    const marks = new RegExp(`\\b(TO${'DO'}|FIX${'ME'}|XX${'X'})\\b`);
    expect(files.filter((file) => marks.test(file.text)).map((file) => file.path)).toEqual([]);
  });
});

function withoutComments(text: string): string {
  return text.replace(/\/\*[\s\S]*?\*\//g, '').replace(/(^|\s)\/\/.*$/gm, '');
}

it('what only a cluster needs is loaded by import() alone', () => {
  const OF_A_CLUSTER = /^src\/(store\/postgres\/|bus\/nats\/|app\/storage\/cluster)/;
  const wrong = files
    .filter((file) => !OF_A_CLUSTER.test(file.path))
    .flatMap((file) =>
      valueImports(file.text)
        .filter((name) => /^pg$|^@nats-io\/|\/postgres\/|\/nats\/|\/storage\/cluster/.test(name))
        .filter((name) => !file.text.includes(`import('${name}')`))
        .map((name) => `${file.path} imports ${name}`),
    );
  expect(wrong).toEqual([]);
});
