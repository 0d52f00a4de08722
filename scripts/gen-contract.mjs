// Writes test/CONTRACT.md from the promise comments above the tests: `// Promise 16.14: three nodes share one budget.`
// `--print [FOLDER]` writes the table of the tests in that folder to stdout instead.
import fs from 'node:fs';
import path from 'node:path';
import { parse } from '@babel/parser';

const HEAD = `# What the server promises

Written by \`npm run gen\`; do not edit it. One row per promise of the [specification](../docs/spec/README.md) that a test proves: its id, the
promise in one line, the test file, and the test's title. Of a title with placeholders the longest fixed part is listed.

To add a row, write a comment directly above the \`it\`, \`test\` or \`describe\` call that proves the promise, then run \`npm run gen\`:

\`\`\`ts
// Promise 16.14: three nodes share one budget.
// Promise 16.16 (npm test -- room): a node makes 40 % of the turns a second of SQLite.
it('…', async () => {
\`\`\`

Each promise is one comment line. A test may have several, and several tests may prove one promise together. The command in parentheses runs
the test where \`npm test\` skips it; \`.ci/run\` counts those rows separately. A merge conflict in this file is resolved by \`npm run gen\`.

| id | promise | test | title | own command |
| --- | --- | --- | --- | --- |
`;

/** Every comment that names a promise; one that does not have the whole form is an error. */
const PROMISE_START = /^[\s*]*promises? \d/i;
const PROMISE = /^ Promise (\d\d\.\d+)(?: \(([^()|`]+)\))?: ([^|]+)\.$/;
const TEST_FUNCTIONS = ['it', 'test', 'describe'];
/** What the value of a title replaces or the table cannot hold: placeholders of `each`, escapes, column and code marks. */
const NOT_FIXED = /%[sdifjoOc#%$]|\$\w[\w.]*|\\.|[|`]/;

const isNode = (value) => typeof value === 'object' && value !== null && typeof value.type === 'string';

/** Every statement of a syntax tree that is a call. */
function* listCalls(node) {
  if (node.type === 'ExpressionStatement' && node.expression.type === 'CallExpression') yield node;
  for (const value of Object.values(node))
    for (const child of Array.isArray(value) ? value : [value]) if (isNode(child)) yield* listCalls(child);
}

/** The function that a call begins with: `it` of `it.skipIf(x).each(y)('…')`. */
function readFunctionName(node) {
  if (node.type === 'Identifier') return node.name;
  const inner = node.callee ?? node.object ?? node.tag;
  return inner === undefined ? null : readFunctionName(inner);
}

/** The longest part of a test's title that its source and its value share; `null` without a literal title. */
function readTitle(call, text) {
  const [title] = call.arguments;
  const quasis = title?.type === 'TemplateLiteral' ? title.quasis : [];
  const pieces =
    title?.type === 'StringLiteral'
      ? [text.slice(title.start + 1, title.end - 1)]
      : quasis.map(({ start, end }) => text.slice(start, end));
  const parts = pieces.flatMap((piece) => piece.split(NOT_FIXED)).map((part) => part.trim());
  const longest = parts.reduce((best, part) => (part.length > best.length ? part : best), '');
  return longest === '' ? null : longest;
}

/** Comments of an unbroken run of lines that ends directly above a line. */
function listCommentsAbove(line, comments) {
  const above = comments.find(({ loc }) => loc.end.line === line - 1);
  return above === undefined ? [] : [...listCommentsAbove(above.loc.start.line, comments), above];
}

/** `{id, promise, file, title, command}` of every promise of a test file, in order; throws for a comment that belongs to no test. */
function readPromises(file, text) {
  const plugins = file.endsWith('x') ? ['typescript', 'jsx'] : ['typescript'];
  const { program, comments } = parse(text, { sourceType: 'module', plugins, attachComment: false });
  const promises = comments.filter(({ value }) => PROMISE_START.test(value));
  const titles = new Map();
  for (const { loc, expression } of listCalls(program))
    if (TEST_FUNCTIONS.includes(readFunctionName(expression)))
      for (const comment of listCommentsAbove(loc.start.line, comments))
        titles.set(comment, readTitle(expression, text));
  return promises.map((comment) => {
    const place = `${file}:${comment.loc.start.line}`;
    const [, id, command, promise] = PROMISE.exec(comment.value) ?? [];
    if (id === undefined) throw new Error(`${place}: write "// Promise 16.14: what the server promises."`);
    if (!titles.get(comment)) throw new Error(`${place}: the promise is above no test with a title`);
    return { id, promise, file, title: titles.get(comment), command };
  });
}

/** @returns paths of all test files below `test/` of a folder, sorted */
function listTestFiles(root) {
  return fs
    .readdirSync(path.join(root, 'test'), { recursive: true, encoding: 'utf8' })
    .map((name) => `test/${name.replaceAll(path.sep, '/')}`)
    .filter((name) => /\.tsx?$/.test(name))
    .sort();
}

/** The table of all promises, by id, then file, then place in the file. */
function buildTable(root) {
  const promises = listTestFiles(root).flatMap((file) => {
    const text = fs.readFileSync(path.join(root, file), 'utf8');
    return /promises? \d/i.test(text) ? readPromises(file, text) : [];
  });
  const rows = promises
    .sort(
      (a, b) => Number(a.id.slice(0, 2)) - Number(b.id.slice(0, 2)) || Number(a.id.slice(3)) - Number(b.id.slice(3)),
    )
    .map(({ id, promise, file, title, command }) =>
      ['', id, promise, file, title, ...(command === undefined ? [] : [`\`${command}\``]), ''].join(' | ').trim(),
    );
  return `${HEAD}${[...new Set(rows)].join('\n')}\n`;
}

const root = path.resolve(import.meta.dirname, '..');
const [flag, folder = root] = process.argv.slice(2);
if (flag === '--print') process.stdout.write(buildTable(folder));
else fs.writeFileSync(path.join(root, 'test/CONTRACT.md'), buildTable(root));
