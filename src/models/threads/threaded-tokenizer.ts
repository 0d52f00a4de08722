// Counts tokens on a thread, which starts with the first text, so that large texts do not block the event loop (14 §2).
import { Worker } from 'node:worker_threads';
import type { Tokenizer } from '#core/ports/body-parser.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { Clock } from '#protocol/clock.ts';
import type { CountAnswer, CountQuestion } from './tokenizer-thread.ts';

export interface ThreadedTokenizer extends Tokenizer {
  /** Pending counts resolve to null. */
  close(): Promise<void>;
}

/** Maximum wait of a call; afterwards the byte length serves as upper bound. */
const MOST_MS = 2000;
/** Maximum characters of waiting texts: more could not be counted in time. */
const MOST_WAITING = 8_388_608;

/** @param program path of `tokenizer-thread`, built or as source */
export function createThreadedTokenizer(program: string, clock: Clock, log: Logger): ThreadedTokenizer {
  const waiting = new Map<number, (tokens: number | null) => void>();
  let size = 0;
  let thread: Worker | null = null;
  let asked = 0;

  function start(): Worker {
    const worker = new Worker(program);
    worker.unref();
    worker.on('message', ({ id, tokens }: CountAnswer) => waiting.get(id)?.(tokens));
    worker.on('error', (err) => log.error({ err }, 'the thread of the tokenizer failed; texts are bounded by bytes'));
    worker.on('exit', () => {
      if (thread === worker) thread = null;
      for (const settle of [...waiting.values()]) settle(null);
    });
    return worker;
  }

  return {
    count(name, texts) {
      const length = texts.reduce((sum, text) => sum + text.length, 0);
      if (size + length > MOST_WAITING) return Promise.resolve(null);
      return new Promise((resolve) => {
        const id = ++asked;
        const settleCount = (tokens: number | null) => {
          if (!waiting.delete(id)) return;
          size -= length;
          timer.cancel();
          resolve(tokens);
        };
        const timer = clock.after(MOST_MS, () => settleCount(null));
        size += length;
        waiting.set(id, settleCount);
        thread ??= start();
        thread.postMessage({ id, name, texts } satisfies CountQuestion);
      });
    },
    async close() {
      await thread?.terminate();
    },
  };
}
