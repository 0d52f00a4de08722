// A workload of `metis benchmark`: a folder with a task, a workspace, a check, and what must hold (17 §6).
import fs from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import { OWN_FILE } from '#core/policy/parsing/limits.ts';
import { plainIssues } from '#core/policy/parsing/plain-issue.ts';
import { readYaml } from '#core/policy/parsing/yaml.ts';
import { err, ok, type Result } from '#protocol/result.ts';

const FILE = 'workload.yaml';

const WorkloadSchema = z.strictObject({
  /** The one message of the planner's turn. */
  prompt: z.string().min(1),
  /** Folder that each run gets a copy of; relative to the workload's. */
  workspace: z.string().min(1).default('workspace'),
  /** Shell command in the copy after the turn; 0 = the task is done. */
  check: z.string().min(1),
  /** What scripted models answer. */
  scenario: z.string().min(1).optional(),
  expect: z
    .strictObject({
      /** Workers that the delegated run must start at least. */
      min_delegate_calls: z.int().min(0).default(0),
    })
    .default({ min_delegate_calls: 0 }),
});

export interface Workload extends Omit<z.infer<typeof WorkloadSchema>, 'scenario'> {
  readonly name: string;
  /** Absolute, as is `scenario`; null = it has none. */
  readonly workspace: string;
  readonly scenario: string | null;
}

/**
 * The workload that the folder is, else those of its sub-folders by name.
 * @returns at least one, or one line per problem
 */
export function readWorkloads(folder: string): Result<Workload[], string[]> {
  let folders: string[];
  try {
    folders = fs.existsSync(path.join(folder, FILE))
      ? [folder]
      : fs
          .readdirSync(folder)
          .sort()
          .map((name) => path.join(folder, name))
          .filter((below) => fs.existsSync(path.join(below, FILE)));
  } catch (cause) {
    return err([`${folder}: the folder cannot be read (${(cause as NodeJS.ErrnoException).code})`]);
  }
  if (folders.length === 0) return err([`${folder}: neither it nor a folder in it has a ${FILE}`]);
  const workloads: Workload[] = [];
  const problems: string[] = [];
  for (const each of folders) {
    const read = readWorkload(each);
    if (read.ok) workloads.push(read.value);
    else problems.push(...read.error);
  }
  return problems.length === 0 ? ok(workloads) : err(problems);
}

function readWorkload(folder: string): Result<Workload, string[]> {
  const file = path.join(folder, FILE);
  let text: string;
  try {
    text = fs.readFileSync(file, 'utf8');
  } catch (cause) {
    return err([`${file}: cannot be read (${(cause as NodeJS.ErrnoException).code})`]);
  }
  const yaml = readYaml(text, OWN_FILE);
  if (!yaml.ok) return err([`${file}: ${yaml.error}`]);
  const parsed = WorkloadSchema.safeParse(yaml.value);
  if (!parsed.success) {
    const issues = plainIssues(parsed.error, WorkloadSchema);
    return err(issues.map((issue) => `${file}: ${issue.path.join('.') || 'the file'}: ${issue.message}`));
  }
  const { scenario, ...data } = parsed.data;
  const workspace = path.resolve(folder, data.workspace);
  if (!fs.statSync(workspace, { throwIfNoEntry: false })?.isDirectory())
    return err([`${file}: workspace: ${workspace} is not a folder`]);
  const name = path.basename(folder);
  return ok({ ...data, name, workspace, scenario: scenario === undefined ? null : path.resolve(folder, scenario) });
}
