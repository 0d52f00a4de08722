// Tests wait for what happens, never for a length of time: nothing in them sleeps.
import { expect, it } from 'vitest';
import { type SourceFile, typescriptFiles } from './source.ts';

/** The only places with a pause: one looks again for what announces itself by no event, one kills at random moments, one is a model that takes its time. */
const PAUSING = ['test/support/until.ts', 'test/crash/schedule.ts', 'test/support/planned-work.ts'];
const SLEEP = new RegExp(`\\bset${'Timeout'}\\b|\\bAtomics\\.${'wait'}\\b|[^.\\w]sleep\\((?:systemClock|\\d)`);

const sleeping = (files: readonly SourceFile[]) =>
  files
    .filter((file) => !PAUSING.includes(file.path))
    .flatMap((file) =>
      file.text
        .split('\n')
        .map((line, i) => ({ line, place: `${file.path}:${i + 1}` }))
        .filter(({ line }) => SLEEP.test(line))
        .map(({ place }) => place),
    );

it('no test sleeps: it waits for an event, drives a clock, or takes `until` of test/support', () => {
  expect(sleeping(typescriptFiles('test'))).toEqual([]);
});

it('a sleep is seen', () => {
  const planted = [`await new Promise((done) => set${'Timeout'}(done, 50));`, `await sleep(${'systemClock'}, 50);`];
  expect(sleeping([{ path: 'test/a.test.ts', text: planted.join('\n') }])).toEqual([
    'test/a.test.ts:1',
    'test/a.test.ts:2',
  ]);
});
