// The rooms: no circles, folders one can survey, the order of the engine's rooms, and its door (docs/architecture.md).
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
/** The lowest first: a room imports those before it. */
import ENGINE_ROOMS from '../../scripts/engine-rooms.json' with { type: 'json' };
import { imports, ROOT, resolveImport, type SourceFile, typescriptFiles } from './source.ts';

const MAX_FILES = 30;
const files = typescriptFiles('src');

/** file -> files of `src` that it imports */
function graphOf(sources: readonly SourceFile[]): Map<string, string[]> {
  return new Map(
    sources.map((file) => [file.path, imports(file.text).flatMap((name) => resolveImport(file.path, name) ?? [])]),
  );
}

/** Groups of files of which each imports every other one, directly or not. */
function circles(graph: ReadonlyMap<string, readonly string[]>): string[][] {
  const index = new Map<string, number>();
  const low = new Map<string, number>();
  const stack: string[] = [];
  const found: string[][] = [];
  const visit = (file: string) => {
    index.set(file, index.size);
    low.set(file, index.get(file)!);
    stack.push(file);
    for (const target of graph.get(file) ?? []) {
      if (!graph.has(target)) continue;
      if (!index.has(target)) {
        visit(target);
        low.set(file, Math.min(low.get(file)!, low.get(target)!));
      } else if (stack.includes(target)) low.set(file, Math.min(low.get(file)!, index.get(target)!));
    }
    if (low.get(file) !== index.get(file)) return;
    const circle = stack.splice(stack.indexOf(file));
    if (circle.length > 1 || graph.get(file)?.includes(file)) found.push(circle.sort());
  };
  for (const file of graph.keys()) if (!index.has(file)) visit(file);
  return found;
}

/** Imports of an engine's file that run up to a higher room, or out of a room to the door. */
function arrowsUp(graph: ReadonlyMap<string, readonly string[]>): string[] {
  const roomOf = (file: string) => /^src\/core\/engine\/([^/]+)\/[^/]+$/.exec(file)?.[1] ?? null;
  return [...graph].flatMap(([file, targets]) => {
    const own = roomOf(file);
    if (own === null) return [];
    return targets
      .filter((target) => target.startsWith('src/core/engine/'))
      .filter((target) => {
        const room = roomOf(target);
        return room === null || ENGINE_ROOMS.indexOf(room) > ENGINE_ROOMS.indexOf(own);
      })
      .map((target) => `${file} imports ${target}`);
  });
}

/** Imports past the engine's door, from above it. */
function pastTheDoor(graph: ReadonlyMap<string, readonly string[]>): string[] {
  return [...graph].flatMap(([file, targets]) =>
    file.startsWith('src/core/engine/')
      ? []
      : targets
          .filter((target) => /^src\/core\/engine\/[^/]+\//.test(target))
          .map((target) => `${file} imports ${target}, which is behind the door`),
  );
}

function crowded(paths: readonly string[]): string[] {
  const count = new Map<string, number>();
  for (const file of paths) {
    const folder = path.posix.dirname(file);
    count.set(folder, (count.get(folder) ?? 0) + 1);
  }
  return [...count].filter(([, n]) => n > MAX_FILES).map(([folder, n]) => `${folder} holds ${n} files`);
}

const graph = graphOf(files);

it('no file imports itself by a detour', () => {
  expect(circles(graph)).toEqual([]);
});

it(`no folder holds more than ${MAX_FILES} files`, () => {
  expect(crowded(files.map((file) => file.path))).toEqual([]);
});

describe('the engine', () => {
  it('every room has its place in the order', () => {
    const rooms = files.flatMap((file) => /^src\/core\/engine\/([^/]+)\//.exec(file.path)?.[1] ?? []);
    expect([...new Set(rooms)].filter((room) => !ENGINE_ROOMS.includes(room))).toEqual([]);
  });
  it('imports run from higher rooms to lower ones only', () => {
    expect(arrowsUp(graph)).toEqual([]);
  });
  it('http and server come in by the door', () => {
    expect(pastTheDoor(graph)).toEqual([]);
  });
});

it('the picture of rooms and floors is current (else: npm run gen)', () => {
  const drawn = execFileSync(process.execPath, [path.join(ROOT, 'scripts/gen-architecture.mjs'), '--print'], {
    encoding: 'utf8',
  });
  expect(fs.readFileSync(path.join(ROOT, 'docs/architecture.svg'), 'utf8') === drawn).toBe(true);
});

describe('a violation is seen', () => {
  const planted = (...sources: [path: string, imports: string][]) =>
    graphOf(sources.map(([file, target]) => ({ path: file, text: `import { x } from '${target}';\n` })));

  it('a circle of three files', () => {
    const graph = planted(['src/a.ts', './b.ts'], ['src/b.ts', './c/c.ts'], ['src/c/c.ts', '../a.ts']);
    expect(circles(graph)).toEqual([['src/a.ts', 'src/b.ts', 'src/c/c.ts']]);
  });
  it('a room that imports a higher one, or the door', () => {
    expect(arrowsUp(planted(['src/core/engine/state/a.ts', '../money/b.ts']))).toHaveLength(1);
    expect(arrowsUp(planted(['src/core/engine/turn/a.ts', '../submit-turn.ts']))).toHaveLength(1);
    expect(arrowsUp(planted(['src/core/engine/turn/a.ts', '../state/b.ts']))).toEqual([]);
  });
  it('a route that goes past the door', () => {
    expect(pastTheDoor(planted(['src/http/routes/a.ts', '#core/engine/turn/run.ts']))).toHaveLength(1);
    expect(pastTheDoor(planted(['src/http/routes/a.ts', '#core/engine/submit-turn.ts']))).toEqual([]);
  });
  it('a crowded folder', () => {
    expect(crowded(Array.from({ length: 31 }, (_, i) => `src/x/${i}.ts`))).toEqual(['src/x holds 31 files']);
  });
});
