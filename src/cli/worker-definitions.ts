// `metis workers`: the named workers of a workspace, one of them, and everything that is wrong with any (17 §2).
import fs from 'node:fs';
import path from 'node:path';
import { createMetisClient, type WorkerInfo } from '#client/client.ts';
import type { ServerAddress } from '#client/request.ts';
import { toJsonLine, toPrintable, toPrintableText } from './printable-text.ts';
import {
  askServer,
  type Column,
  createTerminalStyle,
  getTableWidth,
  layOutTable,
  type ServerFlags,
  type Terminal,
} from './terminal.ts';

const WORKERS_PAGE = 200;
const AGENT_FOLDERS = ['.', 'workers', '.metis/workers', 'agents'];
const MAX_AGENT_FILES = 5;
const WORKER_COLUMNS: readonly Column[] = [
  { title: 'worker', whole: true },
  { title: 'state' },
  { title: 'model' },
  { title: 'may touch' },
  { title: 'description' },
];

export interface WorkersFlags extends Pick<ServerFlags, 'json'> {
  readonly workspace?: string;
}

/** Exit code: 0 also when there is none, 1 when the server could not say. With `json`, a worker a line. */
export async function listWorkers(terminal: Terminal, server: ServerAddress, flags: WorkersFlags): Promise<number> {
  const { stdout } = terminal;
  return askServer(terminal, server, async () => {
    const workers = await listAllWorkers(terminal, server, flags);
    if (flags.json) for (const worker of workers) stdout.write(toJsonLine(worker));
    else if (workers.length === 0) stdout.write('no workers\n');
    else {
      const style = createTerminalStyle(terminal);
      const [header, rule, ...rows] = layOutTable(
        WORKER_COLUMNS,
        workers.map(composeWorkerCells),
        getTableWidth(terminal),
      );
      stdout.write(`${[style.bold(header!), style.dim(rule!), ...rows].join('\n')}\n`);
    }
    reportAgentFiles(terminal, flags);
    return 0;
  });
}

/** Exit code: 1 when there is no such worker, it cannot be called, or the server could not say. */
export async function printWorker(
  terminal: Terminal,
  server: ServerAddress,
  name: string,
  flags: WorkersFlags,
): Promise<number> {
  const { stdout } = terminal;
  return askServer(terminal, server, async () => {
    const worker = await createMetisClient(server).getWorkerDefinition(name, {
      workspace_path: resolveWorkspace(terminal, flags),
    });
    const exit = Number(!worker.valid);
    if (flags.json) {
      stdout.write(toJsonLine(worker));
      return exit;
    }
    const { path: file, instructions_source: source } = worker;
    stdout.write(`# ${toPrintable(file ?? 'a worker of a session')}, ${describeState(worker)}\n`);
    for (const line of formatProblems(terminal, worker)) stdout.write(`${line}\n`);
    if (worker.yaml !== null) stdout.write(toLines(worker.yaml));
    if (source !== null && source !== 'inline')
      stdout.write(`\n# instructions from ${toPrintable(source)}\n${toLines(worker.resolved_instructions ?? '')}`);
    return exit;
  });
}

/** Every problem of every definition. Exit code: 1 when one of them is an error, or the server did not answer. */
export async function checkWorkers(terminal: Terminal, server: ServerAddress, flags: WorkersFlags): Promise<number> {
  const { stdout } = terminal;
  return askServer(terminal, server, async () => {
    const workers = await listAllWorkers(terminal, server, flags);
    if (flags.json) {
      const lines = workers.map(({ name, path, valid, errors, warnings }) => ({ name, path, valid, errors, warnings }));
      for (const worker of lines) stdout.write(toJsonLine(worker));
    } else {
      const style = createTerminalStyle(terminal);
      for (const worker of workers) {
        for (const line of formatProblems(terminal, worker)) stdout.write(`${line}\n`);
        if (worker.valid) stdout.write(`${style.green('ok')}       ${toPrintable(worker.path ?? worker.name)}\n`);
      }
      if (workers.length === 0) stdout.write('no workers\n');
    }
    reportAgentFiles(terminal, flags);
    if (workers.every(({ valid }) => valid)) return 0;
    return 1;
  });
}

/** Files of another program, which look like workers to a person. */
function reportAgentFiles(terminal: Terminal, flags: WorkersFlags): void {
  const found = AGENT_FOLDERS.flatMap((folder) =>
    listAgentFiles(path.join(resolveWorkspace(terminal, flags), folder), folder),
  );
  if (found.length === 0) return;
  const named = found.slice(0, MAX_AGENT_FILES).map(toPrintable);
  const rest = found.length - named.length;
  if (rest > 0) named.push(`and ${rest} more`);
  terminal.stderr.write(
    `metis: .agent files are another program's format and are not read: ${named.join(', ')}; write workers/NAME.yaml instead\n`,
  );
}

function listAgentFiles(folder: string, name: string): string[] {
  try {
    return fs
      .readdirSync(folder)
      .filter((file) => file.endsWith('.agent'))
      .sort()
      .map((file) => path.join(name, file));
  } catch {
    // The folder is not there, or the server's workspace is on another machine.
    return [];
  }
}

async function listAllWorkers(terminal: Terminal, server: ServerAddress, flags: WorkersFlags): Promise<WorkerInfo[]> {
  const client = createMetisClient(server);
  const workers: WorkerInfo[] = [];
  let cursor: string | null = null;
  do {
    const query = {
      workspace_path: resolveWorkspace(terminal, flags),
      limit: WORKERS_PAGE,
      cursor: cursor ?? undefined,
    };
    const page = await client.listWorkerDefinitions(query);
    workers.push(...page.workers);
    cursor = page.next_cursor;
  } while (cursor !== null);
  return workers;
}

function resolveWorkspace({ cwd }: Terminal, { workspace }: WorkersFlags): string {
  return path.resolve(cwd, workspace ?? '.');
}

function composeWorkerCells(worker: WorkerInfo): string[] {
  const { name, model, tier, sandboxes, tools, description } = worker;
  const touches = [...sandboxes.map((sandbox) => `${sandbox.name}:${sandbox.mode}`), ...tools];
  return [name, describeState(worker), model ?? tier ?? '', touches.join(' '), description ?? ''];
}

function describeState({ valid, locked }: WorkerInfo): string {
  if (!valid) return 'invalid';
  if (locked) return 'locked';
  return 'ok';
}

function formatProblems(terminal: Terminal, { path: file, name, errors, warnings }: WorkerInfo): string[] {
  const style = createTerminalStyle(terminal);
  const formatProblem = (problem: WorkerInfo['errors'][number]) => {
    const place = [problem.file ?? file ?? name];
    if (problem.line !== null) place.push(String(problem.line));
    const parts = [place.join(':'), problem.path, problem.message];
    return toPrintable(parts.filter((part) => part !== '').join(': '));
  };
  return [
    ...errors.map((problem) => `${style.red('error')}    ${formatProblem(problem)}`),
    ...warnings.map((problem) => `${style.yellow('warning')}  ${formatProblem(problem)}`),
  ];
}

/** Whole lines. */
function toLines(given: string): string {
  return `${toPrintableText(given.trimEnd())}\n`;
}
