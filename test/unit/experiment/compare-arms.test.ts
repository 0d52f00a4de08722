// What an experiment concludes from its runs (21 §5).
import { describe, expect, test } from 'vitest';
import { type ArmRun, chooseArm, sumUpArms } from '#core/policy/experiment/compare-arms.ts';
import type { Pusd } from '#protocol/money.ts';

/** So many runs of an arm at this cost each, the first of them passed. */
function runs(arm: number, [passed, failed, not_run = 0]: readonly number[], cost: bigint): ArmRun[] {
  const make = (count: number, result: ArmRun['result']) =>
    Array.from({ length: count }, () => ({ arm, result, cost_pusd: cost as Pusd, seconds: 2 }));
  return [...make(passed!, 'passed'), ...make(failed!, 'failed'), ...make(not_run, 'not_run')];
}

describe('the result of an arm', () => {
  // Promise 21.8: a cut run counts as not run: in no pass rate and in no cost of a solved task.
  test('has its pass rate with the interval of Wilson, and the cost of a solved task, without runs that were cut', () => {
    const [one, two] = sumUpArms([...runs(0, [8, 2, 3], 7n), ...runs(1, [0, 0, 1], 9n)], 2);
    expect(one).toMatchObject({ runs: 10, passed: 8, not_run: 3, pass_rate: 0.8, cost_pusd: 70n, seconds: 2 });
    // 70 by 8, rounded down.
    expect(one!.cost_per_solved_pusd).toBe(8n);
    expect(one!.interval.low).toBeCloseTo(0.4902, 4);
    expect(one!.interval.high).toBeCloseTo(0.9433, 4);
    expect(two).toMatchObject({ runs: 0, pass_rate: null, cost_per_solved_pusd: null, interval: { low: 0, high: 1 } });
  });
});

describe('the choice', () => {
  const choose = (all: readonly ArmRun[], delegates: readonly boolean[]) =>
    chooseArm(sumUpArms(all, delegates.length), delegates);

  test('is the cheapest arm whose pass rate is not below the best by more than 5 points', () => {
    const best = runs(0, [100, 0], 100n);
    expect(choose([...best, ...runs(1, [95, 5], 10n)], [true, true])?.arm).toBe(1);
    expect(choose([...best, ...runs(1, [94, 6], 10n)], [true, true])?.arm).toBe(0);
    // By the cost of a solved task, not of a run.
    expect(choose([...runs(0, [20, 0], 100n), ...runs(1, [19, 1], 96n)], [true, true])?.arm).toBe(0);
    expect(choose(runs(0, [0, 5], 1n), [true])).toBeNull();
  });

  test('is sure where the interval of the difference does not reach below -10 points', () => {
    const few = choose([...runs(0, [2, 0], 10n), ...runs(1, [2, 0], 5n)], [true, true]);
    expect(few).toMatchObject({ arm: 1, is_sure: false });
    expect(few!.difference.low).toBeCloseTo(-0.6576, 3);
    const many = choose([...runs(0, [200, 0], 10n), ...runs(1, [200, 0], 5n)], [true, true]);
    expect(many).toMatchObject({ arm: 1, is_sure: true });
  });

  // Promise 21.11: The arm without delegation that is the cheapest of equal pass rate decides that delegating does not pay.
  test('states whether delegating pays, and nothing where only one kind of arm ran', () => {
    const [cheap, dear] = [5n, 10n];
    expect(choose([...runs(0, [2, 0], dear), ...runs(1, [2, 0], cheap)], [true, false])?.delegation).toBe(
      'does_not_pay',
    );
    expect(choose([...runs(0, [2, 0], cheap), ...runs(1, [2, 0], dear)], [true, false])?.delegation).toBe('pays');
    expect(choose([...runs(0, [2, 0], cheap), ...runs(1, [2, 0], dear)], [true, true])?.delegation).toBeNull();
    expect(choose([...runs(0, [2, 0], cheap), ...runs(1, [0, 0, 2], dear)], [true, false])?.delegation).toBeNull();
  });
});
