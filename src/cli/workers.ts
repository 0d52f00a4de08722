// `metis workers`: the named workers of a workspace, one of them, and everything that is wrong with any (17 §2).
import fs from 'node:fs';
import path from 'node:path';
import { createMetisClient, type WorkerInfo } from '#client/client.ts';
import type { ServerAddress } from '#client/request.ts';
import { jsonLine, printable, printableText } from './style.ts';
import { type Column, tableLines } from './table.ts';
import { askServer, type ServerFlags, styleOf, type Terminal, widthOf } from './terminal.ts';

const PAGE = 200;
const AGENT_FOLDERS = ['.', 'workers', '.metis/workers', 'agents'];
const MAX_AGENT_FILES = 5;
const COLUMNS: readonly Column[] = [
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
    const workers = await allWorkers(terminal, server, flags);
    if (flags.json) for (const worker of workers) stdout.write(jsonLine(worker));
    else if (workers.length === 0) stdout.write('no workers\n');
    else {
      const style = styleOf(terminal);
      const [header, rule, ...rows] = tableLines(COLUMNS, workers.map(cells), widthOf(terminal));
      stdout.write(`${[style.bold(header!), style.dim(rule!), ...rows].join('\n')}\n`);
    }
    reportAgentFiles(terminal, flags);
    return 0;
  });
}

/** Exit code: 1 when there is no such worker, it cannot be called, or the server could not say. */
export async function showWorker(
  terminal: Terminal,
  server: ServerAddress,
  name: string,
  flags: WorkersFlags,
): Promise<number> {
  const { stdout } = terminal;
  return askServer(terminal, server, async () => {
    const worker = await createMetisClient(server).getWorkerDefinition(name, { workspace_path: root(terminal, flags) });
    const exit = worker.valid ? 0 : 1;
    if (flags.json) {
      stdout.write(jsonLine(worker));
      return exit;
    }
    const { path: file, instructions_source: source } = worker;
    stdout.write(`# ${printable(file ?? 'a worker of a session')}, ${stateOf(worker)}\n`);
    for (const line of problemLines(terminal, worker)) stdout.write(`${line}\n`);
    if (worker.yaml !== null) stdout.write(text(worker.yaml));
    if (source !== null && source !== 'inline')
      stdout.write(`\n# instructions from ${printable(source)}\n${text(worker.resolved_instructions ?? '')}`);
    return exit;
  });
}

/** Every problem of every definition. Exit code: 1 when one of them is an error, or nobody could say. */
export async function checkWorkers(terminal: Terminal, server: ServerAddress, flags: WorkersFlags): Promise<number> {
  const { stdout } = terminal;
  return askServer(terminal, server, async () => {
    const workers = await allWorkers(terminal, server, flags);
    if (flags.json) {
      const told = workers.map(({ name, path, valid, errors, warnings }) => ({ name, path, valid, errors, warnings }));
      for (const worker of told) stdout.write(jsonLine(worker));
    } else {
      const style = styleOf(terminal);
      for (const worker of workers) {
        for (const line of problemLines(terminal, worker)) stdout.write(`${line}\n`);
        if (worker.valid) stdout.write(`${style.green('ok')}       ${printable(worker.path ?? worker.name)}\n`);
      }
      if (workers.length === 0) stdout.write('no workers\n');
    }
    reportAgentFiles(terminal, flags);
    return workers.every(({ valid }) => valid) ? 0 : 1;
  });
}

/** Files of another program, which look like workers to a person. */
function reportAgentFiles(terminal: Terminal, flags: WorkersFlags): void {
  const found = AGENT_FOLDERS.flatMap((folder) => agentFiles(path.join(root(terminal, flags), folder), folder));
  if (found.length === 0) return;
  const named = found.slice(0, MAX_AGENT_FILES).map(printable).join(', ');
  const more = found.length > MAX_AGENT_FILES ? ` and ${found.length - MAX_AGENT_FILES} more` : '';
  terminal.stderr.write(
    `metis: .agent files are another program's format and are not read: ${named}${more}; write workers/NAME.yaml instead\n`,
  );
}

function agentFiles(folder: string, name: string): string[] {
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

async function allWorkers(terminal: Terminal, server: ServerAddress, flags: WorkersFlags): Promise<WorkerInfo[]> {
  const client = createMetisClient(server);
  const workers: WorkerInfo[] = [];
  let cursor: string | null = null;
  do {
    const query = { workspace_path: root(terminal, flags), limit: PAGE, cursor: cursor ?? undefined };
    const page = await client.listWorkerDefinitions(query);
    workers.push(...page.workers);
    cursor = page.next_cursor;
  } while (cursor !== null);
  return workers;
}

function root({ cwd }: Terminal, { workspace }: WorkersFlags): string {
  return path.resolve(cwd, workspace ?? '.');
}

function cells(worker: WorkerInfo): string[] {
  const { name, model, tier, sandboxes, tools, description } = worker;
  const touches = [...sandboxes.map((sandbox) => `${sandbox.name}:${sandbox.mode}`), ...tools];
  return [name, stateOf(worker), model ?? tier ?? '', touches.join(' '), description ?? ''];
}

function stateOf({ valid, locked }: WorkerInfo): string {
  if (!valid) return 'invalid';
  return locked ? 'locked' : 'ok';
}

function problemLines(terminal: Terminal, { path: file, name, errors, warnings }: WorkerInfo): string[] {
  const style = styleOf(terminal);
  const line = (problem: WorkerInfo['errors'][number]) => {
    const place = `${problem.file ?? file ?? name}${problem.line === null ? '' : `:${problem.line}`}`;
    return printable(`${place}: ${problem.path === '' ? '' : `${problem.path}: `}${problem.message}`);
  };
  return [
    ...errors.map((problem) => `${style.red('error')}    ${line(problem)}`),
    ...warnings.map((problem) => `${style.yellow('warning')}  ${line(problem)}`),
  ];
}

/** Whole lines. */
function text(given: string): string {
  return `${printableText(given.trimEnd())}\n`;
}
