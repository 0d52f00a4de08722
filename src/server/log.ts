// The process log: one JSON line an entry on stderr, scrubbed of secrets before it is written (11.9).
import fs from 'node:fs';
import { SourceMap } from 'node:module';
import { fileURLToPath } from 'node:url';
import { type DestinationStream, pino, stdTimeFunctions } from 'pino';
import type { Logger } from '#core/ports/logger.ts';
import type { Config } from '#protocol/config.ts';
import { REDACTED, scrub } from '#protocol/text/scrub.ts';
import type { CommandContext, Settings } from './context.ts';

/** Tries for a reader that is slow for a moment. After a lost line there is one try. */
const STDERR = 2;
const TRIES = 100;
const AGAIN_MS = 10;
const BUSY: readonly unknown[] = ['EAGAIN', 'EBUSY'];

/** Writes at once. A line that cannot be written is dropped and counted, and ends nothing (17 §2). Once lines can be written again, a line reports how many were lost. */
export function createLogOutput(fd: number = STDERR): DestinationStream {
  let lost = 0;
  /** The last line is there in part. */
  let isTorn = false;

  function writeLine(line: string): boolean {
    const bytes = Buffer.from(isTorn ? `\n${line}` : line);
    let written = 0;
    for (let tries = lost === 0 ? TRIES : 1; written < bytes.byteLength; ) {
      try {
        written += fs.writeSync(fd, bytes, written);
      } catch (error) {
        tries -= 1;
        if (tries === 0 || !BUSY.includes((error as NodeJS.ErrnoException).code)) {
          isTorn ||= written > 0;
          return false;
        }
        Atomics.wait(new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT)), 0, 0, AGAIN_MS);
      }
    }
    isTorn = false;
    return true;
  }

  return {
    write(line) {
      const report = `{"level":"warn"${stdTimeFunctions.isoTime()},"lines":${lost},"msg":"lines of the log could not be written"}\n`;
      if (lost > 0 && writeLine(report)) lost = 0;
      if (!writeLine(line)) lost += 1;
    },
  };
}

/** Read with the first error of each file, not with every start. */
const maps = new Map<string, SourceMap | null>();

/** The stack of an error with each place in a built file replaced by that of its source; the rest stays as it is. */
function mapToSource(stack: string): string {
  return stack.replaceAll(
    /((?:file:\/\/)?\/[^\s()]+\.c?js):(\d+):(\d+)/g,
    (place, file: string, line: string, column: string) => {
      const entry = findSourceMap(file)?.findEntry(Number(line) - 1, Number(column) - 1);
      if (entry === undefined || !('originalSource' in entry)) return place;
      const source = entry.originalSource.replace(/^(?:\.\.\/)+/, '');
      return `${source}:${entry.originalLine + 1}:${entry.originalColumn + 1}`;
    },
  );
}

/** Null for a file without a map, such as a library's. */
function findSourceMap(file: string): SourceMap | null {
  const known = maps.get(file);
  if (known !== undefined) return known;
  const read = readMap(file);
  maps.set(file, read);
  return read;
}

/** @param file as a URL, or as a path where a thread of ours ran it */
function readMap(file: string): SourceMap | null {
  try {
    const found = file.startsWith('file:') ? fileURLToPath(file) : file;
    return new SourceMap(JSON.parse(fs.readFileSync(`${found}.map`, 'utf8')));
  } catch {
    return null;
  }
}

const REDACTED_PATHS = ['*.apiKey', '*.api_key', 'headers.authorization', 'headers["x-api-key"]'];

/**
 * @param secrets asked at every line, so that keys resolved later are covered too
 * @param destination stderr when absent
 */
export function createLogger(
  level: Config['log']['level'],
  secrets: () => readonly string[],
  destination: DestinationStream = createLogOutput(),
): Logger {
  const writeRedacted = (line: string) => {
    let clean = line;
    for (const secret of secrets()) {
      const written = JSON.stringify(secret).slice(1, -1);
      if (written !== '') clean = clean.replaceAll(written, REDACTED);
    }
    destination.write(clean);
  };
  return pino(
    {
      level,
      base: null,
      timestamp: stdTimeFunctions.isoTime,
      redact: { paths: REDACTED_PATHS, censor: REDACTED },
      formatters: { level: (label) => ({ level: label }) },
      serializers: { err: describeError, error: describeError },
    },
    { write: writeRedacted },
  );
}

/**
 * The process log, which hides keys and tokens. A person at a terminal reads sentences: below `error` they see the lines
 * only when `log.level` asks for them.
 */
export function startLog(
  { stderr, logOutput }: CommandContext,
  { config, credentials, given }: Settings,
  destination: DestinationStream | undefined = logOutput,
): Logger {
  const level = stderr.isTTY === true && !given.has('log.level') ? 'error' : config.log.level;
  return createLogger(level, () => [...credentials.secrets, ...config.server.auth_tokens], destination);
}

/** Name, scrubbed text and frames of an error. A stack that is a plain text gets places of the source as well. */
function describeError(value: unknown): unknown {
  if (typeof value === 'string') return mapToSource(value);
  if (!(value instanceof Error)) return value;
  const frames = mapToSource(value.stack ?? '')
    .split('\n')
    .filter((line) => line.startsWith('    at '));
  return { type: value.name, message: scrub(value.message), stack: frames.join('\n') };
}
