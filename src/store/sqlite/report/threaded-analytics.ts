// The reports on a thread of their own, so that a long one holds up no turn and no stream (07 §9.4).
import { Worker } from 'node:worker_threads';
import type { Logger } from '#core/ports/logger.ts';
import type { Analytics, CallPricer } from '#core/ports/report-reader.ts';
import type { Answer, PriceRates, Question, ThreadSetup } from './analytics-thread.ts';

export interface ThreadedAnalytics extends Analytics {
  /** Rejects reports in progress. */
  close(): Promise<void>;
}

interface Waiting {
  resolve(value: never): void;
  reject(error: unknown): void;
}

/**
 * Starts its thread with the first report, and again after one that died.
 * @param program path of `analytics-thread`, built or as source
 */
export function createThreadedAnalytics(program: string, setup: ThreadSetup, log: Logger): ThreadedAnalytics {
  const waiting = new Map<number, Waiting>();
  let thread: Worker | null = null;
  let asked = 0;

  function start(): Worker {
    const worker = new Worker(program, { workerData: setup });
    worker.unref();
    worker.on('message', (answer: Answer) => {
      const report = waiting.get(answer.id);
      waiting.delete(answer.id);
      if (answer.ok) report?.resolve(answer.value as never);
      else report?.reject(new Error(answer.reason));
    });
    worker.on('error', (err) => log.error({ err }, 'the thread of the reports failed'));
    worker.on('exit', () => {
      if (thread === worker) thread = null;
      for (const [, report] of waiting) report.reject(new Error('the thread of the reports has ended'));
      waiting.clear();
    });
    return worker;
  }

  function ask<T>(question: DistributiveOmit<Question, 'id' | 'prices'>, pricer: CallPricer | null): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const id = ++asked;
      const prices = pricer && toRates(pricer);
      thread ??= start();
      waiting.set(id, { resolve, reject });
      thread.postMessage({ ...question, id, prices });
    });
  }

  return {
    cost: (query, pricer) => ask({ report: 'cost', query }, pricer),
    savings: (query, pricer) => ask({ report: 'savings', query }, pricer),
    routing: (query) => ask({ report: 'routing', query }, null),
    reliability: (query) => ask({ report: 'reliability', query }, null),
    ledgerDays: (query) => ask({ report: 'ledgerDays', query }, null),
    verified: (query, pricer) => ask({ report: 'verified', query }, pricer),
    whatIf: (query, pricer) => ask({ report: 'whatIf', query }, pricer),
    quality: (query) => ask({ report: 'quality', query }, null),
    forecast: () => ask({ report: 'forecast', query: undefined }, null),
    async close() {
      await thread?.terminate();
    },
  };
}

type DistributiveOmit<T, K extends keyof T> = T extends unknown ? Omit<T, K> : never;

function toRates({ version, source, models }: CallPricer): PriceRates {
  return { version, source, models };
}
