// One run of ripgrep: which lines of which files match, as it finds them (09 §13, 18 §1).
import { spawn } from 'node:child_process';
import { ToolError } from '#protocol/tool.ts';
import { PRUNED_FOLDERS } from './pruned.ts';

export interface SearchOptions {
  readonly program: string;
  readonly root: string;
  readonly pattern: string;
  readonly glob: string | null;
  readonly caseSensitive: boolean;
  readonly maxPerFile: number;
}

/** A matching line: file relative to the root, line from 1. */
export interface RawHit {
  readonly path: string;
  readonly line: number;
}

export interface Search {
  /** In no order between files. Ends early when stopped. */
  readonly hits: AsyncIterable<RawHit>;
  /** Number of files searched; after `hits` has ended. Throws `ToolError` for a pattern or glob that is not valid. */
  scanned(): Promise<number>;
  /** Kills the program and resolves when it is gone; false when it was gone before. */
  stop(): Promise<boolean>;
}

const HIT = /^\.\/([^\0]+)\0(\d+):/;
const SUMMARY = /^(\d+) files? searched$/;
const MAX_STDERR = 4096;

/** Throws `ToolError` when the program cannot be given its arguments. */
export function startSearch(options: SearchOptions): Search {
  const child = startProgram(options);
  let stderr = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    if (stderr.length < MAX_STDERR) stderr += text.slice(0, MAX_STDERR - stderr.length);
  });
  let searched: number | null = null;
  let failure: Error | null = null;
  const gone = new Promise<void>((resolve) => {
    child.once('error', (error) => {
      failure = error;
      resolve();
    });
    child.once('close', () => resolve());
  });

  async function* hits(): AsyncGenerator<RawHit> {
    for await (const line of lines(child.stdout)) {
      const [, path, number] = HIT.exec(line) ?? [];
      if (path !== undefined) yield { path, line: Number(number) };
      const [, summary] = SUMMARY.exec(line) ?? [];
      if (summary !== undefined) searched = Number(summary);
    }
  }
  return {
    hits: hits(),
    async scanned() {
      await gone;
      if (failure !== null) throw new ToolError('execution_error', 'the search program could not be started');
      if (searched === null) throw invalid(stderr);
      return searched;
    },
    async stop() {
      const ended = child.exitCode !== null || child.signalCode !== null || failure !== null;
      if (!ended) child.kill('SIGKILL');
      await gone;
      return !ended;
    },
  };
}

function startProgram(options: SearchOptions) {
  const args = [
    ...['--no-config', '--no-messages', '--color=never', '--no-heading', '--with-filename', '--line-number', '--null'],
    ...['--hidden', '--no-ignore', '--no-follow', '--encoding=none', '--max-filesize=5M', '--stats'],
    // Only the numbers of the lines are of use: what they say is read from the file once it has passed the checks.
    '--max-columns=1',
    `--max-count=${options.maxPerFile}`,
    options.caseSensitive ? '--case-sensitive' : '--ignore-case',
    ...(options.glob === null ? [] : [`--glob=${options.glob.replace(/^!/, '\\!')}`]),
    ...PRUNED_FOLDERS.map((name) => `--glob=!**/${name}/`),
    `--regexp=${options.pattern}`,
    '.',
  ];
  try {
    return spawn(options.program, args, { cwd: options.root, env: {}, stdio: ['ignore', 'pipe', 'pipe'] });
  } catch (error) {
    throw new ToolError('execution_error', `invalid regex: ${error instanceof Error ? error.message : 'unusable'}`);
  }
}

async function* lines(stream: AsyncIterable<Buffer>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const data of stream) {
    const parts = `${rest}${decoder.decode(data, { stream: true })}`.split('\n');
    rest = parts.pop() ?? '';
    yield* parts;
  }
}

/** What ripgrep complained about. It stops before the summary only when it could not begin. */
function invalid(stderr: string): ToolError {
  const text = stderr.replace(/^rg: /, '').trim();
  const glob = /^error parsing glob/.test(text);
  return new ToolError('execution_error', `invalid ${glob ? 'path_glob' : 'regex'}: ${text || 'the search failed'}`);
}
