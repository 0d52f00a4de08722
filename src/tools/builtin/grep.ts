// grep: a regular expression over the files of the workspace, searched by ripgrep (09 §13).

import { spawn } from 'node:child_process';
import type { ToolFactory } from '#core/ports/tool-port.ts';
import type { WorkspaceFiles } from '#core/ports/workspace.ts';
import { ToolError, toolText } from '#protocol/tool.ts';
import { compareBytes, defineTool, inputSchema, PRUNED_FOLDERS, pathSchema, workspaceFiles } from './common.ts';

// The first hits of a search in path order, each from a file that a model may read (09 §13).

const MAX_SNIPPET = 300;
const MAX_FILE_BYTES = 5 * 1024 * 1024;
/** Files read at once: reads beyond the last hit are wasted. */
const READ_AT_ONCE = 4;
/** Pending hits above which hits that cannot be among the first are dropped. */
const MAX_PENDING = 10_000;

interface HitList {
  /** Lines of one file arrive in ascending order. */
  add(path: string, line: number): Promise<void>;
  /** `path:line: snippet`, by path and line, at most the wanted number. */
  hits(): Promise<readonly string[]>;
}

/** @param wanted how many hits are needed; every later one is dropped */
export function createHitList(files: WorkspaceFiles, wanted: number): HitList {
  let pending = new Map<string, number[]>();
  let count = 0;
  let checked = new Map<string, readonly string[]>();
  /** The list is complete up to this path; later paths are dropped. */
  let bound: string | null = null;

  /** Reads files in order until there are enough hits, and forgets the others. */
  async function takeFirstHits(): Promise<readonly string[]> {
    const first: string[] = [];
    const kept = new Map<string, readonly string[]>();
    const paths = [...new Set([...checked.keys(), ...pending.keys()])].sort(compareBytes);
    const read = async (path: string) =>
      checked.get(path) ?? (await readSnippets(files, path, pending.get(path) ?? []));
    for (let at = 0; at < paths.length && first.length < wanted; at += READ_AT_ONCE) {
      const next = paths.slice(at, at + READ_AT_ONCE);
      for (const [i, found] of (await Promise.all(next.map(read))).entries()) {
        if (first.length >= wanted) break;
        if (found.length > 0) kept.set(next[i]!, found);
        first.push(...found);
        if (first.length >= wanted) bound = next[i]!;
      }
    }
    checked = kept;
    pending = new Map();
    count = 0;
    return first.slice(0, wanted);
  }
  return {
    async add(path, line) {
      if (!files.readable(path)) return;
      if (bound !== null && compareBytes(path, bound) > 0) return;
      const splitLines = pending.get(path);
      // Between files only: a file's hits must be complete when it is read.
      if (splitLines === undefined && count >= MAX_PENDING) await takeFirstHits();
      if (splitLines === undefined) pending.set(path, [line]);
      else splitLines.push(line);
      count += 1;
    },
    hits: takeFirstHits,
  };
}

/** The lines as they are shown; none when the file is not readable text after all. */
async function readSnippets(files: WorkspaceFiles, path: string, lines: readonly number[]): Promise<readonly string[]> {
  let text: string;
  try {
    const data = await files.readFile(await files.resolve(path, 'read'), MAX_FILE_BYTES);
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(data);
  } catch (error) {
    if (error instanceof ToolError || error instanceof TypeError) return [];
    throw error;
  }
  const all = text.split('\n');
  return lines.flatMap((line) => {
    const found = all[line - 1];
    if (found === undefined) return [];
    return `${path}:${line}: ${cutLine(found.replace(/\r$/, ''))}`;
  });
}

function cutLine(line: string): string {
  if (line.length <= MAX_SNIPPET) return line;
  return `${line.slice(0, MAX_SNIPPET).replace(/[\uD800-\uDBFF]$/, '')}...`;
}

// One run of ripgrep: which lines of which files match, as it finds them (09 §13, 18 §1).

