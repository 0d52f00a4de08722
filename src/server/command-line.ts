// The process side of `metis`: signals, streams and exit codes; the program holds the commands (17 §2).

import os from 'node:os';
import { type Command, CommanderError } from 'commander';
import { toPrintable } from '#cli/printable-text.ts';
import { systemClock } from '#protocol/clock.ts';
import { readErrorMessage } from '#protocol/text/error-message.ts';
import type { CommandContext } from './context.ts';
import { createProgram } from './program.ts';

const EXIT_BUG = 1;
const EXIT_USAGE = 2;
/** npm forwards Ctrl-C to a process that got it from the terminal already: the same signal this soon is the same key press. */
const FORWARDED_MS = 500;

/** Runs the command that the process was started with. */
export async function runCommandLine(of: Pick<CommandContext, 'packageDir' | 'version'>): Promise<void> {
  let stop: ((signal: NodeJS.Signals) => void) | null = null;
  const stopped = new Promise<NodeJS.Signals>((resolve) => {
    stop = resolve;
  });
  // A failed write to stderr cannot be reported anywhere, and ends nothing.
  process.stderr.on('error', () => {});
  let isOutputLost = false;
  const outputClosed = new Promise<void>((resolve) => {
    process.stdout.on('error', (error: NodeJS.ErrnoException) => {
      resolve();
      // `metis doctor | head -1`: a reader that stops early is no fault.
      if (error.code === 'EPIPE' || isOutputLost) return;
      isOutputLost = true;
      process.exitCode = EXIT_BUG;
      process.stderr.write(`metis: standard output cannot be written (${error.code}); make room where it goes\n`);
    });
  });
  const context: CommandContext = {
    env: process.env,
    cwd: process.cwd(),
    // An empty HOME counts as unset: the system has the user's home.
    home: os.homedir() || os.userInfo().homedir,
    ...of,
    get stdin() {
      return process.stdin;
    },
    stdout: process.stdout,
    stderr: process.stderr,
    outputClosed,
    stopSignal(secondCode = EXIT_BUG) {
      // npm sets it for whatever it runs.
      const forwardedMs = process.env.npm_command === undefined ? 0 : FORWARDED_MS;
      let first: { readonly signal: NodeJS.Signals; readonly at: number } | null = null;
      for (const signal of ['SIGINT', 'SIGTERM'] as const) {
        process.on(signal, () => {
          const at = systemClock.monotonic();
          if (first === null) {
            first = { signal, at };
            stop?.(signal);
          } else if (signal !== first.signal || at - first.at > forwardedMs) process.exit(secondCode);
        });
      }
      return stopped;
    },
    onHangup(work) {
      process.on('SIGHUP', work);
    },
    onQuitKey(work) {
      process.on('SIGQUIT', work);
      return () => process.off('SIGQUIT', work);
    },
    onExit(work) {
      process.once('exit', work);
      return () => process.off('exit', work);
    },
    exit: (code) => process.exit(code),
  };

  const code = await runProgram(context, process.argv.slice(2));
  process.exitCode = isOutputLost && code === 0 ? EXIT_BUG : code;
}

/** Runs the command that the words name, to its end. Its exit code. */
export async function runProgram(context: CommandContext, words: readonly string[]): Promise<number> {
  let ended = 0;
  const program = createProgram(context, (code) => {
    ended = code;
  });
  directOutput(program, context);
  try {
    await program.parseAsync(words, { from: 'user' });
    return ended;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : EXIT_USAGE;
    context.stderr.write(`metis: unexpected failure: ${toPrintable(readErrorMessage(error))}\n`);
    return EXIT_BUG;
  }
}

/** What Commander prints by itself, help and mistakes of usage, goes where the command prints. */
function directOutput(command: Command, context: CommandContext): void {
  command.configureOutput({
    writeOut: (text) => void context.stdout.write(text),
    writeErr: (text) => void context.stderr.write(text),
  });
  for (const part of command.commands) directOutput(part, context);
}
