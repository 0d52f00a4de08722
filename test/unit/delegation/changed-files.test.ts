// What a delegation reports of the files it changed (20 §1).
import { describe, expect, it } from 'vitest';
import { formatChanges, summariseChanges } from '#core/policy/delegation/worker-changes.ts';
import { type CallChanges, type FileChange, NO_CHANGES } from '#protocol/file-change.ts';

const call = (path: string, change: FileChange['change'], shell = false): CallChanges => ({
  files: [{ path, change }],
  shell,
});

describe('the changes of a worker', () => {
  it('come to one entry a path, sorted, whatever happened to it in between', () => {
    const calls = [
      call('z', 'edited'),
      call('new', 'created'),
      call('new', 'edited'),
      call('gone', 'created'),
      call('gone', 'deleted'),
      call('back', 'deleted'),
      call('back', 'created'),
      call('a', 'deleted', true),
    ];
    expect(summariseChanges(calls, (paths) => paths.filter((path) => path > 'm').reverse())).toEqual({
      changed_files: [
        { path: 'a', change: 'deleted' },
        { path: 'back', change: 'edited' },
        { path: 'new', change: 'created' },
        { path: 'z', change: 'edited' },
      ],
      changed_files_truncated: false,
      shell_used: true,
      isolation: 'shared',
      applied: null,
      conflicts: [],
      apply_error: null,
      check: null,
      attempts: 0,
      verified: null,
      protected_changes: [],
      overlaps: ['new', 'z'],
    });
    expect(summariseChanges([], () => [])).toEqual(NO_CHANGES);
  });

  it('are cut at 200 files, and say so', () => {
    const many = (n: number) => Array.from({ length: n }, (_, i) => call(`f${1000 + i}`, 'created'));
    expect(summariseChanges(many(200), () => []).changed_files_truncated).toBe(false);
    const cut = summariseChanges(many(201), () => []);
    expect([cut.changed_files.length, cut.changed_files_truncated]).toEqual([200, true]);
    expect(formatChanges(cut)).toMatch(/^\[changed more than 200 files: f1000, .* and 180 more\]$/);
  });

  it('are one line for the planner, whatever a file is called, and none when there are none', () => {
    expect(formatChanges(NO_CHANGES)).toBeNull();
    const odd = summariseChanges([call('a\n]b', 'created'), call(`${'x'.repeat(300)}`, 'edited')], () => ['a\n]b']);
    expect(formatChanges(odd)).toBe(
      `[changed 2 files: a?]b, ${'x'.repeat(200)}; also changed by another worker: a?]b]`,
    );
  });
});
