// The shape of a turn and how alike two shapes are (12 §12.2).
import { describe, expect, it } from 'vitest';
import {
  addPaths,
  buildFingerprint,
  detectIntents,
  MAX_NAMES,
  readTraces,
  restoreFingerprint,
  signFingerprint,
  toStoredFingerprint,
} from '#core/policy/learning/fingerprint.ts';
import { computeSimilarity, toShape } from '#core/policy/learning/recommend-model.ts';
import type { Fingerprint } from '#protocol/learned-pattern.ts';
import type { StoredMessage } from '#protocol/message.ts';
import type { ToolDefinition } from '#protocol/tool.ts';
import { editFile } from '#tools/builtin/edit-files.ts';
import { readFile } from '#tools/builtin/read-file.ts';
import { message, toolUse } from '../../support/messages.ts';

const TOOLS = new Map<string, ToolDefinition>(
  [readFile, editFile].map((tool) => [tool().definition.name, tool().definition]),
);
const definition = (name: string) => TOOLS.get(name) ?? null;
const ROOT = '/work/project';

const called = (n: number, name: string, path: unknown, status: 'complete' | 'cancelled' = 'complete') =>
  message(n, 'assistant', [toolUse(n, name, { path })], { status });
const traces = (...history: StoredMessage[]) => readTraces(history, ROOT, definition);
const shape = (words: string, history: readonly StoredMessage[] = [], workspace_hash = 'a') =>
  buildFingerprint(
    {
      text: words,
      has_images: false,
      estimated_input_tokens: 500,
      workspace_hash,
      traces: readTraces(history, ROOT, definition),
    },
    definition,
  );
function alike(a: Fingerprint, b: Fingerprint): number {
  const names = new Map();
  return computeSimilarity(toShape(a, names, true), toShape(b, names, true));
}

describe('a stored shape', () => {
  it('is without what says nothing, and comes back whole with the hash of its session', () => {
    const plain = shape('fix the bug');
    expect(toStoredFingerprint(plain)).toEqual({ intent_tags: ['debug'] });
    const full = shape('fix the bug', [called(1, 'edit_file', 'src/a.ts')]);
    for (const one of [plain, { ...full, has_images: true, estimated_input_tokens_bucket: 3 }]) {
      expect(restoreFingerprint(toStoredFingerprint(one), 'a')).toEqual(one);
      expect(signFingerprint(restoreFingerprint(toStoredFingerprint(one), 'a'))).toEqual(signFingerprint(one));
      // As earlier versions stored it.
      expect(restoreFingerprint(one, 'b')).toEqual(one);
    }
  });
});

describe('intents', () => {
  it.each([
    ['Git add it and COMMIT', ['commit']],
    ['refactoring, then simplify', ['refactor']],
    ['the interface of this module', ['architecture']],
    ['architectural', ['architecture']],
    ['it fails: stacktrace below', ['debug']],
    ['the failure', []],
    ['write docs and a unit test', ['doc', 'test']],
    ['documentation', []],
    ['inline the helper, fix the bug', ['refactor', 'debug']],
    ['', []],
  ])('of %j are %j', (words, tags) => {
    expect(detectIntents(words)).toEqual(tags);
  });

  it('stop after the part of a message that is looked at', () => {
    expect(detectIntents(`${'x '.repeat(10_000)} commit`)).toEqual([]);
  });
});

