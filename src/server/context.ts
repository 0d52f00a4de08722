// What a command is handed of the process it runs in, so that nothing below reads the process itself.
import { toPrintable } from '#cli/style.ts';

export interface Output {
  write(text: string): unknown;
  readonly isTTY?: boolean | undefined;
  readonly columns?: number | undefined;
  readonly rows?: number | undefined;
}

export interface CommandContext {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
  readonly home: string;
  /** The folder of the installed package: `config/`, `migrations/`, `examples/`. */
  readonly packageDir: string;
  readonly version: string;
  readonly stdin: NodeJS.ReadStream;
  readonly stdout: Output;
  readonly stderr: Output & NodeJS.WritableStream;
  /** Resolves when nobody reads stdout any more: what is written from then on is lost. */
  readonly outputClosed: Promise<void>;
  /** Resolves with the first SIGINT or SIGTERM; the second ends the process, with this code or 1. */
  stopSignal(secondCode?: number): Promise<NodeJS.Signals>;
  /** Runs `work` when the process ends, however it is ended from within; the returned function takes it back. */
  onExit(work: () => void): () => void;
  /** Ends the process on the spot. */
  exit(code: number): never;
}

/** One line per problem on stderr; the exit code of a command that could not start. */
export function refuse(context: CommandContext, problems: readonly string[]): number {
  for (const problem of problems) context.stderr.write(`metis: ${toPrintable(problem)}\n`);
  return 1;
}
