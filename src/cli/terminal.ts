// What a command that asks a server is handed, and its one way to say that the server could not help.
import { ApiError, type ServerAddress } from '../client/request.ts';
import { createStyle, type Style } from './style.ts';

export interface Terminal {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
  readonly stdout: TextOutput;
  readonly stderr: TextOutput;
}
interface TextOutput {
  write(text: string): unknown;
  readonly isTTY?: boolean | undefined;
  /** Width in characters. */
  readonly columns?: number | undefined;
}

/** As the command line parser leaves them. */
export interface ServerFlags {
  readonly server: string;
  readonly token?: string;
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
      stderr.write(`metis: ${error.message}${cure}\n`);
    }
    // fetch's own way to say that there was no connection.
    else if (error instanceof TypeError && error.cause !== undefined)
      stderr.write(`metis: no server answers at ${baseUrl}; metis serve starts one\n`);
    else throw error;
    return EXIT_FAILED;
  }
}

export function styleOf({ stdout, env }: Terminal): Style {
  return createStyle(stdout.isTTY === true && !env.NO_COLOR);
}

/** Columns a table may take: what the terminal has, as many as it needs where there is none. */
export function widthOf({ stdout }: Terminal): number {
  return stdout.isTTY === true ? (stdout.columns ?? 80) : Number.POSITIVE_INFINITY;
}
