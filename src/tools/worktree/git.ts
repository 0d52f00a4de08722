// Runs git: without the variables, hooks, filters and questions that could make it run or ask something (20 §2.1).
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { WorktreeError, type Worktrees } from '#core/ports/worktrees.ts';

/** Of one git command. */
const TIMEOUT_MS = 120_000;
const MAX_OUTPUT_BYTES = 64 * 1024 * 1024;
const MAX_ERROR_BYTES = 4096;
/** A killed process may take so long to end. */
const STRAY_LOOKS = 500;
const STRAY_PAUSE_MS = 10;

export interface GitCall {
  readonly args: readonly string[];
  readonly cwd: string;
  /** Beside the cleaned environment. */
  readonly env?: Readonly<Record<string, string>>;
  readonly input?: Buffer;
  /** Exit codes that are answers; default: 0 alone. */
  readonly codes?: readonly number[];
  /** More output ends the command: as an error, or with what there is where `cut` is set. */
  readonly maxBytes?: number;
  readonly cut?: boolean;
}

export interface GitAnswer {
  readonly code: number;
  readonly out: Buffer;
}

export type Git = (call: GitCall) => Promise<GitAnswer>;

/** Before every command: nothing of the repository's configuration may start a program. */
const SAFE = [
  ...['-c', 'core.hooksPath=/dev/null', '-c', 'core.fsmonitor=false', '-c', 'core.logAllRefUpdates=false'],
  ...['-c', 'gc.auto=0', '-c', 'maintenance.auto=false', '-c', 'core.pager=cat', '-c', 'protocol.allow=never'],
];

/** The variables by which commands of a killed server are found: the folder of its worktrees, and itself. */
const HOME_MARKER = 'METIS_WORKTREES';
const SERVER_MARKER = 'METIS_WORKTREES_OF';

/**
 * @param env the server's environment, of which git gets its programs' and the user's folders
 * @param home the folder of the server's worktrees
 */
export function createGit(env: Readonly<Record<string, string | undefined>>, home = ''): Git {
  const base: Record<string, string> = {
    LC_ALL: 'C',
    GIT_TERMINAL_PROMPT: '0',
    GIT_OPTIONAL_LOCKS: '0',
    GIT_NO_REPLACE_OBJECTS: '1',
    GIT_NO_LAZY_FETCH: '1',
    GIT_ALLOW_PROTOCOL: '',
    GIT_LITERAL_PATHSPECS: '1',
    GIT_EDITOR: 'false',
  };
  for (const name of ['PATH', 'HOME', 'XDG_CONFIG_HOME']) if (env[name] !== undefined) base[name] = env[name];
  const self = readStart(process.pid).then((start) => `${process.pid}.${start ?? ''}`);
  return async (call) => runGit(call, { ...base, [HOME_MARKER]: home, [SERVER_MARKER]: await self, ...call.env });
}

/** When a process started, in the kernel's ticks; null = it does not run, or the system has no `/proc`. */
async function readStart(pid: number | string): Promise<string | null> {
  const stat = await readFile(`/proc/${pid}/stat`, 'latin1').catch(() => null);
  // The second field is a name with any characters; what is dead and not yet waited for has state Z.
  const fields = stat?.slice(stat.lastIndexOf(')') + 2).split(' ') ?? [];
  return fields[0] === 'Z' ? null : (fields[19] ?? null);
}

/**
 * Kills git commands for the worktrees in this folder whose server does not run any more, and waits until they are gone, at
 * most 5 s. They are found in `/proc`, so on Linux and on this machine alone. Returns their number.
 */
export async function killStray(home: string): Promise<number> {
  const found: string[] = [];
  for (const pid of await readdir('/proc').catch(() => [])) {
    if (!/^\d+$/.test(pid)) continue;
    const entries = (await readFile(`/proc/${pid}/environ`, 'latin1').catch(() => '')).split('\0');
    if (!entries.includes(`${HOME_MARKER}=${byteName(home)}`)) continue;
    const server = entries.find((entry) => entry.startsWith(`${SERVER_MARKER}=`))?.slice(SERVER_MARKER.length + 1);
    const [owner = '', start] = server?.split('.') ?? [];
    if (!/^\d+$/.test(owner) || !start || (await readStart(owner)) === start) continue;
    found.push(pid);
    try {
      process.kill(Number(pid), 'SIGKILL');
    } catch {
      // It has ended, or is another user's.
    }
  }
  for (let look = 0; found.length > 0 && look < STRAY_LOOKS; look++) {
    const running = await Promise.all(found.map(readStart));
    if (running.every((start) => start === null)) break;
    await new Promise((resolve) => setTimeout(resolve, STRAY_PAUSE_MS));
  }
  return found.length;
}

