// Upper limits of what a turn does, counted in the built server: a count is no time, and the same on a busy machine.
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';
import { ROOT } from './metis.ts';

type Counts = Readonly<Record<string, number>>;

/** Counted in November 2026: 25 promises, 29 continuations, 24 texts written, 17 statements, 4 writes. */
const MOST_A_TURN = {
  promises: 32,
  continuations: 40,
  jobs: 40,
  parses: 27,
  stringifies: 26,
  validations: 4,
  statements: 20,
  commits: 2.2,
  writes: 4.8,
};
const MOST_A_PIECE = {
  promises: 4,
  continuations: 6,
  jobs: 5,
  parses: 1.1,
  stringifies: 1.1,
  statements: 0.1,
  writes: 1.2,
};

it('a plain turn and a piece of its answer take no more steps than they need', async () => {
  const { stdout } = await promisify(execFile)(process.execPath, ['bench/count-steps.mjs', '--plain', '--json'], {
    cwd: ROOT,
  });
  const { turn, piece } = JSON.parse(stdout) as { readonly turn: Counts; readonly piece: Counts };
  for (const [kind, most] of Object.entries(MOST_A_TURN))
    expect(turn[kind], `${kind} of a turn`).toBeLessThanOrEqual(most);
  for (const [kind, most] of Object.entries(MOST_A_PIECE))
    expect(piece[kind], `${kind} of a piece`).toBeLessThanOrEqual(most);
});