describe('a fingerprint', () => {
  it('holds tools, effects, extensions and folders of the turns before, sorted and once', () => {
    const history = [
      called(1, 'read_file', './src/b.TS'),
      called(2, 'edit_file', 'src/a.ts'),
      called(3, 'read_file', 'README.md'),
    ];
    expect(shape('rename it', history)).toEqual({
      file_extensions: ['.md', '.ts'],
      file_path_buckets: ['.', 'src'],
      tool_names: ['edit_file', 'read_file'],
      side_effect_classes: ['read', 'write'],
      has_images: false,
      has_tool_calls_in_history: true,
      estimated_input_tokens_bucket: 0,
      intent_tags: ['refactor'],
      workspace_hash: 'a',
    });
  });

  it.each([
    [999, 0],
    [1_000, 1],
    [9_999, 1],
    [10_000, 2],
    [99_999, 2],
    [100_000, 3],
  ])('puts %i tokens into bucket %i', (estimated_input_tokens, bucket) => {
    const facts = { text: '', has_images: false, estimated_input_tokens, workspace_hash: '', traces: traces() };
    expect(buildFingerprint(facts, definition).estimated_input_tokens_bucket).toBe(bucket);
  });

  it('keeps the dot of a hidden folder and passes over paths outside the workspace', () => {
    const found = traces(
      called(1, 'read_file', '.github/x.yml'),
      called(2, 'read_file', '../other/secret.env'),
      called(3, 'read_file', '/etc/passwd.conf'),
      called(4, 'read_file', `${ROOT}/lib\\deep/c.go`),
      called(5, 'read_file', 'a/../../b.py'),
      called(6, 'read_file', { not: 'a path' }),
    );
    expect([...found.buckets]).toEqual(['.github', 'lib']);
    expect([...found.extensions]).toEqual(['.yml', '.go']);
  });

  it('counts only complete answers, and no class for a tool that is gone', () => {
    const history = [called(1, 'removed_tool', 'x.ts'), called(2, 'edit_file', 'a.ts', 'cancelled')];
    expect(shape('', history)).toMatchObject({
      tool_names: ['removed_tool'],
      side_effect_classes: [],
      file_extensions: [],
    });
  });

  it('sums a growing history up once, to what it would be from the start', () => {
    const history = [called(1, 'read_file', 'a/x.ts')];
    shape('', history);
    history.push(called(2, 'edit_file', 'b/y.md'));
    expect(shape('', history)).toEqual(shape('', [...history]));
    expect(shape('', history).file_path_buckets).toEqual(['a', 'b']);
  });

  it('takes the files that a worker is referred to, without touching what its session did', () => {
    const own = traces(called(1, 'read_file', 'a/x.ts'));
    expect([...addPaths(own, ['docs/y.md'], ROOT).buckets]).toEqual(['a', 'docs']);
    expect([...own.buckets]).toEqual(['a']);
  });

  it('is bounded, whatever a model calls', () => {
    const many = Array.from({ length: 500 }, (_, n) => called(n + 1, `tool_${n}`, 'x'));
    const deep = Array.from({ length: 500 }, (_, n) => called(n + 501, 'read_file', `d${n}/x.e${n}`));
    const long = called(1001, 'read_file', `${'d'.repeat(5000)}/x.${'e'.repeat(5000)}`);
    const found = shape('', [long, ...many, ...deep]);
    expect(found.tool_names).toHaveLength(MAX_NAMES);
    expect(found.file_path_buckets).toHaveLength(MAX_NAMES);
    expect(signFingerprint(found).structural_json.length).toBeLessThan(25_000);
  });

  // Promise 12.1: one signature for one shape in one workspace.
  it('has one signature for the same message, history and workspace, another for another workspace', () => {
    const history = [called(1, 'read_file', 'a.ts')];
    const sig = (workspace: string) => signFingerprint(shape('fix the bug', history, workspace)).structural_sig;
    expect(sig('a')).toBe(sig('a'));
    expect(sig('a')).not.toBe(sig('b'));
  });
});

describe('two shapes', () => {
  // Promise 12.2: other intents: 0.70, no neighbours.
  it('of first turns with other intents are 0.70 alike', () => {
    expect(alike(shape('refactor'), shape('debug'))).toBe(0.7);
  });

  // Promise 12.2: disjoint extensions: 0.80.
  it('of the same intents with disjoint extensions are 0.80 alike', () => {
    const [ts, md] = [called(1, 'read_file', 'x.ts'), called(1, 'read_file', 'x.md')];
    expect(alike(shape('debug', [ts]), shape('debug', [md]))).toBe(0.8);
  });

  it('at exactly the limit are neighbours: fractions add up without noise', () => {
    const ts = shape('debug', [called(1, 'read_file', 'x.ts')]);
    const md = { ...shape('debug', [called(1, 'read_file', 'x.md')]), has_images: true };
    expect(alike(ts, md)).toBe(0.75);
  });

  it('are compared by shared names over all names', () => {
    const base = shape('debug');
    const [a, b] = [
      { ...base, tool_names: ['grep', 'read_file', 'shell'] },
      { ...base, tool_names: ['read_file'] },
    ];
    expect(alike(a, b)).toBeCloseTo(0.85 + 0.15 / 3, 9);
    expect(alike(a, b)).toBe(alike(b, a));
  });

  it('do not agree on names that nobody had before', () => {
    const names = new Map();
    const base = { ...shape('debug'), tool_names: ['old'] };
    const stored = toShape(base, names, true);
    const asked = toShape({ ...base, tool_names: ['new'], file_extensions: ['.zig'] }, names, false);
    expect(computeSimilarity(stored, asked)).toBe(0.65);
    expect(names.size).toBe(1);
  });

  it('that reach the limit are never given up early', () => {
    const names = new Map();
    const lists = [[], ['a'], ['a', 'b'], ['c']];
    const tags = [[], ['debug'], ['debug', 'test']] as const;
    const shapes = lists.flatMap((list) =>
      tags.flatMap((intent_tags) =>
        [true, false].map((has_images) =>
          toShape(
            { ...shape(''), tool_names: list, file_extensions: list, intent_tags: [...intent_tags], has_images },
            names,
            true,
          ),
        ),
      ),
    );
    const pairs = shapes.flatMap((a) =>
      shapes.map((b) => [computeSimilarity(a, b), computeSimilarity(a, b, 0.75)] as const),
    );
    expect(pairs.filter(([full, early]) => early !== full && full >= 0.75)).toEqual([]);
    expect(pairs.filter(([full, early]) => early === 0 && full > 0).length).toBeGreaterThan(0);
  });
});
