// What an experiment found: pass rates with their intervals, cost per solved task, and the arm to choose (21 §5).
import { type Pusd, sumPusd, ZERO_PUSD } from '#protocol/money.ts';
import { computePassRateInterval } from '../learning/weigh-evidence.ts';

/** Of the two-sided 95 % interval. */
const Z = 1.959963984540054;
/** How far a pass rate may lie below the best. */
const MARGIN = 0.05;
/** A difference that may be larger is not settled by these runs. */
const UNSURE = -0.1;

export interface ArmRun {
  readonly arm: number;
  /** `not_run`: the limit cut it, or left nothing for it. */
  readonly result: 'passed' | 'failed' | 'not_run';
  readonly cost_pusd: Pusd;
  readonly seconds: number;
}

export interface Interval {
  readonly low: number;
  readonly high: number;
}

export interface ArmResult {
  readonly arm: number;
  readonly runs: number;
  readonly passed: number;
  readonly not_run: number;
  /** Null without a run. */
  readonly pass_rate: number | null;
  readonly interval: Interval;
  readonly cost_pusd: Pusd;
  /** All runs by the solved ones, rounded down; null where none was solved. */
  readonly cost_per_solved_pusd: Pusd | null;
  /** Mean of a run; null without one. */
  readonly seconds: number | null;
}

export interface Choice {
  readonly arm: number;
  /** Of its pass rate to that of the best other arm. */
  readonly difference: Interval;
  readonly is_sure: boolean;
  /** Null where not both kinds of arms have solved a task, so that they cannot be compared. */
  readonly delegation: 'pays' | 'does_not_pay' | null;
}

/** One result an arm, in the order of the arms. */
export function sumUpArms(runs: readonly ArmRun[], arms: number): readonly ArmResult[] {
  return Array.from({ length: arms }, (_, arm) => {
    const own = runs.filter((run) => run.arm === arm);
    const counted = own.filter(({ result }) => result !== 'not_run');
    const passed = counted.filter(({ result }) => result === 'passed').length;
    const count = counted.length;
    const cost_pusd = sumPusd(counted.map((run) => run.cost_pusd));
    const pass_rate = count === 0 ? null : passed / count;
    return {
      arm,
      runs: count,
      passed,
      not_run: own.length - count,
      pass_rate,
      interval: computePassRateInterval({ count, mean: pass_rate ?? 0 }, Z),
      cost_pusd,
      cost_per_solved_pusd: passed === 0 ? null : ((cost_pusd / BigInt(passed)) as Pusd),
      seconds: count === 0 ? null : counted.reduce((sum, { seconds }) => sum + seconds, 0) / count,
    };
  });
}

/**
 * The cheapest arm whose pass rate is not below the best's by more than 5 points; null where no task was solved.
 * @param delegates whether each arm may delegate
 */
export function chooseArm(results: readonly ArmResult[], delegates: readonly boolean[]): Choice | null {
  const solved = results.filter(({ passed }) => passed > 0);
  const best = solved.reduce<ArmResult | null>(pickBetter, null);
  if (best === null) return null;
  const equal = solved.filter((one) => one.pass_rate! >= best.pass_rate! - MARGIN);
  const chosen = equal.reduce((least, one) => (compareCost(one, least) < 0 ? one : least));
  const rival = results.filter((one) => one !== chosen && one.runs > 0).reduce<ArmResult | null>(pickBetter, null);
  const difference = rival === null ? { low: 0, high: 0 } : compareRates(chosen, rival);
  return {
    arm: chosen.arm,
    difference,
    is_sure: difference.low >= UNSURE,
    delegation: judgeDelegation(chosen, results, delegates),
  };
}

/** The higher pass rate; of equal ones the first. */
function pickBetter(top: ArmResult | null, one: ArmResult): ArmResult {
  if (top === null || one.pass_rate! > top.pass_rate!) return one;
  return top;
}

/** By the cost of a solved task, exactly. */
function compareCost(a: ArmResult, b: ArmResult): number {
  const difference = a.cost_pusd * BigInt(b.passed) - b.cost_pusd * BigInt(a.passed);
  if (difference === ZERO_PUSD) return 0;
  return difference < 0n ? -1 : 1;
}

/** The interval of a difference of two rates by Newcombe's method, from their own intervals. */
function compareRates(a: ArmResult, b: ArmResult): Interval {
  const [p, q] = [a.pass_rate!, b.pass_rate!];
  return {
    low: p - q - Math.hypot(p - a.interval.low, b.interval.high - q),
    high: p - q + Math.hypot(a.interval.high - p, q - b.interval.low),
  };
}

function judgeDelegation(
  chosen: ArmResult,
  results: readonly ArmResult[],
  delegates: readonly boolean[],
): Choice['delegation'] {
  const others = results.filter(({ arm, runs }) => runs > 0 && delegates[arm] !== delegates[chosen.arm]);
  if (others.length === 0) return null;
  return delegates[chosen.arm] ? 'pays' : 'does_not_pay';
}
