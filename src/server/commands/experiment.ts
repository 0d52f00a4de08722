// `metis experiment`: every arm on every task under one limit, and which arm to choose (21 §5).
import path from 'node:path';
import { toJsonLine, toPrintable } from '#cli/printable-text.ts';
import {
  type Column,
  createTerminalStyle,
  formatDollars,
  getTableWidth,
  layOutTable,
  printMessage,
  type Style,
  wrapWords,
} from '#cli/terminal.ts';
import { createMetisClient, type Session } from '#client/client.ts';
import { ApiError } from '#client/request.ts';
import { type ArmResult, type Choice, chooseArm, sumUpArms } from '#core/policy/experiment/compare-arms.ts';
import { fromPusd, fromPusdOrNull, toPusd, type Usd } from '#protocol/money.ts';
import { shellEnvironment } from '#tools/sandbox/command.ts';
import type { ConfigFlags } from '../config.ts';
import { type CommandContext, loadSettings, refuse } from '../context.ts';
import {
  closeStart,
  type Experiment,
  type ExperimentArm,
  ExperimentFault,
  type ExperimentTask,
  openStart,
  readExperiment,
  withExperiment,
} from './experiment-file.ts';
import { openRun, type Run, type RunOutcome, type RunWorld, runOnce } from './experiment-run.ts';
import { withServerOf } from './run-command.ts';

export interface ExperimentFlags extends ConfigFlags {
  readonly json?: boolean;
}

const INTERRUPTED = 130;

interface Finished extends RunOutcome {
  readonly run: Run;
}

/** Exit code: 0 when every run passed or failed by its check, 1 when one was not run or the server refused, 130 interrupted. */
export async function experiment(context: CommandContext, flags: ExperimentFlags, file: string): Promise<number> {
  const read = readExperiment(path.resolve(context.cwd, file));
  if (!read.ok) return refuse(context, read.error);
  const settings = loadSettings(context, flags);
  if (!settings.ok) return refuse(context, settings.error);
  const { config, dataDir } = settings.value;
  const stopped = new AbortController();
  void Promise.race([context.stopSignal(), context.outputClosed]).then(() => stopped.abort());
  const { signal } = stopped;
  const given = read.value;
  const own = { approve: given.approval_mode === 'approve_all', leave: signal };
  const run = withServerOf(context, flags, own, async (server) => {
    const env = shellEnvironment(context.env, config.tools.shell.env_passthrough);
    const world: RunWorld = { client: createMetisClient(server), shell: config.tools.shell, env, signal };
    const folder = path.join(dataDir, 'experiments', given.id.slice(0, 16));
    try {
      const printLine = (line: string) => context.stderr.write(`${line}\n`);
      const finished = await withExperiment(folder, () => runAll(world, given, folder, printLine));
      const style = createTerminalStyle(context);
      context.stdout.write(
        flags.json
          ? toJsonLine(describe(given, finished))
          : writeReport(given, finished, style, getTableWidth(context)),
      );
      return finished.every(({ result }) => result !== 'not_run') ? 0 : 1;
    } catch (error) {
      if (signal.aborted) {
        printMessage(context.stderr, 'interrupted; the same command goes on where it was');
        return INTERRUPTED;
      }
      if (error instanceof ApiError || error instanceof ExperimentFault) return refuse(context, [error.message]);
      throw error;
    }
  });
  return run.catch((error: unknown) => {
    if (signal.aborted) return INTERRUPTED;
    throw error;
  });
}

/** The checkouts are removed once all runs have ended, and where the file turns out to be wrong. */
async function runAll(
  world: RunWorld,
  given: Experiment,
  folder: string,
  report: (line: string) => void,
): Promise<readonly Finished[]> {
  const folderOf = (name: string) => path.join(folder, name);
  const closeStarts = async () => {
    for (const task of given.tasks) await closeStart(task, folderOf(task.name));
  };
  const starts = new Map<string, Promise<string>>();
  const findStart = (task: ExperimentTask): Promise<string> => {
    const known = starts.get(task.name) ?? openStart(task, folderOf(task.name));
    starts.set(task.name, known);
    return known;
  };
  try {
    for (const task of given.tasks) await findStart(task);
    await openArms(world, given, await findStart(given.tasks[0]!));
    const finished = await runLanes(world, given, { findStart, report });
    await closeStarts();
    return finished;
  } catch (error) {
    if (error instanceof ExperimentFault) await closeStarts();
    throw error;
  }
}

/** Opens the first run of each arm, so that an arm which cannot run is known before any other is paid. */
async function openArms(world: RunWorld, given: Experiment, start: string): Promise<void> {
  const task = given.tasks[0]!;
  const opened: Session[] = [];
  for (const [index, arm] of given.arms.entries()) {
    try {
      opened.push(await openRun(world, given, { task, arm, place: { task: 0, arm: index, repetition: 0 } }, start));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      for (const { id, turn_count } of opened)
        if (turn_count === 0) await world.client.endSession(id, { purge: true }).catch(() => {});
      throw new ExperimentFault(`arms.${index}: ${error.message}`);
    }
  }
}

/** Runs side by side, in the order of the file. */
async function runLanes(
  world: RunWorld,
  given: Experiment,
  {
    findStart,
    report,
  }: { readonly findStart: (task: ExperimentTask) => Promise<string>; readonly report: (line: string) => void },
): Promise<readonly Finished[]> {
  const waiting = listRuns(given);
  const finished: Finished[] = [];
  const runLane = async () => {
    for (let run = waiting.shift(); run !== undefined; run = waiting.shift()) {
      world.signal.throwIfAborted();
      const outcome = await runOnce(world, given, run, await findStart(run.task));
      finished.push({ ...outcome, run });
      const reason = outcome.reason === null ? '' : `: ${outcome.reason}`;
      report(toPrintable(`${nameRun(run)}: ${RESULTS[outcome.result]}${reason}`));
    }
  };
  const lanes = Array.from({ length: given.parallel }, runLane);
  const ends = await Promise.allSettled(lanes);
  for (const end of ends) if (end.status === 'rejected') throw end.reason;
  const listPlace = ({ run }: Finished) => [run.place.task, run.place.arm, run.place.repetition];
  return finished.sort((a, b) => compareLists(listPlace(a), listPlace(b)));
}

