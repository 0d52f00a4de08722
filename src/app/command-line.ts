// The process side of `metis`: signals, streams and exit codes; the commands themselves stand in the program (17 §2).
import os from 'node:os';
import { CommanderError } from 'commander';
import type { CommandContext } from './context.ts';
import { createProgram } from './program.ts';

const EXIT_BUG = 1;
const EXIT_USAGE = 2;

/** Runs the command that the process was started with. */
export async function runCommandLine(of: Pick<CommandContext, 'packageDir' | 'version'>): Promise<void> {
  let stop: ((signal: NodeJS.Signals) => void) | null = null;
  const stopped = new Promise<NodeJS.Signals>((resolve) => {
    stop = resolve;
  });
  // `metis doctor | head -1`: who stops reading has read enough, which is no fault.
  const outputClosed = new Promise<void>((resolve) => {
    for (const output of [process.stdout, process.stderr]) {
      output.on('error', (error: NodeJS.ErrnoException) => {
        if (error.code !== 'EPIPE') throw error;
        if (output === process.stdout) resolve();
      });
    }
  });
  const context: CommandContext = {
    env: process.env,
    cwd: process.cwd(),
    // A home that is set to nothing is none: the system knows where the person lives.
    home: os.homedir() || os.userInfo().homedir,
    ...of,
    get stdin() {
      return process.stdin;
    },
    stdout: process.stdout,
    stderr: process.stderr,
    outputClosed,
    stopSignal(secondCode = EXIT_BUG) {
      let seen = false;
      for (const signal of ['SIGINT', 'SIGTERM'] as const) {
        process.on(signal, () => {
          if (seen) process.exit(secondCode);
          seen = true;
          stop?.(signal);
        });
      }
      return stopped;
    },
    onExit(work) {
      process.once('exit', work);
      return () => process.off('exit', work);
    },
    exit: (code) => process.exit(code),
  };

  try {
    await createProgram(context, (code) => {
      process.exitCode = code;
    }).parseAsync();
  } catch (error) {
    if (error instanceof CommanderError) process.exitCode = error.exitCode === 0 ? 0 : EXIT_USAGE;
    else {
      process.stderr.write(`metis: unexpected failure: ${error instanceof Error ? error.message : String(error)}\n`);
      process.exitCode = EXIT_BUG;
    }
  }
}
