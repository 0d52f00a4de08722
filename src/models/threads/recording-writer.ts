// Writes recordings to a folder; the text of a large one is made on the thread (11.12, 19 §2.7).
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '#core/ports/log.ts';
import { makeFolder } from '#protocol/folder.ts';
import { type Exchange, recordingText } from '../recorded/recording.ts';
import type { ThreadedParser } from './threaded-parser.ts';

export interface RecordingWriter {
  /** A fault is logged. */
  save(name: string, body: Buffer, exchange: Exchange): Promise<void>;
}

export interface WriterOptions {
  readonly dir: string;
  readonly log: Logger;
  readonly parser: Pick<ThreadedParser, 'above' | 'makeRecording'>;
}

export function createRecordingWriter({ dir, log, parser }: WriterOptions): RecordingWriter {
  return {
    async save(name, body, exchange) {
      const file = join(dir, name);
      try {
        const length = exchange.chunks.reduce((sum, chunk) => sum + chunk.text.length, body.byteLength);
        const isLarge = length > parser.above;
        const text = isLarge ? await parser.makeRecording(body, exchange) : recordingText(body, exchange);
        makeFolder(dir, 0o700);
        await writeFile(file, text, { mode: 0o600 });
      } catch (error) {
        log.warn({ file, error: String(error) }, 'an exchange could not be recorded');
      }
    },
  };
}
