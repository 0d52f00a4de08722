// The file of `metis experiment`: tasks with a check, arms, and the money for all of it (21 §5).
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { z } from 'zod';
import { describeIssues } from '#core/policy/parsing/plain-issue.ts';
import { OWN_FILE } from '#core/policy/parsing/text-limits.ts';
import { readYaml } from '#core/policy/parsing/yaml.ts';
import { StartupError } from '#protocol/errors.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { ApprovalModeSchema, UsdLimitSchema } from '#protocol/scalars.ts';
import { acquireOwnerLock, type OwnerLock } from '#store/sqlite/connection/database-file.ts';

const MAX_RUNS = 1000;
const Model = z.string().min(1).max(200);
const ExperimentFileSchema = z
  .strictObject({
    tasks: z
      .array(
        z.strictObject({
          name: z.string().regex(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/, 'must be letters, digits, ".", "_" and "-"'),
          prompt: z.string().min(1).max(100_000),
          /** A folder of a git repository; relative to the file. */
          workspace: z.string().min(1),
          git_ref: z
            .string()
            .regex(/^[^-\s][^\s]{0,199}$/, 'must be a commit, branch or tag')
            .default('HEAD'),
          /** A command line; 0 = the task is solved. */
          check: z.string().min(1).max(10_000),
        }),
      )
      .min(1)
      .max(100),
    arms: z
      .array(
        z.strictObject({
          planner: Model,
          tiers: z.strictObject({ fast: Model, balanced: Model, deep: Model }).nullable().default(null),
          delegate: z.boolean().default(true),
        }),
      )
      .min(1)
      .max(20),
    repeat: z.int().min(1).max(100).default(1),
    max_cost_usd: UsdLimitSchema,
    parallel: z.int().min(1).max(16).default(1),
    approval_mode: ApprovalModeSchema.default('strict'),
  })
  .refine(({ tasks, arms, repeat }) => tasks.length * arms.length * repeat <= MAX_RUNS, {
    path: ['repeat'],
    message: `there are more than ${MAX_RUNS} runs`,
  })
  .refine(({ tasks }) => new Set(tasks.map(({ name }) => name)).size === tasks.length, {
    path: ['tasks'],
    message: 'two tasks have one name',
  });

export interface Experiment extends z.infer<typeof ExperimentFileSchema> {
  /** SHA-256 of the file. */
  readonly id: string;
}
export type ExperimentTask = Experiment['tasks'][number];
export type ExperimentArm = Experiment['arms'][number];

/** Workspaces are absolute. Errors: one line per problem. */
export function readExperiment(file: string): Result<Experiment, string[]> {
  let bytes: Buffer;
  try {
    bytes = fs.readFileSync(file);
  } catch (cause) {
    return err([`${file}: cannot be read (${(cause as NodeJS.ErrnoException).code})`]);
  }
  const yaml = readYaml(bytes.toString('utf8'), OWN_FILE);
  if (!yaml.ok) return err([`${file}: ${yaml.error}`]);
  const parsed = ExperimentFileSchema.safeParse(yaml.value);
  if (!parsed.success) {
    const issues = describeIssues(parsed.error, ExperimentFileSchema);
    return err(issues.map((issue) => `${file}: ${issue.path.join('.') || 'the file'}: ${issue.message}`));
  }
  const tasks = parsed.data.tasks.map((task) => ({
    ...task,
    workspace: path.resolve(path.dirname(file), task.workspace),
  }));
  const missing = tasks.filter(({ workspace }) => !fs.statSync(workspace, { throwIfNoEntry: false })?.isDirectory());
  if (missing.length > 0)
    return err(missing.map(({ name, workspace }) => `${file}: tasks: ${name}: ${workspace} is not a folder`));
  return ok({ ...parsed.data, tasks, id: createHash('sha256').update(bytes).digest('hex') });
}

const git = promisify(execFile);

/** The message is for the person who wrote the file. */
export class ExperimentFault extends Error {}

/**
 * A checkout of the task's workspace at its commit, of which each run works on a copy; an earlier one is used again, and
 * completed where a process was killed while it made it. Throws `ExperimentFault`.
 * @param folder of this task alone
 */
export async function openStart({ name, workspace, git_ref }: ExperimentTask, folder: string): Promise<string> {
  const askGit = async (place: string, ...args: string[]) => {
    try {
      return (await git('git', ['-C', place, ...args])).stdout.trim();
    } catch (error) {
      const { stderr = '' } = error as { readonly stderr?: string };
      throw new ExperimentFault(`task ${name}: ${stderr.trim().split('\n').at(-1) || 'git cannot be run'}`);
    }
  };
  const prefix = await askGit(workspace, 'rev-parse', '--show-prefix');
  let commit = git_ref;
  if (fs.existsSync(path.join(folder, '.git'))) {
    commit = await askGit(folder, 'rev-parse', 'HEAD').catch(() => git_ref);
    const isWhole = await askGit(folder, 'reset', '--quiet', '--hard', commit).then(
      () => true,
      () => false,
    );
    if (isWhole) return path.join(folder, prefix);
  }
  fs.rmSync(folder, { recursive: true, force: true });
  fs.mkdirSync(path.dirname(folder), { recursive: true });
  await askGit(workspace, 'worktree', 'prune');
  await askGit(workspace, 'worktree', 'add', '--detach', '--force', '--force', folder, commit);
  return path.join(folder, prefix);
}

/** Removes the checkout of a task, and with the last one the folder of the experiment. */
export async function closeStart({ workspace }: ExperimentTask, folder: string): Promise<void> {
  await git('git', ['-C', workspace, 'worktree', 'remove', '--force', folder]).catch(() => {});
  removeEmpty(path.dirname(folder));
}

function removeEmpty(folder: string): void {
  try {
    fs.rmdirSync(folder);
  } catch {
    // Another one lies in it.
  }
}

/**
 * Runs `body` while no other process runs the same experiment on this data folder. Throws `ExperimentFault`.
 * @param folder of the experiment
 */
export async function withExperiment<T>(folder: string, body: () => Promise<T>): Promise<T> {
  fs.mkdirSync(path.dirname(folder), { recursive: true });
  let lock: OwnerLock;
  try {
    lock = acquireOwnerLock(folder);
  } catch (error) {
    if (!(error instanceof StartupError)) throw error;
    throw new ExperimentFault('another process runs this experiment; its results are found by the same command');
  }
  try {
    return await body();
  } finally {
    fs.rmSync(`${folder}-owner`, { force: true });
    lock.release();
    removeEmpty(path.dirname(folder));
  }
}
