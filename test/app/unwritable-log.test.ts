// A log or an output that cannot be written: the server goes on, a command fails with a sentence (17 §2).
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { createLogOutput } from '#server/log.ts';
import { tempFolder } from '../support/engine.ts';
import { freePort } from '../support/free-port.ts';
import { until } from '../support/until.ts';
import { MAIN, PASSED_ON, temporaryHome } from './metis.ts';

const FULL = '/dev/full';

function startInto(words: readonly string[], outputs: { readonly stdout: string; readonly stderr: string }) {
  const home = temporaryHome();
  onTestFinished(home.remove);
  const [out, err] = [fs.openSync(outputs.stdout, 'a'), fs.openSync(outputs.stderr, 'a')];
  const child = spawn(process.execPath, [MAIN, ...words], {
    cwd: home.path,
    env: { ...PASSED_ON, HOME: home.path },
    stdio: ['ignore', out, err],
  });
  for (const fd of [out, err]) fs.closeSync(fd);
  onTestFinished(() => void child.kill('SIGKILL'));
  const ended = once(child, 'exit').then(([code]) => code as number | null);
  return { child, ended };
}

describe.skipIf(!fs.existsSync(FULL))('an output that is full', () => {
  // Promise 17.12: a server goes on when its log and output are full.
  test('leaves a server at work, and a signal ends it with 0', async () => {
    const port = await freePort();
    const words = ['serve', '--port', String(port), '--set', 'log.level=debug'];
    const { child, ended } = startInto(words, { stdout: FULL, stderr: FULL });
    const isHealthy = () =>
      fetch(`http://127.0.0.1:${port}/healthz`).then(
        ({ ok }) => ok,
        () => child.exitCode !== null,
      );
    await until(isHealthy, 60);
    expect(child.exitCode).toBeNull();
    child.kill('SIGTERM');
    expect(await ended).toBe(0);
  });

  // Promise 17.12: a command whose output is full fails with a sentence.
  test('makes a command fail with one sentence', async () => {
    const errors = path.join(tempFolder(), 'errors');
    const { ended } = startInto(['config', 'check'], { stdout: FULL, stderr: errors });
    expect(await ended).toBe(1);
    expect(fs.readFileSync(errors, 'utf8')).toBe(
      'metis: standard output cannot be written (ENOSPC); make room where it goes\n',
    );
  });
});

// Promise 17.12: lost lines of the log are counted and reported.
test('a log that can be written again reports how many lines were lost, each line whole', () => {
  const fifo = path.join(tempFolder(), 'log');
  execFileSync('mkfifo', [fifo]);
  const fd = fs.openSync(fifo, fs.constants.O_RDWR | fs.constants.O_NONBLOCK);
  onTestFinished(() => fs.closeSync(fd));
  const output = createLogOutput(fd);
  const LINE_BYTES = 40_000;
  const line = (n: number) => `${JSON.stringify({ n, text: 'x'.repeat(LINE_BYTES) })}\n`;
  // A pipe holds 64 KiB: the second line fits in part.
  for (const n of [1, 2, 3, 4]) output.write(line(n));
  const buffer = Buffer.alloc(LINE_BYTES * 4);
  const read = () => buffer.toString('utf8', 0, fs.readSync(fd, buffer));
  const before = read();
  output.write('{"n":5}\n');
  const [first, torn, report, last] = (before + read()).trimEnd().split('\n');
  expect(JSON.parse(first!).n).toBe(1);
  expect(torn).toMatch(/^\{"n":2,"text":"x+$/);
  expect(JSON.parse(report!)).toMatchObject({ level: 'warn', lines: 3, msg: 'lines of the log could not be written' });
  expect(last).toBe('{"n":5}');
});
