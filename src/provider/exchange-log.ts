// Keeps exchanges of the gateway as files, where that was asked for: one a call, as in 11.12 (19 §2.7).

import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../kernel/clock.ts';
import { makeFolder } from '../kernel/folder.ts';
import { scrubSecrets } from '../kernel/scrub.ts';
import type { Logger } from '../ports/log.ts';
import { KEPT_HEADERS, type Recording, withoutSecrets } from './recording.ts';

export interface ExchangeLogOptions {
  readonly dir: string;
  readonly adapter: string;
  readonly clock: Clock;
  readonly secrets: readonly string[];
  readonly log: Logger;
}

/** One call while it is under way. */
export interface LoggedExchange {
  head(status: number, header: (name: string) => string | null): void;
  piece(bytes: Uint8Array): void;
  /** Writes the file; only the first call does. */
  end(how: Recording['end']): void;
}

export interface ExchangeLog {
  begin(requestId: string, path: string, body: readonly Uint8Array[]): LoggedExchange;
  /** Resolves when every exchange that has ended is on disk. */
  settled(): Promise<void>;
}

export function createExchangeLog({ dir, adapter, clock, secrets, log }: ExchangeLogOptions): ExchangeLog {
  const unsaved = new Set<Promise<void>>();

  async function save(file: string, recording: Recording): Promise<void> {
    try {
      makeFolder(dir, 0o700);
      await writeFile(file, JSON.stringify(recording, null, 1), { mode: 0o600 });
    } catch (error) {
      log.warn({ file, error: String(error) }, 'an exchange could not be recorded');
    }
  }
  return {
    begin(requestId, path, body) {
      const text = Buffer.concat(body).toString('utf8');
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
            if (value !== null) headers[name] = scrubSecrets(value, secrets);
          }
        },
        piece(bytes) {
          const piece = decoder.decode(bytes, { stream: true });
          chunks.push({ at_ms: Math.round(clock.monotonic() - startedAt), text: piece });
        },
        end(how) {
          if (ended) return;
          ended = true;
          const whole = scrubSecrets(chunks.map((chunk) => chunk.text).join(''), secrets);
          const clean = whole === chunks.map((chunk) => chunk.text).join('');
          const saving = save(join(dir, `${requestId}-1.json`), {
            schema_version: 1,
            adapter,
            method: 'POST',
            path,
            body: withoutSecrets(JSON.parse(text), secrets),
            status,
            headers,
            // A credential may lie across two pieces.
            chunks: clean ? chunks : [{ at_ms: chunks[0]?.at_ms ?? 0, text: whole }],
            end: how,
          }).finally(() => unsaved.delete(saving));
          unsaved.add(saving);
        },
      };
    },
    async settled() {
      await Promise.all(unsaved);
    },
  };
}
