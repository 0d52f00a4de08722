// What the runs of `metis benchmark` passed and cost, and delegation held against the planner alone (17 §6).
import { COST_COLUMNS, composeCostCells } from '#cli/cost.ts';
import { formatDollars, type Style, toPrintable } from '#cli/style.ts';
import { type Column, layOutTable } from '#cli/table.ts';
import { fromPusd, sumPusd, toPusd } from '#protocol/money.ts';
import type { RunResult } from './run.ts';

const REPORT_COLUMNS: readonly Column[] = [
  { title: 'workload', least: 12 },
  { title: 'run', whole: true },
  { title: 'result', whole: true },
  { title: 'workers', align: 'right' },
  ...COST_COLUMNS,
  { title: 'seconds', align: 'right', drop: 0 },
];
const RESULTS = { passed: 'passed', failed: 'failed', not_run: 'not run' } as const;

export interface Comparison {
  readonly workload: string;
  readonly delegated_usd: string;
  readonly inline_usd: string;
  /** Negative where delegation costs more. */
  readonly saved_usd: string;
  /** Of the inline run's cost; 0 where that is nothing. */
  readonly saved_pct: number;
}

export interface Benchmark {
  /** Scripted models answered. */
  readonly simulated: boolean;
  readonly budget_usd: string;
  readonly spent_usd: string;
  readonly runs: readonly RunResult[];
  /** Of workloads whose two runs passed, every call with a price. */
  readonly comparisons: readonly Comparison[];
}

export function createBenchmark(
  runs: readonly RunResult[],
  of: Pick<Benchmark, 'simulated' | 'budget_usd'>,
): Benchmark {
  const { simulated, budget_usd } = of;
  const spent_usd = fromPusd(sumPusd(runs.map((run) => toPusd(run.cost_usd))));
  return { simulated, budget_usd, spent_usd, runs, comparisons: compareRuns(runs) };
}

function compareRuns(runs: readonly RunResult[]): Comparison[] {
  const comparable = runs.filter((run) => run.result === 'passed' && !run.has_unpriced_calls);
  return comparable
    .filter((run) => run.delegate)
    .flatMap(({ workload, cost_usd: delegated_usd }) => {
      const inline = comparable.find((run) => !run.delegate && run.workload === workload);
      if (inline === undefined) return [];
      const whole = toPusd(inline.cost_usd);
      const saved = whole - toPusd(delegated_usd);
      const saved_pct = whole === 0n ? 0 : Number(saved) / Number(whole);
      return [{ workload, delegated_usd, inline_usd: inline.cost_usd, saved_usd: fromPusd(saved), saved_pct }];
    });
}

/** The table and the sentences under it; each line ends with a line break. */
export function writeBenchmark({ simulated, runs, comparisons }: Benchmark, style: Style, width: number): string {
  const lines = layOutTable(
    REPORT_COLUMNS,
    runs.map((run) => [
      run.workload,
      name(run),
      RESULTS[run.result],
      String(run.delegate_calls),
      ...composeCostCells(run),
      run.wall_time_seconds === null ? '-' : run.wall_time_seconds.toFixed(1),
    ]),
    width,
  );
  lines[0] = style.bold(lines[0]!);
  const reasons = runs
    .filter((run) => run.reason !== null)
    .map((run) => `${run.workload}, ${name(run)}: ${run.reason}`);
  const unpriced = runs
    .filter((run) => run.has_unpriced_calls)
    .map((run) => `${run.workload}, ${name(run)}: a model has no price, so the cost is incomplete`);
  const workloads = [...new Set(runs.map((run) => run.workload))];
  const compared = workloads.map((workload) => {
    const found = comparisons.find((each) => each.workload === workload);
    return found === undefined
      ? `${workload}: not compared; both runs must pass, with a price for every call.`
      : sentence(found);
  });
  const note = simulated
    ? 'Scripted models answered: tokens and money are simulated.'
    : 'Each row is one run; another run of the same task may differ.';
  return [...lines, '', ...[...reasons, ...unpriced, ...compared].map(toPrintable), style.dim(note), ''].join('\n');
}

function name({ delegate }: RunResult): string {
  return delegate ? 'delegated' : 'inline';
}

function sentence({ workload, delegated_usd, inline_usd, saved_pct }: Comparison): string {
  const percent = `${Math.abs(saved_pct * 100).toFixed(1)} %`;
  const than = saved_pct === 0 ? 'as much as' : saved_pct > 0 ? `${percent} less than` : `${percent} more than`;
  return `${workload}: delegating costs ${than} inline: ${formatDollars(delegated_usd)} and ${formatDollars(inline_usd)}.`;
}
