// Writes HTTP attempts of adapters and exchanges of the gateway to a folder (11.12, 19 §2.7).
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '#core/ports/logger.ts';
import type { Clock } from '#protocol/clock.ts';
import { makeFolder } from '#protocol/folder.ts';
import { type AttemptInfo, type HttpResponse, readOneByOne, type Send } from '../http/provider-http.ts';
import type { ThreadedParser } from '../threads/threaded-parser.ts';
import { type Exchange, KEPT_HEADERS, type Recording, recordingText } from './recording.ts';

interface RecorderOptions extends WriterOptions {
  readonly adapter: string;
  readonly send: Send;
  readonly clock: Clock;
  readonly secrets: readonly string[];
}

export interface Recorder {
  readonly send: Send;
  /** Resolves when every attempt begun so far has ended and is on disk. */
  flush(): Promise<void>;
}

export function createRecorder(options: RecorderOptions): Recorder {
  const unsaved = new Set<Promise<void>>();

  const writer = createRecordingWriter(options);

  /** Registers the attempt as unsaved until its recording is written. */
  function begin(attempt: AttemptInfo, body: readonly Uint8Array[]): (exchange: Exchange) => void {
    let finishAttempt: (exchange: Exchange) => void = () => {};
    const name = `${attempt.request.request_id}-${attempt.attempt}.json`;
    const saved = new Promise<Exchange>((resolve) => {
      finishAttempt = resolve;
    })
      .then((exchange) => writer.save(name, Buffer.concat(body), exchange))
      .finally(() => unsaved.delete(saved));
    unsaved.add(saved);
    return finishAttempt;
  }

  const record: Send = async (request) => {
    if (request.of === null) return options.send(request);
    const body = [...request.body];
    const ended = begin(request.of, body);
    const startedAt = options.clock.monotonic();
    const chunks: { at_ms: number; text: string }[] = [];
    let status: number | null = null;
    const headers: Record<string, string> = {};
    const finish = (end: Recording['end']) =>
      ended({
        adapter: options.adapter,
        path: new URL(request.url).pathname,
        status,
        headers,
        chunks,
        end,
        secrets: options.secrets,
      });
    const endReason = () => (request.signal.aborted ? 'aborted' : 'network');

    let response: HttpResponse;
    try {
      response = await options.send({ ...request, body });
    } catch (error) {
      finish(endReason());
      throw error;
    }
    status = response.status;
    for (const name of KEPT_HEADERS) {
      const value = response.header(name);
      if (value !== null) headers[name] = value;
    }
    const text = new TextDecoder();
    const keepDecoded = (decoded: string) => {
      if (decoded !== '') chunks.push({ at_ms: Math.round(options.clock.monotonic() - startedAt), text: decoded });
    };
    // Only the first end counts: a body may be read completely, fail and be cancelled, in any order.
    const recorded: HttpResponse = {
      ...response,
      async readPiece() {
        try {
          const piece = await response.readPiece();
          if (piece === null) {
            keepDecoded(text.decode());
            finish('complete');
          } else keepDecoded(text.decode(piece, { stream: true }));
          return piece;
        } catch (error) {
          finish(endReason());
          throw error;
        }
      },
      readPieces(take) {
        return readOneByOne(recorded, take);
      },
      // The end is recorded when it is read.
      isEnded: () => false,
      cancel() {
        finish('aborted');
        response.cancel();
      },
    };
    return recorded;
  };

  return {
    send: record,
    async flush() {
      await Promise.all(unsaved);
    },
  };
}

// Records exchanges of the gateway: one file per call, in the format of 11.12 (19 §2.7).

interface ExchangeLogOptions extends WriterOptions {
  readonly adapter: string;
  readonly clock: Clock;
  readonly secrets: readonly string[];
}

/** One call in progress. */
export interface LoggedExchange {
  head(status: number, header: (name: string) => string | null): void;
  piece(bytes: Uint8Array): void;
  /** Writes the file; only the first call does. */
  end(how: Recording['end']): void;
}

export interface ExchangeLog {
  /** @param credentials credentials of the request, removed together with the server's secrets */
  begin(requestId: string, path: string, body: readonly Uint8Array[], credentials: readonly string[]): LoggedExchange;
  /** Resolves when every exchange that has ended is on disk. */
  flush(): Promise<void>;
}

export function createExchangeLog({ adapter, clock, secrets: known, ...where }: ExchangeLogOptions): ExchangeLog {
  const unsaved = new Set<Promise<void>>();
  const writer = createRecordingWriter(where);
  return {
    begin(requestId, path, body, credentials) {
      const secrets = [...known, ...credentials];
      const sent = Buffer.concat(body);
      const startedAt = clock.monotonic();
      const decoder = new TextDecoder();
      const chunks: { at_ms: number; text: string }[] = [];
      const headers: Record<string, string> = {};
      let status: number | null = null;
      let ended = false;
      return {
        head(code, header) {
          status = code;
          for (const name of KEPT_HEADERS) {
            const value = header(name);
            if (value !== null) headers[name] = value;
          }
        },
        piece(bytes) {
          const piece = decoder.decode(bytes, { stream: true });
          chunks.push({ at_ms: Math.round(clock.monotonic() - startedAt), text: piece });
        },
        end(how) {
          if (ended) return;
          ended = true;
          const exchange = { adapter, path, status, headers, chunks, end: how, secrets };
          const saving = writer.save(`${requestId}-1.json`, sent, exchange).finally(() => unsaved.delete(saving));
          unsaved.add(saving);
        },
      };
    },
    async flush() {
      await Promise.all(unsaved);
    },
  };
}

// Files of recordings; a thread formats large ones (11.12, 19 §2.7).

interface RecordingWriter {
  /** Logs a failure; never rejects. */
  save(name: string, body: Buffer, exchange: Exchange): Promise<void>;
}

export interface WriterOptions {
  readonly dir: string;
  readonly log: Logger;
  readonly parser: Pick<ThreadedParser, 'above' | 'makeRecording'>;
}

function createRecordingWriter({ dir, log, parser }: WriterOptions): RecordingWriter {
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
