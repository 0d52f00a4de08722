// Writes every HTTP attempt of an adapter to a folder (11.12).
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../kernel/clock.ts';
import { makeFolder } from '../kernel/folder.ts';
import { scrubSecrets } from '../kernel/scrub.ts';
import type { Logger } from '../ports/log.ts';
import { ATTEMPT, type AttemptInfo } from './http.ts';
import { KEPT_HEADERS, type Recording, withoutSecrets } from './recording.ts';

export interface RecorderOptions {
  readonly dir: string;
  readonly adapter: string;
  readonly fetch: typeof fetch;
  readonly clock: Clock;
  readonly secrets: readonly string[];
  readonly log: Logger;
}

export interface Recorder {
  readonly fetch: typeof fetch;
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

  const record: typeof fetch = async (input, init) => {
    const attempt = (init as { [ATTEMPT]?: AttemptInfo } | undefined)?.[ATTEMPT];
    if (attempt === undefined) return options.fetch(input, init);
    const ended = begin(attempt);
    const startedAt = options.clock.monotonic();
    const chunks: { at_ms: number; text: string }[] = [];
    let status: number | null = null;
    const headers: Record<string, string> = {};
    const finish = (end: Recording['end']) =>
      ended({
        schema_version: 1,
        adapter: options.adapter,
        method: init?.method ?? 'GET',
        path: new URL(String(input)).pathname,
        body: withoutSecrets(JSON.parse(String(init?.body ?? 'null')), options.secrets),
        status,
        headers,
        chunks: clean(chunks, options.secrets),
        end,
      });
    const stopped = () => (init?.signal?.aborted ? 'aborted' : 'network');

    let response: Response;
    try {
      response = await options.fetch(input, init);
    } catch (error) {
      finish(stopped());
      throw error;
    }
    status = response.status;
    for (const name of KEPT_HEADERS) {
      const value = response.headers.get(name);
      if (value !== null) headers[name] = scrubSecrets(value, options.secrets);
    }
    const body = response.body?.getReader() ?? null;
    if (body === null) {
      finish('complete');
      return response;
    }
    const text = new TextDecoder();
    const keep = (decoded: string) => {
      if (decoded !== '') chunks.push({ at_ms: Math.round(options.clock.monotonic() - startedAt), text: decoded });
    };
    const copy = new ReadableStream<Uint8Array>({
      async pull(controller) {
        try {
          const { done, value } = await body.read();
          if (done) {
            keep(text.decode());
            controller.close();
            finish('complete');
          } else {
            keep(text.decode(value, { stream: true }));
            controller.enqueue(value);
          }
        } catch (error) {
          finish(stopped());
          throw error;
        }
      },
      async cancel(reason) {
        finish('aborted');
        await body.cancel(reason);
      },
    });
    return new Response(copy, { status: response.status, headers: response.headers });
  };

  return {
    fetch: record,
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