interface SearchOptions {
  readonly program: string;
  readonly root: string;
  readonly pattern: string;
  readonly glob: string | null;
  readonly caseSensitive: boolean;
  readonly maxPerFile: number;
}

/** A matching line: file relative to the root, line from 1. */
interface RawHit {
  readonly path: string;
  readonly line: number;
}

interface Search {
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
function startSearch(options: SearchOptions): Search {
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
      if (searched === null) throw searchError(stderr);
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
  const include: string[] = [];
  if (options.glob !== null) include.push(`--glob=${options.glob.replace(/^!/, '\\!')}`);
  const args = [
    ...['--no-config', '--no-messages', '--color=never', '--no-heading', '--with-filename', '--line-number', '--null'],
    ...['--hidden', '--no-ignore', '--no-follow', '--encoding=none', '--max-filesize=5M', '--stats'],
    // Only line numbers are used: the text is read from the file after the checks.
    '--max-columns=1',
    `--max-count=${options.maxPerFile}`,
    options.caseSensitive ? '--case-sensitive' : '--ignore-case',
    ...include,
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

/** The error of ripgrep. Without a summary it could not start the search. */
function searchError(stderr: string): ToolError {
  const text = stderr.replace(/^rg: /, '').trim();
  const parameter = /^error parsing glob/.test(text) ? 'path_glob' : 'regex';
  return new ToolError('execution_error', `invalid ${parameter}: ${text || 'the search failed'}`);
}

const definition = defineTool({
  name: 'grep',
  description:
    'Searches the text files of the workspace for a regular expression (linear-time syntax: no look-around, no back-references) and shows the lines that match as path:line: text. Dependency, build and cache folders are left out.',
  side_effects: 'read',
  file_access: 'read',
  path_fields: [],
  input_schema: inputSchema(
    {
      pattern: { type: 'string', description: 'The regular expression.' },
      path_glob: pathSchema(
        'Only files that match: * within a name, ** across folders; without a slash it matches the file name.',
      ),
      case_sensitive: { type: 'boolean', default: false, description: 'Match upper and lower case.' },
      max_results: { type: 'integer', minimum: 1, maximum: 200, default: 50, description: 'Most lines to show.' },
    },
    ['pattern'],
  ),
});

/** @param ripgrep path of the program */
export function grep({ ripgrep }: { readonly ripgrep: string }): ToolFactory {
  return () => {
    let stop: (() => Promise<boolean>) | null = null;
    return {
      definition,
      cancel: async () => (await stop?.()) ?? false,
      async execute(input, context) {
        context.signal.throwIfAborted();
        const files = workspaceFiles(context);
        const pattern = input.pattern as string;
        const max = (input.max_results as number | undefined) ?? 50;
        const list = createHitList(files, max + 1);
        let running: Search | null = null;
        stop = async () => running?.stop() ?? false;
        const onAbort = () => void running?.stop();
        context.signal.addEventListener('abort', onAbort, { once: true });
        let countScanned = 0;
        try {
          for (const { prefix, absolute } of files.roots) {
            context.signal.throwIfAborted();
            running = startSearch({
              program: ripgrep,
              root: absolute,
              pattern,
              glob: (input.path_glob as string | undefined) ?? null,
              caseSensitive: input.case_sensitive === true,
              // One more than shown, to detect further hits.
              maxPerFile: max + 1,
            });
            for await (const { path, line } of running.hits) await list.add(`${prefix}${path}`, line);
            context.signal.throwIfAborted();
            countScanned += await running.scanned();
          }
          const hits = await list.hits();
          if (hits.length === 0) return toolText(`(no matches for '${pattern}'; scanned ${countScanned} files)`);
          const shown = hits.slice(0, max);
          let note = '';
          if (hits.length > max) note = ` (truncated at max_results=${max}; refine pattern or path_glob for more)`;
          return toolText([`${shown.length} match(es)${note}`, ...shown].join('\n'));
        } finally {
          context.signal.removeEventListener('abort', onAbort);
          await running?.stop();
        }
      },
    };
  };
}
