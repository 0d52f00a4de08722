// The language of the house (docs/architecture.md, One term per concept): verbs for functions, the field's words, few ternaries.
// `LANGUAGE_ROOM=src/store npx vitest run test/arch/language.test.ts` lists what a room has.
import { expect, it } from 'vitest';
import { DIALECT, PARTICIPLE, readGrammar, readWords } from './language.ts';
import { projectTexts, typescriptFiles } from './source.ts';

/** At most this share of functions may end in `Of`, or be a bare participle. */
const MAX_SHARE = 0.01;
const MAX_REPEATED_NAMES = 30;
const MAX_TERNARIES_PER_1000_LINES = 15;
const MAX_SHARED_FILE_NAMES = 0.2;
const MAX_IMPORTS_PER_100_LINES = 4.5;

/** Names that mean one thing wherever they stand: the methods of a port, a component's props, a route's registration. */
const SAME_EVERYWHERE: ReadonlySet<string> = new Set([
  // The listener of an AbortSignal.
  'onAbort',
]);

const room = process.env.LANGUAGE_ROOM ?? '';
const sources = typescriptFiles('src').filter(({ path }) => path.startsWith(room));
const lines = sources.reduce((sum, { text }) => sum + text.split('\n').length - 1, 0);
const grammars = sources.map((file) => ({ ...file, ...readGrammar(file.text, file.path.endsWith('x')) }));
const functions = grammars.flatMap((file) => file.functions.map((named) => ({ ...named, path: file.path })));

/** Fails with the list of what was found. */
function expectFew(found: readonly string[], limit: number): void {
  expect(
    found.length <= limit,
    `${found.length} found, at most ${Math.floor(limit)} allowed:\n${found.join('\n')}`,
  ).toBe(true);
}
const list = (some: readonly { path: string; line: number; name: string }[]) =>
  some.map(({ path, line, name }) => `${path}:${line}: ${name}`);

it('functions are named by a verb, not by …Of', () => {
  expectFew(list(functions.filter(({ name }) => /[a-z]Of$/.test(name))), functions.length * MAX_SHARE);
});

it('functions are not named by a bare participle', () => {
  expectFew(list(functions.filter(({ name }) => PARTICIPLE.test(name))), functions.length * MAX_SHARE);
});

it('one name means one function', () => {
  const places = new Map<string, Set<string>>();
  for (const { name, path, isMember } of functions) {
    if (isMember || SAME_EVERYWHERE.has(name)) continue;
    places.set(name, (places.get(name) ?? new Set()).add(path));
  }
  const repeated = [...places].filter(([, files]) => files.size > 2);
  expectFew(
    repeated.map(([name, files]) => `${name}: ${[...files].join(', ')}`),
    MAX_REPEATED_NAMES,
  );
});

it('choices are statements more often than ternaries', () => {
  const found = grammars
    .filter(({ ternaries }) => ternaries > 0)
    .sort((a, b) => b.ternaries - a.ternaries)
    .flatMap(({ path, ternaries }) => Array.from({ length: ternaries }, () => path));
  const perFile = new Map<string, number>();
  for (const path of found) perFile.set(path, (perFile.get(path) ?? 0) + 1);
  const limit = (lines / 1000) * MAX_TERNARIES_PER_1000_LINES;
  const shown = [...perFile].map(([path, count]) => `${path}: ${count}`).join('\n');
  expect(found.length <= limit, `${found.length} ternaries, at most ${Math.floor(limit)} allowed:\n${shown}`).toBe(
    true,
  );
});

it('few files share a name', () => {
  const places = new Map<string, string[]>();
  for (const { path } of sources) {
    const name = path.split('/').at(-1)!;
    places.set(name, [...(places.get(name) ?? []), path]);
  }
  const shared = [...places.values()].filter((paths) => paths.length > 1);
  expectFew(shared.flat().sort(), sources.length * MAX_SHARED_FILE_NAMES);
});

it('a file imports few others', () => {
  const count = sources.reduce(
    (sum, { text }) => sum + [...text.matchAll(/(?:from|import\()\s*'[.#][^']+'/g)].length,
    0,
  );
  const limit = (lines / 100) * MAX_IMPORTS_PER_100_LINES;
  expect(count <= limit, `${count} imports of own files, at most ${Math.floor(limit)} allowed`).toBe(true);
});

/** Texts whose words are checked: source, pages and what users read; not the contract's wire names, and no records of the past. */
const PROSE =
  /^(?:src\/.*\.(?:tsx?|md|css)|README\.md|SECURITY\.md|CONTRIBUTING\.md|docs\/(?!decisions\/).*\.md|openapi\/.*\.json|config\/.*\.yaml)$/;

/** The lines of a text; a page's without its code, which holds names of the wire. */
function readLines(path: string, text: string): readonly string[] {
  const lines = text.split('\n');
  return path.endsWith('.md') ? lines.map((line) => line.replace(/`[^`]*`/g, '')) : lines;
}

it('texts use the words of the field', () => {
  const found = projectTexts()
    .filter(({ path }) => PROSE.test(path) && path.startsWith(room))
    .flatMap(({ path, text }) =>
      readLines(path, text).flatMap((line, i) =>
        DIALECT.filter(([word]) => word.test(readWords(line))).map(
          ([word, instead]) => `${path}:${i + 1}: ${word.exec(readWords(line))![0]} -> ${instead}`,
        ),
      ),
    );
  expectFew(found, 0);
});

it('a violation is seen', () => {
  const text = 'export function reasonOf(a: number) { const told = () => (a ? 1 : 2); return told; }';
  expect(readGrammar(text, false)).toEqual({
    functions: [
      { name: 'reasonOf', line: 1, isMember: false },
      { name: 'told', line: 1, isMember: false },
    ],
    ternaries: 1,
  });
  expect(['told', 'shown', 'refused', 'need', 'embed'].map((name) => PARTICIPLE.test(name))).toEqual([
    true,
    true,
    true,
    false,
    false,
  ]);
  const hasDialect = (line: string) => DIALECT.some(([word]) => word.test(readWords(line)));
  expect(['toldOnce', 'the dearer one', '{ dearer: side }'].map(hasDialect)).toEqual([true, true, false]);
});
