// Runs the built command as a process of its own, with nothing of this process's environment.
import { type ChildProcess, spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';

export const ROOT = path.resolve(import.meta.dirname, '../..');
export const MAIN = path.join(ROOT, 'dist/main.js');

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

export function start(
  args: readonly string[],
  options: { home: string; env?: Record<string, string>; main?: string },
): Started {
  const child = spawn(process.execPath, [options.main ?? MAIN, ...args], {
    cwd: options.home,
    env: { PATH: process.env.PATH ?? '', HOME: options.home, ...options.env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const output = { stdout: '', stderr: '' };
  const watchers = new Set<() => void>();
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output.stdout += text;
    for (const watch of [...watchers]) watch();
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
    line: (pattern) =>
      new Promise((resolve, reject) => {
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
    stop(signal = 'SIGTERM') {
      child.kill(signal);
      return finished;
    },
  };
}

/** Runs to the end. */
export function run(
  args: readonly string[],
  options: { home: string; env?: Record<string, string> },
): Promise<Finished> {
  return start(args, options).finished;
}

/** Waits for the line a server prints when it listens and returns its address. */
export async function address(server: Started): Promise<string> {
  return (await server.line(/listens on (http:\S+?),/))[1]!;
}

/** JSON from the wire: a test looks into it freely and asserts what it finds. */
export async function getJson(url: string): Promise<ReturnType<typeof JSON.parse>> {
  return (await fetch(url)).json();
}
