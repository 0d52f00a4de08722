// The reports of `/analytics/*` over one read-only connection (07 §9.4).
import type Database from 'better-sqlite3';
import type { Analytics } from '../../../ports/analytics.ts';
import { stampedCost } from '../../sql/report/cost-report.ts';
import { quality } from '../../sql/report/quality-report.ts';
import { reliability } from '../../sql/report/reliability-report.ts';
import { repricedCost } from '../../sql/report/repriced-cost.ts';
import { routing } from '../../sql/report/routing-report.ts';
import { savings } from '../../sql/report/savings-report.ts';
import type { Read } from '../../sql/report/slices.ts';
import { createStatementCache } from '../connection/statements.ts';

/** @param reader the `query_only` connection of the open database */
export function createAnalytics(reader: Database.Database): Analytics {
  const prepare = createStatementCache<never>(reader);
  const read: Read = async (sql, ...values) =>
    prepare(sql)
      .safeIntegers()
      .all(...values);
  const atOneMoment = createMoments(reader);
  return {
    cost: (query, pricer) => (pricer ? repricedCost(read, query, pricer) : atOneMoment(() => stampedCost(read, query))),
    savings: (query, pricer) => savings(read, query, pricer),
    routing: (query) => routing(read, query),
    reliability: (query) => reliability(read, query),
    quality: (query) => atOneMoment(() => quality(read, query)),
  };
}

/** One read transaction after the other: a connection has one at a time. What else reads meanwhile sees the same moment. */
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
