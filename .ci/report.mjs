// Judges a run of the tests: names skipped and retried tests, counts promises, ends with `N passed, N failed`.
// usage: node .ci/report.mjs REPORT.json [FAILED STEP ...]    REPORT.json is vitest's JSON report; each step is a command that failed
import fs from 'node:fs';
import path from 'node:path';

/** More tests than this that need a second try hide a fault. */
const MAX_RETRIED = 2;
/** Their schedules are drawn by chance or their data is the record: a failure that passes at the second try is a fault. */
const NEVER_RETRIED = ['test/property/', 'test/store/'];

const [, , reportFile, ...failedSteps] = process.argv;

function readReport() {
  try {
    return JSON.parse(fs.readFileSync(reportFile, 'utf8'));
  } catch {
    console.log('vitest wrote no report');
    return null;
  }
}

/** `{file, fullName, status, failureMessages}` of every test. */
function listTests(report) {
  return (report?.testResults ?? []).flatMap(({ name, assertionResults }) => {
    const file = path.relative(process.cwd(), name ?? '');
    return assertionResults.map((test) => ({ file, ...test }));
  });
}

/** Rows of the promise table: the test of each, and the command that runs it where an ordinary run skips it. */
function readPromises() {
  if (!fs.existsSync('test/CONTRACT.md')) return [];
  const rows = fs.readFileSync('test/CONTRACT.md', 'utf8').split('\n');
  return rows
    .map((row) => row.split('|').map((cell) => cell.trim().replaceAll('`', '')))
    .filter((cells) => /^\d\d\.\d+$/.test(cells[1] ?? ''))
    .map(([, id, , file, title, command]) => ({ id, file, title, command: command ?? '' }));
}

/** Counts promises apart by whether this run checked them. */
function reportPromises(tests) {
  const promises = readPromises();
  if (promises.length === 0) return;
  const isSkippedHere = ({ file, title }) => {
    const found = tests.filter((test) => test.file === file && test.fullName.includes(title));
    return found.length > 0 && found.every(isSkipped);
  };
  const elsewhere = promises.filter(({ command }) => command !== '');
  const skipped = promises.filter((row) => row.command === '' && isSkippedHere(row));
  for (const { id, title } of skipped) console.log(`promise not checked by this run: ${id}: ${title}`);
  for (const { id, command } of elsewhere) console.log(`promise checked by a command of its own: ${id}: ${command}`);
  const checked = promises.length - elsewhere.length - skipped.length;
  console.log(
    `promises: ${checked} checked, ${elsewhere.length} by commands of their own, ${skipped.length} not checked`,
  );
}

function isSkipped({ status }) {
  return status === 'pending' || status === 'skipped';
}

const report = readReport();
const tests = listTests(report);
for (const { fullName } of tests.filter(isSkipped)) console.log(`skipped: ${fullName}`);
// A test that passed keeps the failure messages of its first try.
const retried = tests.filter(({ status, failureMessages }) => status === 'passed' && failureMessages.length > 0);
for (const { file, fullName, failureMessages } of retried)
  console.log(`passed at the second try: ${file}: ${fullName}: ${failureMessages[0].split('\n')[0]}`);
reportPromises(tests);

let failed = report?.numFailedTests ?? 0;
let passed = report?.numPassedTests ?? 0;
const refused = retried.filter(({ file }) => NEVER_RETRIED.some((folder) => file.startsWith(folder)));
if (retried.length > MAX_RETRIED) {
  console.log(`${retried.length} tests needed a second try; more than ${MAX_RETRIED} is a failure`);
  failed += retried.length;
  passed -= retried.length;
} else if (refused.length > 0) {
  console.log(`tests of ${NEVER_RETRIED.join(' and ')} must pass at the first try`);
  failed += refused.length;
  passed -= refused.length;
}
for (const step of failedSteps) console.log(`failed step: ${step}`);
// Last, so that whoever sees only the end of the output sees them.
for (const { file, fullName, failureMessages } of tests.filter(({ status }) => status === 'failed'))
  console.log(`failed: ${file}: ${fullName}: ${failureMessages[0]?.split('\n')[0] ?? ''}`);
// A file that does not load, an error outside a test, or another step fails no test of the report; it still counts as one failure.
if (failed === 0 && (failedSteps.length > 0 || report === null)) failed = 1;
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
