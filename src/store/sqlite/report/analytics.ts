// The reports of `/analytics/*` over one read-only connection (07 §9.4).
import type Database from 'better-sqlite3';
import type { Analytics } from '#core/ports/report-reader.ts';
import { checkNewestForecasts } from '#store/read/tree-costs.ts';
import { isSliced, slicedCost, stampedCost } from '#store/report/cost-report.ts';
import { quality, reliability, routing } from '#store/report/event-reports.ts';
import { listLedgerDays } from '#store/report/ledger-days.ts';
import { savings } from '#store/report/savings-report.ts';
import { listVerified } from '#store/report/verified-report.ts';
import { whatIf } from '#store/report/what-if-report.ts';
import { createReads } from '../connection/reads.ts';

/** @param reader the `query_only` connection of the open database */
export function createAnalytics(reader: Database.Database): Analytics {
  const { allExact: read } = createReads(reader);
  const atOneMoment = createMoments(reader);
  return {
    cost: (query, pricer) =>
      isSliced(query, pricer) ? slicedCost(read, query, pricer) : atOneMoment(() => stampedCost(read, query)),
    savings: (query, pricer) => savings(read, query, pricer),
    routing: (query) => routing(read, query),
    reliability: (query) => reliability(read, query),
    ledgerDays: (query) => listLedgerDays(read, query),
    verified: (query, pricer) => listVerified(read, query, pricer),
    whatIf: (query, pricer) => whatIf(read, query, pricer),
    quality: (query) => atOneMoment(() => quality(read, query)),
    forecast: () => checkNewestForecasts(read),
  };
}

/** Read transactions run one after the other, since a connection has one at a time. Other reads on it see the same snapshot. */
function createMoments(reader: Database.Database): <T>(work: () => Promise<T>) => Promise<T> {
  const begin = reader.prepare('BEGIN');
  const commit = reader.prepare('COMMIT');
  let last: Promise<unknown> = Promise.resolve();
  return (work) => {
    const turn = last.then(async () => {
      begin.run();
      try {
        return await work();
      } finally {
        commit.run();
      }
    });
    last = turn.catch(() => {});
    return turn;
  };
}
