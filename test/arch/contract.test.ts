// The promise table is written from the comments above the tests, and each of those comments belongs to a test.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { ROOT } from './source.ts';

/** Runs the generator on the tests of a folder. */
function printTable(folder: string): {
  readonly rows: readonly string[];
  readonly text: string;
  readonly error: string;
} {
  const script = path.join(ROOT, 'scripts/gen-contract.mjs');
  const { stdout, stderr } = spawnSync(process.execPath, [script, '--print', folder], { encoding: 'utf8' });
  return { rows: stdout.split('\n').filter((line) => /^\| \d/.test(line)), text: stdout, error: stderr };
}

/** The table of one test file with these lines. */
function printTableOf(...lines: readonly string[]) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'metis-contract-'));
  onTestFinished(() => fs.rmSync(folder, { recursive: true }));
  fs.mkdirSync(path.join(folder, 'test'));
  fs.writeFileSync(path.join(folder, 'test/a.test.ts'), lines.join('\n'));
  return printTable(folder);
}

it('the promise table is current (else: npm run gen)', () => {
  const { text, error } = printTable(ROOT);
  expect(error).toBe('');
  expect(fs.readFileSync(path.join(ROOT, 'test/CONTRACT.md'), 'utf8') === text).toBe(true);
});

describe('a row of the promise table', () => {
  it('names promise, file and the longest fixed part of the title, by id and place', () => {
    const { rows } = printTableOf(
      '// Why this test is here.',
      '// Promise 10.2: it is second.',
      '// Promise 02.10 (npm test -- room): it is `first`.',
      "it.skipIf(process.env.X).each([1])('%s is a | title with \\'parts\\' of $name', () => {});",
      'for (const way of [])',
      '  // Promise 10.10: it is last.',
      `  describe(\`before \${way} it is described\`, () => {});`,
    );
    expect(rows).toEqual([
      '| 02.10 | it is `first` | test/a.test.ts | title with | `npm test -- room` |',
      '| 10.2 | it is second | test/a.test.ts | title with |',
      '| 10.10 | it is last | test/a.test.ts | it is described |',
    ]);
  });

  it.each([
    ['a function', ['function f() {}', 'f();']],
    ['a hook', ['beforeAll(() => {});']],
    ['a blank line', ['', "it('is', () => {});"]],
    ['a test without a title', ['it(title, () => {});']],
    ['the end of the file', []],
  ])('does not come from a promise above %s, which is an error', (_, below) => {
    const { rows, error } = printTableOf('// Promise 01.1: it is.', ...below);
    expect(rows).toEqual([]);
    expect(error).toContain('test/a.test.ts:1: the promise is above no test with a title');
  });

  it.each([
    '// Promise 1.1: it is.',
    '// Promise 01.1 it is.',
    '// Promise 01.1: it is',
    '// Promise 01.1: it | is.',
    '/* Promise 01.1: it is. */',
    '// promises 01.1, 01.2: they are.',
  ])('does not come from %j, which is an error', (comment) => {
    const { rows, error } = printTableOf(comment, "it('is', () => {});");
    expect(rows).toEqual([]);
    expect(error).toContain('test/a.test.ts:1: write "// Promise');
  });
});
