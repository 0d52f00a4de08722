// `metis trust`: shows a file of a workspace that widens what runs without a question, and asks whether to trust it (20 §11).
import path from 'node:path';
import readline from 'node:readline/promises';
import { createMetisClient, type TrustedFileInfo } from '#client/client.ts';
import type { ServerAddress } from '#client/request.ts';
import { toJsonLine, toPrintable, toPrintableText } from './printable-text.ts';
import { askServer, printMessage, type ServerFlags, type Terminal } from './terminal.ts';

export interface TrustFlags extends Pick<ServerFlags, 'json'> {
  readonly workspace?: string;
  /** Takes the trust back. */
  readonly remove?: boolean;
  /** Of the bytes to trust, in place of the question. */
  readonly sha256?: string;
}

/** Terminal with a person at it, or a pipe. */
export type InteractiveTerminal = Terminal & {
  readonly stdin: NodeJS.ReadStream;
  readonly stderr: NodeJS.WritableStream;
};

const EXIT_REFUSED = 1;

/** Prints a line per file that is trusted or waits for it. Exit code: 1 when the server could not say. */
export async function listTrust(terminal: Terminal, server: ServerAddress, flags: TrustFlags): Promise<number> {
  return askServer(terminal, server, async () => {
    const client = createMetisClient(server);
    const { files } = await client.listTrustedFiles({ workspace_path: findTrustRoot(terminal, flags) });
    for (const file of files) {
      if (flags.json) terminal.stdout.write(toJsonLine(file));
      else for (const line of describeTrust(file)) terminal.stdout.write(`${toPrintable(line)}\n`);
    }
    if (files.length === 0 && !flags.json) terminal.stdout.write('no file is trusted, and none waits for trust\n');
    return 0;
  });
}

/**
 * Shows the file and asks; without a terminal `sha256` names the bytes to trust.
 * Exit code: 0 when the file is trusted (with `remove`: is not any more), else 1.
 */
export async function changeTrust(
  terminal: InteractiveTerminal,
  server: ServerAddress,
  file: string,
  flags: TrustFlags,
): Promise<number> {
  return askServer(terminal, server, async () => {
    const client = createMetisClient(server);
    const root = findTrustRoot(terminal, flags);
    const about = { workspace_path: root, path: relativeTo(root, path.resolve(terminal.cwd, file)) };
    if (flags.remove) {
      await client.untrustFile(about);
      printMessage(terminal.stderr, `${about.path} is not trusted any more`);
      return 0;
    }
    if (flags.sha256 !== undefined) {
      await client.trustFile({ ...about, sha256: flags.sha256 });
      printMessage(terminal.stderr, `${about.path} is trusted`);
      return 0;
    }
    const [found] = (await client.listTrustedFiles(about)).files;
    if (found === undefined || found.sha256 === null) throw new Error(`the server sent no content of ${about.path}`);
    terminal.stdout.write(`${toPrintableText((found.content ?? '').trimEnd())}\n\n`);
    for (const line of describeTrust(found)) terminal.stdout.write(`${toPrintable(line)}\n`);
    if (found.trusted) return 0;
    if (terminal.stdin.isTTY !== true) {
      printMessage(
        terminal.stderr,
        `nothing was changed: without a terminal, confirm the bytes with --sha256 ${found.sha256}`,
      );
      return EXIT_REFUSED;
    }
    if (!(await isConfirmed(terminal, `Trust ${about.path} as shown? yes or no: `))) {
      printMessage(terminal.stderr, `${about.path} is not trusted`);
      return EXIT_REFUSED;
    }
    await client.trustFile({ ...about, sha256: found.sha256 });
    printMessage(terminal.stderr, `${about.path} is trusted`);
    return 0;
  });
}

function describeTrust({ path: file, trusted, trusted_sha256, sha256, widens }: TrustedFileInfo): string[] {
  let state = 'has changed since it was trusted';
  if (trusted) state = 'is trusted';
  else if (trusted_sha256 === null) state = 'is not trusted';
  else if (sha256 === null) state = 'is missing';
  return [`${file} ${state}`, ...widens.map((one) => `  ${one}`)];
}

export async function isConfirmed({ stdin, stderr }: InteractiveTerminal, question: string): Promise<boolean> {
  const lines = readline.createInterface({ input: stdin, output: stderr, terminal: true });
  try {
    return /^\s*y(es)?\s*$/i.test(await lines.question(toPrintable(question)));
  } catch {
    // The terminal was closed.
    return false;
  } finally {
    lines.close();
  }
}

function findTrustRoot(terminal: Terminal, { workspace = '.' }: TrustFlags): string {
  return path.resolve(terminal.cwd, workspace);
}

/** As the server names files: with `/`, below the workspace; a path that leads out of it is refused there. */
function relativeTo(root: string, file: string): string {
  return path.relative(root, file).split(path.sep).join('/');
}
