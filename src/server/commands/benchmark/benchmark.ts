// `metis benchmark`: each workload once with delegation and once by the planner alone, and what both cost (17 §6).
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { toJsonLine } from '#cli/style.ts';
import { createTerminalStyle, getTableWidth } from '#cli/terminal.ts';
import { ApiError } from '#client/request.ts';
import { StartupError } from '#protocol/errors.ts';
import { fromPusd, sumPusd, toPusd } from '#protocol/money.ts';
import type { ConfigFlags } from '#server/config.ts';
import { type CommandContext, refuse } from '#server/context.ts';
import { type Policy, parsePolicy } from './policy.ts';
import { createBenchmark, writeBenchmark } from './report.ts';
import { createSkippedRun, type RunResult, runArm } from './run.ts';
import { type BenchmarkSettings, readModels } from './server.ts';
import { readWorkloads, type Workload } from './workload.ts';

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
    const text = flags.json
      ? toJsonLine(result)
      : writeBenchmark(result, createTerminalStyle(context), getTableWidth(context));
    context.stdout.write(text);
    if (stopped.signal.aborted) return 130;
    return runs.every((run) => run.result === 'passed') ? 0 : 1;
  } catch (error) {
    if (error instanceof ApiError) return refuse(context, [error.message]);
    if (error instanceof StartupError) return refuse(context, error.problems);
    throw error;
  } finally {
    keepClean();
    remove();
  }
}

/** What can be said before a run starts. */
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

/** One after the other, so that the rest of the limit is known before each. */
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
