// Where the log goes: a line that cannot be written is dropped and counted, and ends nothing (17 §2).
import fs from 'node:fs';
import { type DestinationStream, stdTimeFunctions } from 'pino';

/** A reader that is slow for a moment; after a lost line none is waited for. */
const TRIES = 100;
const AGAIN_MS = 10;
const BUSY: readonly unknown[] = ['EAGAIN', 'EBUSY'];

/** Writes at once. Once lines can be written again, a line reports how many were lost. */
export function createLogOutput(fd: number): DestinationStream {
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
