// `metis benchmark`: each workload once with delegation and once by the planner alone, and what both cost (17 §6).
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { COST_COLUMNS, composeCostCells } from '#cli/cost.ts';
import { toJsonLine, toPrintable } from '#cli/printable-text.ts';
import {
  type Column,
  createTerminalStyle,
  formatDollars,
  getTableWidth,
  layOutTable,
  type Style,
} from '#cli/terminal.ts';
import { ApiError } from '#client/request.ts';
import { StartupError } from '#protocol/errors.ts';
import { fromPusd, sumPusd, toPusd } from '#protocol/money.ts';
import type { ConfigFlags } from '../config.ts';
import { type CommandContext, refuse } from '../context.ts';
import { type Policy, parsePolicy } from '../flags.ts';
import { createSkippedRun, type RunResult, runArm } from './benchmark-run.ts';
import { type BenchmarkSettings, readModels, readWorkloads, type Workload } from './benchmark-setup.ts';

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
      nameRun(run),
      RESULTS[run.result],
      String(run.delegate_calls),
      ...composeCostCells(run),
      run.wall_time_seconds?.toFixed(1) ?? '-',
    ]),
    width,
  );
  lines[0] = style.bold(lines[0]!);
  const reasons = runs
    .filter((run) => run.reason !== null)
    .map((run) => `${run.workload}, ${nameRun(run)}: ${run.reason}`);
  const unpriced = runs
    .filter((run) => run.has_unpriced_calls)
    .map((run) => `${run.workload}, ${nameRun(run)}: a model has no price, so the cost is incomplete`);
  const workloads = [...new Set(runs.map((run) => run.workload))];
  const compared = workloads.map((workload) => {
    const found = comparisons.find((each) => each.workload === workload);
    if (found === undefined) return `${workload}: not compared; both runs must pass, with a price for every call.`;
    return describeComparison(found);
  });
  const sentences = [...reasons, ...unpriced, ...compared].map(toPrintable);
  return [...lines, '', ...sentences, style.dim(composeNote(simulated)), ''].join('\n');
}

function composeNote(simulated: boolean): string {
  if (simulated) return 'Scripted models answered: tokens and money are simulated.';
  return 'Each row is one run; another run of the same task may differ.';
}

function nameRun({ delegate }: RunResult): string {
  if (delegate) return 'delegated';
  return 'inline';
}

function describeComparison({ workload, delegated_usd, inline_usd, saved_pct }: Comparison): string {
  const amounts = `${formatDollars(delegated_usd)} and ${formatDollars(inline_usd)}`;
  return `${workload}: delegating costs ${compareShare(saved_pct)} inline: ${amounts}.`;
}

function compareShare(saved: number): string {
  if (saved === 0) return 'as much as';
  const percent = `${Math.abs(saved * 100).toFixed(1)} %`;
  if (saved > 0) return `${percent} less than`;
  return `${percent} more than`;
}

/** A limit has at most six decimals. */
const LIMIT_STEP = 1_000_000n;

export interface BenchmarkFlags extends ConfigFlags {
  /** The planner's model, id or alias. */
  readonly model?: string;
  /** `PLANNER-planner-WORKER-worker`. */
  readonly delegationPolicy?: string;
  /** Of all runs together. */
  readonly budget: string;
  readonly scripted?: boolean;
  readonly approve?: boolean;
  readonly json?: boolean;
}

/** Exit code: 0 when every run passed, 1 otherwise, 130 when interrupted. */
export async function benchmark(context: CommandContext, flags: BenchmarkFlags, folder: string): Promise<number> {
  const workloads = readWorkloads(path.resolve(context.cwd, folder));
  if (!workloads.ok) return refuse(context, workloads.error);
  const given = flags.delegationPolicy === undefined ? null : parsePolicy(flags.delegationPolicy);
  const problems = findFaults(workloads.value, flags, given);
  if (problems.length > 0) return refuse(context, problems);
  const models = readModels(context, flags);
  if (!models.ok) return refuse(context, models.error);
  const policy = given ?? { planner: flags.model ?? null, worker: null };
  const settings = { models: models.value, policy, approve: flags.approve ?? false };
  const stopped = new AbortController();
  const temporary = fs.mkdtempSync(path.join(os.tmpdir(), 'metis-benchmark-'));
  const remove = () => fs.rmSync(temporary, { recursive: true, force: true });
  const keepClean = context.onExit(remove);
  void Promise.race([context.stopSignal(), context.outputClosed]).then(() => stopped.abort());
  try {
    const place = { folder: temporary, budget: flags.budget, signal: stopped.signal };
    const runs = await runAll(context, workloads.value, settings, place);
    const result = createBenchmark(runs, { simulated: flags.scripted ?? false, budget_usd: flags.budget });
    if (flags.json) context.stdout.write(toJsonLine(result));
    else context.stdout.write(writeBenchmark(result, createTerminalStyle(context), getTableWidth(context)));
    if (stopped.signal.aborted) return 130;
    if (runs.every((run) => run.result === 'passed')) return 0;
    return 1;
  } catch (error) {
    if (error instanceof ApiError) return refuse(context, [error.message]);
    if (error instanceof StartupError) return refuse(context, error.problems);
    throw error;
  } finally {
    keepClean();
    remove();
  }
}

/** Problems that are known before a run starts. */
function findFaults(workloads: readonly Workload[], flags: BenchmarkFlags, policy: Policy | null): string[] {
  const problems: string[] = [];
  if (policy !== null && flags.model !== undefined && flags.model !== policy.planner)
    problems.push(`--model ${flags.model} is not the planner of --delegation-policy ${flags.delegationPolicy}`);
  for (const { name, scenario, workspace } of workloads) {
    if (flags.scripted && scenario === null)
      problems.push(`${name}: workload.yaml names no scenario, which --scripted plays`);
    // The workspace's file comes before any other: its tiers would count.
    if (policy !== null && fs.existsSync(path.join(workspace, '.metis', 'routing.yaml')))
      problems.push(`${name}: its .metis/routing.yaml chooses the models; leave --delegation-policy out`);
  }
  return problems;
}

/** Runs one after the other, so that the rest of the limit is known before each run. */
async function runAll(
  context: CommandContext,
  workloads: readonly Workload[],
  settings: BenchmarkSettings,
  { folder, budget, signal }: { readonly folder: string; readonly budget: string; readonly signal: AbortSignal },
): Promise<RunResult[]> {
  const runs: RunResult[] = [];
  for (const workload of workloads)
    for (const delegate of [true, false]) {
      const arm = { workload, delegate };
      const spent = sumPusd(runs.map((run) => toPusd(run.cost_usd)));
      const left = ((toPusd(budget) - spent) / LIMIT_STEP) * LIMIT_STEP;
      if (signal.aborted) runs.push(createSkippedRun(arm, 'interrupted'));
      else if (left <= 0n) runs.push(createSkippedRun(arm, 'nothing is left of the limit; raise --budget'));
      else {
        context.stderr.write(`${workload.name}, ${delegate ? 'delegated' : 'inline'}\n`);
        const own = fs.mkdtempSync(path.join(folder, 'run-'));
        runs.push(await runArm(context, arm, settings, { folder: own, maxCostUsd: fromPusd(left), signal }));
        fs.rmSync(own, { recursive: true, force: true });
      }
    }
  return runs;
}