function compareLists(a: readonly number[], b: readonly number[]): number {
  for (const [i, one] of a.entries()) if (one !== b[i]) return one - b[i]!;
  return 0;
}

function listRuns({ tasks, arms, repeat }: Experiment): Run[] {
  return Array.from({ length: repeat }, (_, repetition) => repetition).flatMap((repetition) =>
    tasks.flatMap((task, t) => arms.map((arm, a) => ({ task, arm, place: { task: t, arm: a, repetition } }))),
  );
}

const RESULTS = { passed: 'passed', failed: 'failed', not_run: 'not run' } as const;

function nameArm({ planner, tiers, delegate }: ExperimentArm): string {
  if (!delegate) return `${planner} alone`;
  return tiers === null ? planner : `${planner}, workers ${[...new Set(Object.values(tiers))].join('/')}`;
}

function nameRun({ task, arm, place }: Run): string {
  return `${task.name}, ${nameArm(arm)}, run ${place.repetition + 1}`;
}

const COLUMNS: readonly Column[] = [
  { title: 'arm', least: 16 },
  { title: 'passed', align: 'right' },
  { title: '95 % interval', align: 'right' },
  { title: 'per solved task', align: 'right' },
  { title: 'seconds', align: 'right', drop: 1 },
  { title: 'not run', align: 'right', drop: 2 },
];

function summarise(given: Experiment, finished: readonly Finished[]) {
  const runs = finished.map(({ run, result, cost_usd, seconds }) => ({
    arm: run.place.arm,
    result,
    cost_pusd: toPusd(cost_usd as Usd),
    seconds,
  }));
  const results = sumUpArms(runs, given.arms.length);
  const choice = chooseArm(
    results,
    given.arms.map(({ delegate }) => delegate),
  );
  const spent = finished.reduce((sum, { cost_usd }) => sum + toPusd(cost_usd as Usd), 0n);
  return { results, choice, spent_usd: fromPusd(spent) };
}

function describe(given: Experiment, finished: readonly Finished[]) {
  const { results, choice, spent_usd } = summarise(given, finished);
  return {
    id: given.id,
    max_cost_usd: given.max_cost_usd,
    spent_usd,
    runs: finished.map(({ run, ...outcome }) => ({ task: run.task.name, arm: run.place.arm, ...outcome })),
    arms: results.map(({ cost_pusd, cost_per_solved_pusd, ...result }) => ({
      ...given.arms[result.arm],
      ...result,
      cost_usd: fromPusd(cost_pusd),
      cost_per_solved_usd: fromPusdOrNull(cost_per_solved_pusd),
    })),
    choice,
  };
}

/** The table and the sentences under it; the last line states whether delegating pays. */
function writeReport(given: Experiment, finished: readonly Finished[], style: Style, width: number): string {
  const { results, choice, spent_usd } = summarise(given, finished);
  const [header, ...lines] = layOutTable(
    COLUMNS,
    results.map((result) => composeArmCells(given.arms[result.arm]!, result)),
    width,
  );
  const simulated = finished.some(({ is_simulated }) => is_simulated) ? ', simulated, at example prices' : '';
  const spent = `${formatDollars(spent_usd)} of ${formatDollars(given.max_cost_usd)} spent${simulated}.`;
  const notRun = finished.filter(({ result }) => result === 'not_run');
  const cut = notRun.length === 0 ? [] : [`${notRun.length} not run: the limit cut them, or left nothing for them.`];
  const sentences = [spent, ...cut, ...describeChoice(given, results, choice)];
  const wrapped = sentences.flatMap((sentence) => wrapWords(toPrintable(sentence), width - 1));
  return [style.bold(header!), ...lines, '', ...wrapped, ''].join('\n');
}

function composeArmCells(arm: ExperimentArm, result: ArmResult): string[] {
  const { runs, passed, interval, cost_per_solved_pusd: cost, seconds, not_run } = result;
  return [
    nameArm(arm),
    runs === 0 ? '-' : `${passed} of ${runs}`,
    runs === 0 ? '-' : `${percent(interval.low)} to ${percent(interval.high)}`,
    cost === null ? '-' : formatDollars(fromPusd(cost)),
    seconds === null ? '-' : seconds.toFixed(1),
    String(not_run),
  ];
}

function describeChoice({ arms }: Experiment, results: readonly ArmResult[], choice: Choice | null): readonly string[] {
  if (choice === null) return ['No task was solved.'];
  // Nothing to compare with.
  if (results.filter(({ runs }) => runs > 0).length < 2) return [];
  const { low, high } = choice.difference;
  const name = nameArm(arms[choice.arm]!);
  const points = `${(low * 100).toFixed(0)} to ${(high * 100).toFixed(0)} points`;
  return [
    `Cheapest within 5 points of the best: ${name}. Difference to the best other arm, 95 %: ${points}.`,
    ...(choice.is_sure ? [] : ['n is too small to be sure']),
    ...(choice.delegation === null ? [] : [VERDICTS[choice.delegation]]),
  ];
}

const VERDICTS = { pays: 'delegating pays here', does_not_pay: 'delegating does not pay here' } as const;

function percent(share: number): string {
  return `${(share * 100).toFixed(0)} %`;
}