function runGit(call: GitCall, env: Readonly<Record<string, string>>): Promise<GitAnswer> {
  const { args, cwd, input, codes = [0], maxBytes = MAX_OUTPUT_BYTES, cut = false } = call;
  return new Promise((resolve, reject) => {
    const rejectCall = (problem: string) => reject(new WorktreeError(`git ${findCommand(args)} ${problem}`));
    const child = spawn('git', [...SAFE, ...args], { cwd, env, stdio: ['pipe', 'pipe', 'pipe'] });
    // The `timeout` of `spawn` would keep the process running where git is not installed.
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      child.kill('SIGTERM');
    }, TIMEOUT_MS);
    const parts: Buffer[] = [];
    const errors: Buffer[] = [];
    let size = 0;
    let errorSize = 0;
    let isFull = false;
    child.once('error', (error: NodeJS.ErrnoException) => {
      clearTimeout(timer);
      if (error.code !== 'ENOENT') rejectCall(`cannot be started: ${error.code ?? error.message}`);
      // A folder that is gone and a program that is missing are the same error.
      else if (existsSync(cwd)) reject(new WorktreeError('git is not installed'));
      else reject(new WorktreeError(`the folder ${cwd} does not exist`));
    });
    child.stdout.on('data', (data: Buffer) => {
      size += data.length;
      if (!isFull) parts.push(data);
      if (size <= maxBytes || isFull) return;
      isFull = true;
      child.kill('SIGKILL');
    });
    child.stderr.on('data', (data: Buffer) => {
      if (errorSize < MAX_ERROR_BYTES) errors.push(data);
      errorSize += data.length;
    });
    child.once('close', (code, signal) => {
      clearTimeout(timer);
      const out = Buffer.concat(parts);
      if (isFull && cut) resolve({ code: 0, out: out.subarray(0, maxBytes) });
      else if (isFull) rejectCall(`printed more than ${maxBytes} bytes`);
      else if (code !== null && codes.includes(code)) resolve({ code, out });
      else if (isLate) rejectCall(`was stopped after ${TIMEOUT_MS / 1000} s`);
      else if (signal !== null) rejectCall(`was stopped by ${signal}`);
      else rejectCall(`failed: ${describeExit(Buffer.concat(errors), code)}`);
    });
    // A command that ends early closes its input; its exit code is the answer.
    child.stdin.on('error', () => {});
    child.stdin.end(input);
  });
}

/** The first word that is no option. */
function findCommand(args: readonly string[]): string {
  return args.find((arg) => !arg.startsWith('-')) ?? '';
}

function describeExit(stderr: Buffer, code: number | null): string {
  const lines = stderr.toString('utf8', 0, MAX_ERROR_BYTES).split('\n').filter(Boolean);
  const line = lines.find((text) => text.startsWith('fatal:') || text.startsWith('error:')) ?? lines[0];
  return line?.replace(/^(fatal|error): /, '').slice(0, 300) ?? `exit code ${code}`;
}

/** Waits for all of them, also where one fails, so that no command outlives its caller. Throws the first failure in this order. */
export async function awaitAll<T extends readonly unknown[]>(work: { [K in keyof T]: Promise<T[K]> }): Promise<T> {
  await Promise.allSettled(work);
  return (await Promise.all(work)) as unknown as T;
}

/** Whether a call of the system failed: a full disk, a folder that is gone or may not be written. */
export function isSystemError(error: unknown): error is Error & { readonly code: string; readonly syscall: string } {
  return error instanceof Error && 'syscall' in error && 'code' in error && typeof error.code === 'string';
}

/** Throws errors of the system as `WorktreeError`: a folder that is gone, a full disk. */
export function explainErrors(worktrees: Worktrees): Worktrees {
  const wrapCall = <A extends readonly unknown[], T>(what: string, act: (...args: A) => Promise<T>) => {
    return (...args: A) => explainFailure(what, () => act(...args));
  };
  const { recordResult, findLeftMarkers, openCheckFolder, merge, mergeAll, write, comparePaths } = worktrees;
  return {
    ...worktrees,
    recordResult: wrapCall('the result cannot be recorded', recordResult),
    findLeftMarkers: wrapCall('the result cannot be read', findLeftMarkers),
    openCheckFolder: wrapCall('the folder of the check cannot be made', openCheckFolder),
    merge: wrapCall('the result cannot be merged', merge),
    mergeAll: wrapCall('the results cannot be merged', mergeAll),
    write: wrapCall('the merge cannot be written', write),
    comparePaths: wrapCall('the trees cannot be compared', comparePaths),
    diff: wrapCall('the changes cannot be read', worktrees.diff),
    readTexts: wrapCall('the changes cannot be read', worktrees.readTexts),
  };
}

export async function explainFailure<T>(what: string, act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    if (!isSystemError(error)) throw error;
    throw new WorktreeError(`${what}: ${error.code} (${error.syscall})`);
  }
}

/** Names as git separates them by NUL, each as a string of its bytes. */
export function unpackNames(out: Buffer): string[] {
  return out
    .toString('latin1')
    .split('\0')
    .filter((name) => name !== '');
}

/** The input of a command that reads names separated by NUL. */
export function packNames(names: readonly string[]): Buffer {
  return Buffer.from(names.map((name) => `${name}\0`).join(''), 'latin1');
}

/** A name of bytes as text; bytes that are no UTF-8 become replacement characters. */
export function readableName(name: string): string {
  return Buffer.from(name, 'latin1').toString('utf8');
}

/** A text as the name of its bytes. */
export function byteName(text: string): string {
  return Buffer.from(text, 'utf8').toString('latin1');
}
