// Writes every HTTP attempt of an adapter to a folder (11.12).
import type { Clock } from '#protocol/clock.ts';
import type { AttemptInfo, HttpResponse, Send } from '../http/http.ts';
import { createRecordingWriter, type WriterOptions } from '../threads/threaded-parser.ts';
import { type Exchange, KEPT_HEADERS, type Recording } from './recording.ts';

export interface RecorderOptions extends WriterOptions {
  readonly adapter: string;
  readonly send: Send;
  readonly clock: Clock;
  readonly secrets: readonly string[];
}

export interface Recorder {
  readonly send: Send;
  /** Resolves when every attempt begun so far has ended and is on disk. */
  settled(): Promise<void>;
}

export function createRecorder(options: RecorderOptions): Recorder {
  const unsaved = new Set<Promise<void>>();

  const writer = createRecordingWriter(options);

  /** Keeps the attempt among the unsaved ones until its recording is written. */
  function begin(attempt: AttemptInfo, body: readonly Uint8Array[]): (exchange: Exchange) => void {
    let ended: (exchange: Exchange) => void = () => {};
    const name = `${attempt.request.request_id}-${attempt.attempt}.json`;
    const saved = new Promise<Exchange>((resolve) => {
      ended = resolve;
    })
      .then((exchange) => writer.save(name, Buffer.concat(body), exchange))
      .finally(() => unsaved.delete(saved));
    unsaved.add(saved);
    return ended;
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
      if (value !== null) headers[name] = value;
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
