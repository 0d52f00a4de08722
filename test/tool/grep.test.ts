// grep: the real program on real files (09 §13).
import fs from 'node:fs';
import path from 'node:path';
import { rgPath } from '@vscode/ripgrep';
import { describe, expect, it } from 'vitest';
import { createHitList, grep } from '#tools/builtin/grep.ts';
import { createWorkspaceFiles } from '#tools/workspace/confined-files.ts';
import { call, failure, run, workspace } from './call.ts';

const tool = grep({ ripgrep: rgPath });

describe('grep', () => {
  it('shows path, line and text, sorted by path in byte order', async () => {
    const root = workspace({ 'a/x': 'no\nfoo one\n', 'a-b': 'Foo two\r\n', Z: 'FOO', '.hidden': 'foo' });
    expect(await run(tool, root, { pattern: 'foo' })).toBe(
      '4 match(es)\n.hidden:1: foo\nZ:1: FOO\na-b:1: Foo two\na/x:2: foo one',
    );
    expect(await run(tool, root, { pattern: 'foo', case_sensitive: true })).toBe(
      '2 match(es)\n.hidden:1: foo\na/x:2: foo one',
    );
  });

  it('says how many files it searched in vain', async () => {
    expect(await run(tool, workspace({ a: 'x', 'b/c': 'y' }), { pattern: '^z$' })).toBe(
      "(no matches for '^z$'; scanned 2 files)",
    );
    expect(await run(tool, workspace(), { pattern: 'z' })).toBe("(no matches for 'z'; scanned 0 files)");
  });

  it('stops at max_results and says so, with the first hits in order', async () => {
    const root = workspace({ b: 'm\n'.repeat(5), a: 'm\n'.repeat(2), c: 'm\n' });
    expect(await run(tool, root, { pattern: 'm', max_results: 3 })).toBe(
      '3 match(es) (truncated at max_results=3; refine pattern or path_glob for more)\na:1: m\na:2: m\nb:1: m',
    );
    expect(await run(tool, root, { pattern: 'm', max_results: 8 })).toMatch(/^8 match\(es\)\n/);
  });

  it('matches path_glob by file name without a slash, by path with one', async () => {
    const root = workspace({ 'x.ts': 'm', 'src/x.ts': 'm', 'src/a/x.ts': 'm', 'src/x.js': 'm', '!odd': 'm' });
    const found = async (path_glob: string) =>
      (await run(tool, root, { pattern: 'm', path_glob }))
        .split('\n')
        .slice(1)
        .map((line) => line.split(':')[0]);
    expect(await found('*.ts')).toEqual(['src/a/x.ts', 'src/x.ts', 'x.ts']);
    expect(await found('src/*.ts')).toEqual(['src/x.ts']);
    expect(await found('src/**/*.ts')).toEqual(['src/a/x.ts', 'src/x.ts']);
    expect(await found('!odd')).toEqual(['!odd']);
  });

  it('leaves out caches, links, protected files, what is too large and what is no text', async () => {
    const root = workspace({
      'node_modules/a': 'm',
      'src/dist/a': 'm',
      '.git/a': 'm',
      '.metis/trust.yaml': 'm',
      '.metis/MEMORY.md': 'm',
      '.gitignore': 'ignored\n',
      ignored: 'm',
      latin1: new Uint8Array([0x6d, 0x0a, 0xe9]),
      large: `m${'x'.repeat(5 * 1024 * 1024)}`,
    });
    fs.writeFileSync(path.join(root, '../outside'), 'm');
    fs.symlinkSync('../outside', path.join(root, 'link'));
    expect(await run(tool, root, { pattern: '^m' })).toBe('2 match(es)\n.metis/MEMORY.md:1: m\nignored:1: m');
  });

  it('cuts a long line at 300 characters, never through one', async () => {
    const root = workspace({ a: `m${'x'.repeat(299)}`, b: `m${'x'.repeat(300)}`, c: `mxx${'😀'.repeat(200)}` });
    const [, a, b, c] = (await run(tool, root, { pattern: '^m' })).split('\n');
    expect(a).toBe(`a:1: m${'x'.repeat(299)}`);
    expect(b).toBe(`b:1: m${'x'.repeat(299)}...`);
    expect(c).toBe(`c:1: mxx${'😀'.repeat(148)}...`);
  });

  // Promise 09.17: A pattern that backtracks elsewhere is answered at once.
  it('answers a pattern that would be exponential elsewhere at once', async () => {
    const root = workspace({ a: `${'a'.repeat(100_000)}b` });
    const began = performance.now();
    expect(await run(tool, root, { pattern: '(a+)+$' })).toBe("(no matches for '(a+)+$'; scanned 1 files)");
    expect(performance.now() - began).toBeLessThan(5000);
  });

  it.each([
    [{ pattern: '(' }, /^invalid regex: regex parse error/],
    [{ pattern: '(?=x)' }, /^invalid regex: /],
    [{ pattern: 'a\0b' }, /^invalid regex: /],
    [{ pattern: 'a', path_glob: '[' }, /^invalid path_glob: /],
  ])('explains what is wrong with %j', async (input, message) => {
    const error = await failure(call(tool, workspace({ a: 'x' }), input).output);
    expect(error.error_class).toBe('execution_error');
    expect(error.message).toMatch(message);
  });

  it('takes a pattern that looks like an option for a pattern', async () => {
    expect(await run(tool, workspace({ a: '--files x' }), { pattern: '--files' })).toBe('1 match(es)\na:1: --files x');
  });

  // Promise 09.17: A search that is aborted is killed, and others were served meanwhile.
  it('is killed on abort while it searches, and others were served meanwhile', async () => {
    const root = workspace();
    // A program that never comes to an end, in the place of the search.
    const endless = path.join(root, 'endless');
    fs.writeFileSync(endless, '#!/bin/sh\nexec sleep 300\n', { mode: 0o755 });
    const stop = new AbortController();
    const { tool: started, output } = call(grep({ ripgrep: endless }), root, { pattern: 'x' }, { signal: stop.signal });
    let served = 0;
    const others = Array.from({ length: 3 }, () => run(tool, root, { pattern: 'sleep' }).then(() => (served += 1)));
    await Promise.all(others);
    expect(served).toBe(3);
    stop.abort(new Error('too slow'));
    await expect(output).rejects.toThrow('too slow');
    expect(await started.cancel()).toBe(false);
  });

  it('cancel ends a search and says whether there was one', async () => {
    const root = workspace();
    const endless = path.join(root, 'endless');
    fs.writeFileSync(endless, '#!/bin/sh\nexec sleep 300\n', { mode: 0o755 });
    const { tool: started, output } = call(grep({ ripgrep: endless }), root, { pattern: 'x' });
    const ended = failure(output);
    expect(await started.cancel()).toBe(true);
    await ended;
    expect(await tool().cancel()).toBe(false);
  });
});

describe('the list of hits', () => {
  it('keeps the first in order, however many arrive and in whatever order', async () => {
    const names = Array.from({ length: 300 }, (_, i) => `f${String(i).padStart(3, '0')}`);
    const root = workspace(Object.fromEntries(names.map((name) => [name, 'm\n'.repeat(100)])));
    const list = createHitList(createWorkspaceFiles(root), 150);
    // 30 000 hits: more than are kept waiting.
    for (const name of [...names].reverse()) for (let line = 1; line <= 100; line++) await list.add(name, line);
    const expected = [...Array(150).keys()].map((i) => `${names[Math.floor(i / 100)]}:${(i % 100) + 1}: m`);
    expect(await list.hits()).toEqual(expected);
  });
});
