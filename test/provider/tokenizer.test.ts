// Tokens counted on a thread: never fewer than the tokenizer finds, and never at the cost of the event loop (14 §2).
import path from 'node:path';
import { countTokens } from 'gpt-tokenizer/encoding/o200k_base';
import { describe, expect, it, onTestFinished } from 'vitest';
import { silentLogger } from '#core/ports/logger.ts';
import { createThreadedTokenizer } from '#models/threads/threaded-tokenizer.ts';
import { systemClock } from '#protocol/clock.ts';
import { findThreadProgram } from '#server/models.ts';
import { manualClock } from '../support/manual-clock.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
const PROGRAM = findThreadProgram(ROOT, 'models/threads/tokenizer-thread');

function start(program = PROGRAM, clock = manualClock()) {
  const tokenizer = createThreadedTokenizer(program, clock, silentLogger);
  onTestFinished(() => tokenizer.close());
  return { tokenizer, clock };
}
const o200k = (text: string) => countTokens(text, { allowedSpecial: new Set(), disallowedSpecial: new Set() });

describe('the tokenizer', () => {
  it('counts what o200k counts, a cut more for each 512 characters', async () => {
    const { tokenizer } = start();
    const texts = ['', 'hello world', '<|endoftext|>', '中文'.repeat(700), 'word '.repeat(5000), '👩🏽‍🚀'.repeat(900)];
    for (const text of texts) {
      const tokens = (await tokenizer.count('o200k', [text]))!;
      expect(tokens).toBeGreaterThanOrEqual(o200k(text));
      expect(tokens).toBeLessThanOrEqual(o200k(text) + 4 * Math.floor(text.length / 512));
    }
    const whole = await tokenizer.count('o200k', ['hello world', 'hello world']);
    expect(whole).toBe(2 * o200k('hello world'));
  });

  it('counts a run of 100 kB without a boundary in time', async () => {
    const { tokenizer } = start(PROGRAM, systemClock as ReturnType<typeof manualClock>);
    for (const letter of ['a', '!', ' ', '中'])
      expect(await tokenizer.count('o200k', [letter.repeat(100_000)])).toBeGreaterThan(500);
  });

  it('gives up after two seconds, beyond what it can take at once, and where its thread cannot run', async () => {
    const { tokenizer, clock } = start();
    const late = tokenizer.count('o200k', ['word '.repeat(200_000)]);
    expect(await tokenizer.count('o200k', ['x'.repeat(8_000_000)])).toBeNull();
    clock.advance(2000);
    expect(await late).toBeNull();
    expect(await tokenizer.count('o200k', ['x'])).toBe(1);
    expect(await start(path.join(ROOT, 'nowhere.js')).tokenizer.count('o200k', ['x'])).toBeNull();
  });

  it('ends what is still being counted when it is closed', async () => {
    const { tokenizer } = start();
    const open = tokenizer.count('o200k', ['word '.repeat(200_000)]);
    await tokenizer.close();
    expect(await open).toBeNull();
  });
});
