// The reports of `/analytics/*` on separate connections, each report from one snapshot (16 §9).
import type { Analytics } from '#core/ports/report-reader.ts';
import { checkNewestForecasts } from '#store/read/tree-costs.ts';
import { isSliced, slicedCost, stampedCost } from '#store/report/cost-report.ts';
import { quality, reliability, routing } from '#store/report/event-reports.ts';
import { listLedgerDays } from '#store/report/ledger-days.ts';
import { savings } from '#store/report/savings-report.ts';
import type { Read } from '#store/report/slices.ts';
import { listVerified } from '#store/report/verified-report.ts';
import { whatIf } from '#store/report/what-if-report.ts';
import { createReads } from '../connection/patient-reads.ts';
import type { Pool } from '../connection/pool.ts';

export function createAnalytics(pool: Pool): Analytics {
  const ask = <T>(report: (read: Read) => Promise<T>) => pool.report((send) => report(createReads(send).allExact));
  return {
    cost: (query, pricer) =>
      ask((read) => (isSliced(query, pricer) ? slicedCost(read, query, pricer) : stampedCost(read, query))),
    savings: (query, pricer) => ask((read) => savings(read, query, pricer)),
    routing: (query) => ask((read) => routing(read, query)),
    reliability: (query) => ask((read) => reliability(read, query)),
    ledgerDays: (query) => ask((read) => listLedgerDays(read, query)),
    verified: (query, pricer) => ask((read) => listVerified(read, query, pricer)),
    whatIf: (query, pricer) => ask((read) => whatIf(read, query, pricer)),
    quality: (query) => ask((read) => quality(read, query)),
    forecast: () => ask(checkNewestForecasts),
  };
}
