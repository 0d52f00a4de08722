// Runs a command of `metis` as its command line does, but in this process: its words, environment, home and output are what a
// process of its own would have. For commands that ask, check or write and end; what signals, keys and a server's life are is
// tested on processes (`run` and `start` of metis.ts).
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { Writable } from 'node:stream';
import { runProgram } from '#server/command-line.ts';
import type { CommandContext } from '#server/context.ts';
import { type Finished, PASSED_ON, ROOT } from './metis.ts';

const { version } = JSON.parse(fs.readFileSync(path.join(ROOT, 'package.json'), 'utf8')) as { version: string };

function collect(): Writable & { text(): string } {
  const chunks: string[] = [];
  const stream = new Writable({
    decodeStrings: false,
    write(chunk: string | Buffer, _, done) {
      chunks.push(String(chunk));
      done();
    },
  });
  return Object.assign(stream, { text: () => chunks.join('') });
}

/** Runs to the end, with nobody at a terminal and nothing on stdin. */
export async function runHere(
  args: readonly string[],
  options: { home: string; env?: Readonly<Record<string, string>> },
): Promise<Finished> {
  const env: Record<string, string> = { ...PASSED_ON, HOME: options.home, ...options.env };
  const [stdout, stderr] = [collect(), collect()];
  const stdin = fs.createReadStream('/dev/null');
  const atExit = new Set<() => void>();
  const never = new Promise<never>(() => {});
  const context: CommandContext = {
    env,
    cwd: options.home,
    home: env.HOME || os.userInfo().homedir,
    packageDir: ROOT,
    version,
    stdin: stdin as unknown as NodeJS.ReadStream,
    stdout,
    stderr,
    outputClosed: never,
    stopSignal: () => never,
    onHangup() {},
    onQuitKey: () => () => {},
    onExit(work) {
      atExit.add(work);
      return () => void atExit.delete(work);
    },
    exit(code) {
      throw new Error(`exit code ${code} on the spot: run it in a process`);
    },
  };
  try {
    const code = await runProgram(context, args);
    for (const work of atExit) work();
    return { code, stdout: stdout.text(), stderr: stderr.text() };
  } finally {
    stdin.destroy();
  }
}
