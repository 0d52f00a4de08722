// The thread of the reports: its own read-only connection, one answer per question (07 §9.4).

import os from 'node:os';
import { parentPort, workerData } from 'node:worker_threads';
import { type PriceTable, storedPriceTable } from '#core/policy/pricing/price-table.ts';
import type { Analytics, CallPricer } from '#core/ports/report-reader.ts';
import { readErrorMessage } from '#protocol/text/error-message.ts';
import { openReader } from '../connection/open.ts';
import { createAnalytics } from './analytics.ts';

export interface ThreadSetup {
  readonly path: string;
  readonly freeProviders: readonly string[];
}

/** Functions do not cross to a thread: a price table goes as its rates. */
export type PriceRates = Pick<CallPricer, 'version' | 'source' | 'models'>;

export type Question = { readonly id: number; readonly prices: PriceRates | null } & {
  [Report in keyof Analytics]: { readonly report: Report; readonly query: Parameters<Analytics[Report]>[0] };
}[keyof Analytics];

export type Answer = { readonly id: number } & (
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly reason: string }
);

// Streams have priority. Under constant reports a chunk arrived 3.6 times as late; with this it arrives as without reports.
// Only on Linux does this apply to one thread; elsewhere it would lower the priority of the whole server.
const NICE = 10;
if (process.platform === 'linux') os.setPriority(NICE);

const { path, freeProviders } = workerData as ThreadSetup;
const analytics = createAnalytics(openReader(path));
let table: PriceTable | null = null;

function loadTable({ version, source, models }: PriceRates): PriceTable {
  if (table?.version === version) return table;
  // The caller has a whole price table; the port declares only the part that reports read.
  table = storedPriceTable({ version, source, models: models as PriceTable['models'] }, { freeProviders });
  return table;
}

function ask(question: Question): Promise<unknown> {
  const pricer = question.prices && loadTable(question.prices);
  switch (question.report) {
    case 'cost':
      return analytics.cost(question.query, pricer);
    case 'savings':
      if (pricer === null) throw new Error('savings need prices');
      return analytics.savings(question.query, pricer);
    case 'routing':
      return analytics.routing(question.query);
    case 'reliability':
      return analytics.reliability(question.query);
    case 'ledgerDays':
      return analytics.ledgerDays(question.query);
    case 'verified':
      if (pricer === null) throw new Error('the report needs prices');
      return analytics.verified(question.query, pricer);
    case 'whatIf':
      if (pricer === null) throw new Error('the report needs prices');
      return analytics.whatIf(question.query, pricer);
    case 'quality':
      return analytics.quality(question.query);
    case 'forecast':
      return analytics.forecast();
  }
}

async function answer(question: Question): Promise<Answer> {
  const { id } = question;
  try {
    return { id, ok: true, value: await ask(question) };
  } catch (error) {
    // Errors of the driver lose their message on the way to another thread.
    return { id, ok: false, reason: readErrorMessage(error) };
  }
}

parentPort?.on('message', (question: Question) => {
  void answer(question).then((found) => parentPort?.postMessage(found));
});
