// Runs the built command as a process of its own, with next to nothing of this process's environment.
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';

export const ROOT = path.resolve(import.meta.dirname, '../..');
export const MAIN = path.join(ROOT, 'dist/main.js');

/** Of this process's environment, what a command that it starts needs. */
export const PASSED_ON = {
  PATH: process.env.PATH ?? '',
  ...(process.env.NODE_COMPILE_CACHE ? { NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE } : {}),
};

/** Much of a short process is its start: it takes a sixth less time with fewer collections and fewer threads. */
export const NODE_FLAGS = ['--min-semi-space-size=16', '--max-semi-space-size=16', '--v8-pool-size=1'];

export interface Finished {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Started {
  readonly child: ChildProcess;
  /** What was written so far. */
  readonly output: { stdout: string; stderr: string };
  /** Resolves with the match once stdout holds it; rejects when the process ends before. */
  line(pattern: RegExp): Promise<RegExpExecArray>;
  finished: Promise<Finished>;
  /** Ends the process and waits for it. */
  stop(signal?: NodeJS.Signals): Promise<Finished>;
}

/** An empty home folder; `remove()` deletes it. */
export function temporaryHome(): { readonly path: string; remove(): void } {
  const home = fs.mkdtempSync(path.join(os.tmpdir(), 'metis-home-'));
  return { path: home, remove: () => fs.rmSync(home, { recursive: true, force: true }) };
}

/** Waits for what is written to an output, which tells with `look` when it grew. */
export function watchLines(output: { readonly stdout: string; readonly stderr: string }) {
  const watchers = new Set<() => void>();
  return {
    look() {
      for (const watch of [...watchers]) watch();
    },
    line: (pattern: RegExp, finished: Promise<unknown>) =>
      new Promise<RegExpExecArray>((resolve, reject) => {
        const look = () => {
          const match = pattern.exec(output.stdout);
          if (match === null) return;
          watchers.delete(look);
          resolve(match);
        };
        watchers.add(look);
        look();
        void finished.then(() => reject(new Error(`ended without ${pattern}:\n${output.stdout}${output.stderr}`)));
      }),
  };
}

export function start(
  args: readonly string[],
  options: { home: string; env?: Readonly<Record<string, string>>; main?: string },
): Started {
  const child = spawn(process.execPath, [...NODE_FLAGS, options.main ?? MAIN, ...args], {
    cwd: options.home,
    env: { ...PASSED_ON, HOME: options.home, ...options.env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const output = { stdout: '', stderr: '' };
  const watched = watchLines(output);
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output.stdout += text;
    watched.look();
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    output.stderr += text;
  });
  const finished = new Promise<Finished>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => resolve({ code, ...output }));
  });
  return {
    child,
    output,
    finished,
    line: (pattern) => watched.line(pattern, finished),
    stop(signal = 'SIGTERM') {
      child.kill(signal);
      return finished;
    },
  };
}

export interface OnTerminal {
  /** All that was written so far, escape codes too. */
  output(): string;
  /** Resolves once the output matches; rejects when the process ends before. */
  seen(pattern: RegExp): Promise<void>;
  /** Keys, as they are pressed. */
  type(keys: string): void;
  /** Exit code. */
  readonly ended: Promise<number | null>;
  /** SIGTERM ends what runs in it before it closes; SIGKILL closes it at once. */
  stop(signal?: NodeJS.Signals): void;
}

/** A terminal of its own for the command: util-linux's script(1), which is part of every Debian. */
export const HAS_TERMINAL = spawnSync('script', ['--version']).status === 0;

interface TerminalOptions {
  readonly home: string;
  readonly columns?: number;
  readonly rows?: number;
  readonly env?: Record<string, string>;
}

export function startOnTerminal(args: readonly string[], options: TerminalOptions): OnTerminal {
  return programOnTerminal([process.execPath, ...NODE_FLAGS, MAIN, ...args], options);
}

export function programOnTerminal(program: readonly string[], options: TerminalOptions): OnTerminal {
  const words = program.map((word) => `'${word.replaceAll("'", "'\\''")}'`).join(' ');
  const size = `stty cols ${options.columns ?? 80} rows ${options.rows ?? 24}`;
  const child = spawn('script', ['-qefc', `${size}; exec ${words}`, '/dev/null'], {
    cwd: options.home,
    env: { ...PASSED_ON, HOME: options.home, TERM: 'xterm-256color', ...options.env },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  let output = '';
  const watchers = new Set<() => void>();
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text;
    for (const watch of [...watchers]) watch();
  });
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => resolve(code));
  });
  return {
    output: () => output,
    seen: (pattern) =>
      new Promise((resolve, reject) => {
        const look = () => {
          if (!pattern.test(output)) return;
          watchers.delete(look);
          resolve();
        };
        watchers.add(look);
        look();
        void ended.then(() => reject(new Error(`ended without ${pattern}:\n${output}`)));
      }),
    type: (keys) => void child.stdin.write(keys),
    ended,
    stop: (signal = 'SIGKILL') => void child.kill(signal),
  };
}

const ESCAPES = new RegExp(`${String.fromCharCode(27)}\\[[0-9;?]*[a-zA-Z]`, 'g');
/** Without what moves the cursor and paints. */
export const visible = (text: string) => text.replaceAll(ESCAPES, '');

/** Runs to the end. */
export function run(
  args: readonly string[],
  options: { home: string; env?: Record<string, string> },
): Promise<Finished> {
  return start(args, options).finished;
}

/** Waits for the line a server prints when it listens and returns its address. */
export async function address(server: Pick<Started, 'line'>): Promise<string> {
  return (await server.line(/listens on (http:\S+?),/))[1]!;
}

/** JSON from the wire: a test looks into it freely and asserts what it finds. */
export async function getJson(url: string): Promise<ReturnType<typeof JSON.parse>> {
  return (await fetch(url)).json();
}
