// Runs a command of `metis` as its command line does, but in this process: its words, environment, home, input, output and
// signals are what a process of its own would have. What keys, descriptors, kills and the end of a process are is tested on
// processes (`run` and `start` of metis.ts).
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { PassThrough, Writable } from 'node:stream';
import { runProgram } from '#server/command-line.ts';
import type { CommandContext } from '#server/context.ts';
import { type Finished, PASSED_ON, ROOT, type Started, watchLines } from './metis.ts';

const { version } = JSON.parse(fs.readFileSync(path.join(ROOT, 'package.json'), 'utf8')) as { version: string };

interface HereOptions {
  readonly home: string;
  readonly env?: Readonly<Record<string, string>>;
  /** Where it is started; the home folder when absent. */
  readonly cwd?: string;
}

export interface StartedHere extends Pick<Started, 'output' | 'line' | 'finished' | 'stop'> {
  /** What it reads: written to and ended by the test. */
  readonly stdin: PassThrough;
  /** What it writes to stdout, as it comes. */
  readonly written: PassThrough;
  signal(signal: NodeJS.Signals): void;
}

function writeTo(take: (chunk: string | Buffer) => void): Writable {
  return new Writable({
    decodeStrings: false,
    write(chunk: string | Buffer, _, done) {
      take(chunk);
      done();
    },
  });
}

/** Runs to the end, with nobody at a terminal and nothing on stdin. */
export function runHere(args: readonly string[], options: HereOptions): Promise<Finished> {
  const started = startHere(args, options);
  started.stdin.end();
  return started.finished;
}

/** Starts what goes on until its stdin ends or a signal comes. SIGKILL ends it in order too: a test that needs less takes a process. */
export function startHere(args: readonly string[], options: HereOptions): StartedHere {
  const env: Record<string, string> = { ...PASSED_ON, HOME: options.home, ...options.env };
  const output = { stdout: '', stderr: '' };
  const [stdin, written] = [new PassThrough(), new PassThrough()];
  const watched = watchLines(output);
  const stdout = writeTo((chunk) => {
    output.stdout += chunk;
    written.write(chunk);
    watched.look();
  });
  const stderr = writeTo((chunk) => {
    if (left === null) output.stderr += chunk;
  });
  const atExit = new Set<() => void>();
  const atHangup = new Set<() => void>();
  const atQuit = new Set<() => void>();
  /** Its exit code, once it ended itself on the spot: nothing that follows is heard. */
  let left: number | null = null;
  let stopBy = (_: NodeJS.Signals) => {};
  const stopped = new Promise<NodeJS.Signals>((resolve) => {
    stopBy = resolve;
  });
  const context: CommandContext = {
    env,
    cwd: options.cwd ?? options.home,
    home: env.HOME || os.userInfo().homedir,
    packageDir: ROOT,
    version,
    stdin: stdin as unknown as NodeJS.ReadStream,
    stdout,
    stderr,
    logOutput: { write: (line) => void stderr.write(line) },
    outputClosed: new Promise<never>(() => {}),
    stopSignal: () => stopped,
    onHangup: (work) => void atHangup.add(work),
    onQuitKey(work) {
      atQuit.add(work);
      return () => void atQuit.delete(work);
    },
    onExit(work) {
      atExit.add(work);
      return () => void atExit.delete(work);
    },
    exit(code) {
      left ??= code;
      throw new Error(`exit code ${code}`);
    },
  };
  const finished = runProgram(context, args).then((code): Finished => {
    for (const work of atExit) work();
    stdin.destroy();
    written.end();
    return { code: left ?? code, ...output };
  });
  function signal(name: NodeJS.Signals): void {
    if (name === 'SIGHUP') for (const work of atHangup) work();
    else if (name === 'SIGQUIT') for (const work of atQuit) work();
    else stopBy(name);
  }
  return {
    output,
    finished,
    stdin,
    written,
    line: (pattern) => watched.line(pattern, finished),
    signal,
    stop(name = 'SIGTERM') {
      signal(name);
      return finished;
    },
  };
}
