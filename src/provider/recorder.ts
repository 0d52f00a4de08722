// Writes every HTTP attempt of an adapter to a folder (11.12).
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../kernel/clock.ts';
import { makeFolder } from '../kernel/folder.ts';
import { scrubSecrets } from '../kernel/scrub.ts';
import type { Logger } from '../ports/log.ts';
import { KEPT_HEADERS, type Recording, withoutSecrets } from './recording.ts';
import type { AttemptInfo, HttpResponse, Send } from './send.ts';

export interface RecorderOptions {
  readonly dir: string;
  readonly adapter: string;
  readonly send: Send;
  readonly clock: Clock;
  readonly secrets: readonly string[];
  readonly log: Logger;
}

export interface Recorder {
  readonly send: Send;
  /** Resolves when every attempt begun so far has ended and is on disk. */
  settled(): Promise<void>;
}

export function createRecorder(options: RecorderOptions): Recorder {
  const unsaved = new Set<Promise<void>>();

  /** Keeps the attempt among the unsaved ones until its recording is written. */
  function begin(attempt: AttemptInfo): (recording: Recording) => void {
    let ended: (recording: Recording) => void = () => {};
    const saved = new Promise<Recording>((resolve) => {
      ended = resolve;
    })
      .then((recording) => save(attempt, recording))
      .finally(() => unsaved.delete(saved));
    unsaved.add(saved);
    return ended;
  }

  async function save(attempt: AttemptInfo, recording: Recording): Promise<void> {
    const file = join(options.dir, `${attempt.request.request_id}-${attempt.attempt}.json`);
    try {
      makeFolder(options.dir, 0o700);
      await writeFile(file, JSON.stringify(recording, null, 1), { mode: 0o600 });
    } catch (error) {
      options.log.warn({ file, error: String(error) }, 'an exchange could not be recorded');
    }
  }

  const record: Send = async (request) => {
    if (request.of === null) return options.send(request);
    const ended = begin(request.of);
    const body = [...request.body];
    const startedAt = options.clock.monotonic();
    const chunks: { at_ms: number; text: string }[] = [];
    let status: number | null = null;
    const headers: Record<string, string> = {};
    const finish = (end: Recording['end']) =>
      ended({
        schema_version: 1,
        adapter: options.adapter,
        method: 'POST',
        path: new URL(request.url).pathname,
        body: withoutSecrets(JSON.parse(Buffer.concat(body).toString('utf8')), options.secrets),
        status,
        headers,
        chunks: clean(chunks, options.secrets),
        end,
      });
    const stopped = () => (request.signal.aborted ? 'aborted' : 'network');

    let response: HttpResponse;
    try {
      response = await options.send({ ...request, body });
    } catch (error) {
      finish(stopped());
      throw error;
    }
    status = response.status;
    for (const name of KEPT_HEADERS) {
      const value = response.header(name);
      if (value !== null) headers[name] = scrubSecrets(value, options.secrets);
    }
    const text = new TextDecoder();
    const keep = (decoded: string) => {
      if (decoded !== '') chunks.push({ at_ms: Math.round(options.clock.monotonic() - startedAt), text: decoded });
    };
    // The first end counts: a body may be read to its end, break off and be cut, in whatever order.
    return {
      ...response,
      async read() {
        try {
          const piece = await response.read();
          keep(piece === null ? text.decode() : text.decode(piece, { stream: true }));
          if (piece === null) finish('complete');
          return piece;
        } catch (error) {
          finish(stopped());
          throw error;
        }
      },
      // Its end is recorded when it has been read.
      ended: () => false,
      cancel() {
        finish('aborted');
        response.cancel();
      },
    };
  };

  return {
    send: record,
    async settled() {
      await Promise.all(unsaved);
    },
  };
}

/** Pieces as they came, or, when a credential is in them, all in one with it taken out: it may lie across two pieces. */
function clean(chunks: readonly { at_ms: number; text: string }[], secrets: readonly string[]): Recording['chunks'] {
  const whole = chunks.map((c) => c.text).join('');
  const scrubbed = scrubSecrets(whole, secrets);
  return scrubbed === whole ? [...chunks] : [{ at_ms: chunks[0]?.at_ms ?? 0, text: scrubbed }];
}
