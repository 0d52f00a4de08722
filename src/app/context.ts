// What a command is handed of the process it runs in, so that nothing below reads the process itself.

export interface Output {
  write(text: string): unknown;
  readonly isTTY?: boolean | undefined;
  readonly columns?: number | undefined;
}

export interface CommandContext {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
  readonly home: string;
  /** The folder of the installed package: `config/`, `migrations/`, `examples/`. */
  readonly packageDir: string;
  readonly version: string;
  readonly stdout: Output;
  readonly stderr: Output;
  /** Resolves when nobody reads stdout any more: what is written from then on is lost. */
  readonly outputClosed: Promise<void>;
  /** Resolves with the first SIGINT or SIGTERM; the second ends the process. */
  stopSignal(): Promise<NodeJS.Signals>;
}

/** One line per problem on stderr; the exit code of a command that could not start. */
export function refuse(context: CommandContext, problems: readonly string[]): number {
  for (const problem of problems) context.stderr.write(`metis: ${problem}\n`);
  return 1;
}
