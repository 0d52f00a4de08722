// What a command that asks a server is handed, and its one way to say that the server could not help.
import { ApiError, type ServerAddress } from '#client/request.ts';
import { createStyle, type Style, toPrintable, wrapWords } from './style.ts';

export interface Terminal {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
  readonly stdout: TextOutput;
  readonly stderr: TextOutput;
}
export interface TextOutput {
  write(text: string): unknown;
  readonly isTTY?: boolean | undefined;
  /** Width and height in characters. */
  readonly columns?: number | undefined;
  readonly rows?: number | undefined;
}

/** As the command line parser leaves them. */
export interface ServerFlags {
  /** The configured address when left out. */
  readonly server?: string;
  readonly token?: string;
  /** Folder whose server is asked where none is named. */
  readonly data?: string;
  readonly json?: boolean;
}

const EXIT_FAILED = 1;

/** Runs `body` and returns its exit code; a refusal or silence of the server is one line on stderr. */
export async function askServer(
  { stderr }: Terminal,
  { baseUrl }: ServerAddress,
  body: () => Promise<number>,
): Promise<number> {
  try {
    return await body();
  } catch (error) {
    if (error instanceof ApiError) {
      const cure = error.status === 401 ? '; give one with --token or METIS_TOKEN' : '';
      printMessage(stderr, `${error.message}${cure}`);
    }
    // fetch's own way to say that there was no connection.
    else if (error instanceof TypeError && error.cause !== undefined)
      printMessage(stderr, `no server answers at ${baseUrl}; metis serve starts one`);
    else throw error;
    return EXIT_FAILED;
  }
}

/** Of what goes to `output`, stdout unless told. */
export function createTerminalStyle({ stdout, env }: Terminal, output: TextOutput = stdout): Style {
  return createStyle(output.isTTY === true && !env.NO_COLOR);
}

/** A sentence to the person, broken between words on a terminal. */
export function printMessage(output: TextOutput, sentence: string): void {
  const text = `metis: ${toPrintable(sentence)}`;
  const lines = output.isTTY === true ? wrapWords(text, (output.columns || 80) - 1) : [text];
  output.write(`${lines.join('\n')}\n`);
}

/** Columns a table may take: what the terminal has, as many as it needs where there is none. */
export function getTableWidth({ stdout }: Terminal): number {
  return stdout.isTTY === true ? stdout.columns || 80 : Number.POSITIVE_INFINITY;
}
