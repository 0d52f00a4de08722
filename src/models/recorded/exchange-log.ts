// Keeps exchanges of the gateway as files, where that was asked for: one a call, as in 11.12 (19 §2.7).
import type { Clock } from '#protocol/clock.ts';
import { createRecordingWriter, type WriterOptions } from '../threads/threaded-parser.ts';
import { KEPT_HEADERS, type Recording } from './recording.ts';

export interface ExchangeLogOptions extends WriterOptions {
  readonly adapter: string;
  readonly clock: Clock;
  readonly secrets: readonly string[];
}

/** One call while it is under way. */
export interface LoggedExchange {
  head(status: number, header: (name: string) => string | null): void;
  piece(bytes: Uint8Array): void;
  /** Writes the file; only the first call does. */
  end(how: Recording['end']): void;
}

export interface ExchangeLog {
  /** @param credentials those of the request, taken out beside the server's secrets */
  begin(requestId: string, path: string, body: readonly Uint8Array[], credentials: readonly string[]): LoggedExchange;
  /** Resolves when every exchange that has ended is on disk. */
  settled(): Promise<void>;
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
    async settled() {
      await Promise.all(unsaved);
    },
  };
}
