// Who may import whom (docs/architecture.md), and how a file of the house looks.
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { imports, ROOT, resolveImport, typescriptFiles, valueImports } from './source.ts';

const CORE = ['core/ports', 'core/policy', 'protocol'];
/** Room, or floor of a room that has several -> the others that it may import. */
const ALLOWED: Readonly<Record<string, readonly string[]>> = {
  protocol: [],
  'core/ports': ['protocol'],
  'core/policy': ['protocol'],
  'core/engine': CORE,
  'core/learning': CORE,
  'models/wire': ['core/policy', 'protocol'],
  models: ['models/wire', ...CORE],
  store: CORE,
  tools: CORE,
  http: ['core/engine', ...CORE],
  client: ['protocol'],
  cli: ['client', 'protocol'],
  mcp: ['client', 'protocol'],
  acp: ['client', 'protocol'],
  dashboard: ['client', 'protocol'],
  server: ['http', 'core/engine', 'core/learning', 'store', 'models', 'tools', 'cli', 'mcp', 'acp', 'client', ...CORE],
  'main.ts': ['server', 'cli'],
  'server.ts': ['main.ts'],
};
/** Values of the protocol that programs outside the server may import: no zod schema among them, which would weigh on them. */
const LIGHT = /^src\/protocol\/(abort|clock|errors|folder|ids|money|people\/rights|result|text\/[a-z-]+)\.ts$/;
const FORBIDDEN_FOLDERS = ['utils', 'util', 'helpers', 'services', 'common', 'shared', 'misc', 'lib'];
const MAX_LINES = 400;

const files = typescriptFiles('src');
/** `src/core/policy/cut.ts` -> `core/policy`, `src/store/bus/nats/link.ts` -> `store`. */
function findRoom(file: string): string {
  const [, room = '', floor = ''] = file.split('/');
  return `${room}/${floor}` in ALLOWED ? `${room}/${floor}` : room;
}

it('the walk finds the source', () => {
  expect(files.length).toBeGreaterThan(100);
  expect(files.map((f) => f.path)).toContain('src/main.ts');
  expect(
    imports(
      "import type {\n  A,\n} from './a.ts';\nexport { b } from './b.ts';\nawait import('./c.ts');\nimport './d.ts';",
    ),
  ).toEqual(['./a.ts', './b.ts', './c.ts', './d.ts']);
});

it('every folder has its room', () => {
  expect([...new Set(files.map((f) => findRoom(f.path)))].filter((room) => !(room in ALLOWED))).toEqual([]);
});

it('a file imports its own room or one that it may see', () => {
  const wrong = files.flatMap((file) => {
    const own = findRoom(file.path);
    const allowed = [own, ...(ALLOWED[own] ?? [])];
    return imports(file.text)
      .flatMap((name) => resolveImport(file.path, name) ?? [])
      .filter((target) => !target.startsWith('src/') || !allowed.includes(findRoom(target)))
      .map((target) => `${file.path} imports ${target}`);
  });
  expect(wrong).toEqual([]);
});

it('client, cli and dashboard import no schemas of the protocol', () => {
  const wrong = files
    .filter((file) => ['client', 'cli', 'dashboard'].includes(findRoom(file.path)))
    .flatMap((file) =>
      valueImports(file.text)
        .filter((name) => name.startsWith('#protocol/') && !LIGHT.test(resolveImport(file.path, name) ?? ''))
        .map((name) => `${file.path} imports values of ${name}`),
    );
  expect(wrong).toEqual([]);
});

it('imports of our own files carry their ending, exist, and name another room by its subpath', () => {
  const wrong = files.flatMap((file) =>
    imports(file.text).flatMap((name) => {
      const target = resolveImport(file.path, name);
      if (target === null) return [];
      const isFound = fs.existsSync(path.join(ROOT, target)) && /\.(tsx?|json)$/.test(name);
      const isFar = name.startsWith('../..');
      return isFound && !isFar ? [] : [`${file.path}: ${name}`];
    }),
  );
  expect(wrong).toEqual([]);
});

it('policy and wire are pure: no files, no network, no waiting', () => {
  const wrong = files
    .filter((file) => ['core/policy', 'models/wire'].includes(findRoom(file.path)))
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
    expect(users(/\bDate\.now\(|\bnew Date\(\)|\bperformance\.now\(/, ['src/protocol/clock.ts'])).toEqual([]);
  });
  it('chance is injected', () => {
    expect(users(/\bMath\.random\b|\brandomUUID\b|\brandomBytes\b|\bgetRandomValues\b/, ['src/server/'])).toEqual([]);
  });
  it('the environment is read where the process starts', () => {
    expect(users(/\bprocess\.env\b/, ['src/main.ts', 'src/server/command-line.ts'])).toEqual([]);
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
  const OF_A_CLUSTER = /^src\/(store\/(postgres|cluster|bus\/nats)\/|server\/storage\/cluster)/;
  const wrong = files
    .filter((file) => !OF_A_CLUSTER.test(file.path))
    .flatMap((file) =>
      valueImports(file.text)
        .filter((name) => /^pg$|^@nats-io\/|\/(postgres|nats)\/|#store\/cluster\/|\/storage\/cluster/.test(name))
        .filter((name) => !file.text.includes(`import('${name}')`))
        .map((name) => `${file.path} imports ${name}`),
    );
  expect(wrong).toEqual([]);
});
