// What the benchmark says of its rows, and how often it measures them, on made-up figures.
import path from 'node:path';
import { describe, expect, it } from 'vitest';

const BENCH = path.resolve(import.meta.dirname, '../../bench');

interface Reported {
  readonly spread: number | null;
  readonly limit: { readonly figure: number; readonly met: boolean } | null;
}

describe('what is printed of a row', async () => {
  const { countLimits, summarise, table } = (await import(path.join(BENCH, 'report.mjs'))) as {
    summarise(measure: string, row: object): Reported;
    countLimits(rows: readonly Reported[]): { met: number; missed: number };
    table(rows: readonly Reported[], baseline: object): string;
  };
  const limits = (await import(path.join(BENCH, 'limits.mjs'))) as Record<string, (bound: number) => object>;
  const row = (metis: number[], relay: number[], limit?: object) =>
    summarise('made up', { row: 'a row', unit: 'ms', better: 'lower', metis, relay, limit });

  it.each([
    { kind: 'atMost', bound: 50, metis: 50, relay: 10, figure: 50, met: true, words: '≤ 50 ms' },
    { kind: 'atMost', bound: 49, metis: 50, relay: 10, figure: 50, met: false, words: '≤ 49 ms' },
    { kind: 'atLeast', bound: 97, metis: 96.9, relay: 100, figure: 96.9, met: false, words: '≥ 97 ms' },
    { kind: 'ratioAtMost', bound: 4, metis: 40, relay: 10, figure: 4, met: true, words: 'ratio ≤ 4' },
    { kind: 'ratioAtLeast', bound: 0.5, metis: 4, relay: 10, figure: 0.4, met: false, words: 'ratio ≥ 0.5' },
    { kind: 'aboveAtMost', bound: 5, metis: 16, relay: 10, figure: 6, met: false, words: 'relay + 5 ms' },
  ])('$kind $bound', ({ kind, bound, metis, relay, figure, met, words }) => {
    const reported = row([metis], [relay], limits[kind]?.(bound));
    expect(reported.limit).toMatchObject({ figure, met });
    const line = table([reported], {}).split('\n').at(-1);
    expect(line).toContain(words);
    expect(line).toMatch(met ? / met/ : / missed/);
    expect(countLimits([reported])).toEqual({ met: met ? 1 : 0, missed: met ? 0 : 1 });
  });

  it('has neither limit nor spread where a row has none', () => {
    const reported = row([1], [1]);
    expect(reported).toMatchObject({ limit: null, spread: null });
    expect(countLimits([reported])).toEqual({ met: 0, missed: 0 });
  });

  it('marks a spread above 10 % of the median', () => {
    expect(table([row([100, 101, 102, 103, 104], [1, 1, 1, 1, 1])], {})).not.toContain('!');
    const wide = row([100, 60, 140, 100, 180], [1, 1, 1, 1, 1]);
    expect(wide.spread).toBeCloseTo((0.93 * 40) / Math.sqrt(5) / 100);
    expect(table([wide], {})).toContain('17 % !');
  });
});

describe('rounds', async () => {
  const { createRounds } = (await import(path.join(BENCH, 'rounds.mjs'))) as {
    createRounds(options: {
      count: number;
      now: () => number;
      note: (text: string) => void;
    }): (
      sides: Record<string, () => unknown>,
      how?: { most?: number; times?: number },
    ) => Promise<Record<string, unknown[]>>;
  };
  const started = (count: number, msOfRead = 0) => {
    const said: string[] = [];
    let now = 0;
    const clock = () => {
      now += msOfRead;
      return now;
    };
    return { said, rounds: createRounds({ count, now: clock, note: (text) => said.push(text) }) };
  };
  /** 100 and 300 in turn, however often it is asked. */
  const unsteady = () => {
    let asked = 0;
    return () => ({ p50: 100 + 200 * (asked++ % 2), memory: null });
  };

  it('are as many as were asked for where they agree, and the sides take turns', async () => {
    const order: string[] = [];
    const side = (name: string) => () => {
      order.push(name);
      return 7;
    };
    const { rounds, said } = started(2);
    expect(await rounds({ relay: side('relay'), metis: side('metis') })).toEqual({ relay: [7, 7], metis: [7, 7] });
    expect(order).toEqual(['relay', 'metis', 'metis', 'relay']);
    expect(said).toEqual([]);
  });

  it('are at most three times as many where one figure of one side differs', async () => {
    const { rounds, said } = started(2);
    const { metis } = await rounds({ relay: () => 7, metis: unsteady() });
    expect(metis).toHaveLength(6);
    expect(said).toEqual(['  6 rounds in place of 2, and still far apart']);
  });

  it('end as soon as the figures agree', async () => {
    const figures = [100, 200, 200, 200, 200, 200];
    const { rounds, said } = started(2);
    const { metis } = await rounds({ metis: () => figures.shift() });
    expect(metis).toEqual([100, 200, 200, 200, 200].slice(0, metis?.length));
    expect(metis?.length).toBeLessThan(6);
    expect(said[0]).toMatch(/rounds in place of 2$/);
  });

  it.each([
    { name: 'a single one is not repeated', count: 1, how: {}, wanted: 1 },
    { name: 'none begins after two minutes of repeats', count: 2, how: {}, msOfRead: 200_000, wanted: 2 },
    { name: 'long ones are fewer', count: 5, how: { most: 2 }, wanted: 6 },
    { name: 'short ones are more', count: 2, how: { times: 3 }, wanted: 18 },
  ])('$name', async ({ count, how, msOfRead, wanted }) => {
    const { metis } = await started(count, msOfRead).rounds({ metis: unsteady() }, how);
    expect(metis).toHaveLength(wanted);
  });
});
