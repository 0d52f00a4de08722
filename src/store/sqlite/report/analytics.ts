// The reports of `/analytics/*` over one read-only connection (07 §9.4).
import type Database from 'better-sqlite3';
import type { Analytics } from '../../../ports/analytics.ts';
import { createStatementCache } from '../connection/statements.ts';
import { stampedCost } from './cost-report.ts';
import { reliability } from './reliability-report.ts';
import { repricedCost } from './repriced-cost.ts';
import { routing } from './routing-report.ts';
import { savings } from './savings-report.ts';

/** @param reader the `query_only` connection of the open database */
export function createAnalytics(reader: Database.Database): Analytics {
  const prepare = createStatementCache(reader);
  return {
    cost: async (query, pricer) =>
      pricer ? repricedCost(prepare, query, pricer) : stampedCost(reader, prepare, query),
    savings: (query, pricer) => savings(prepare, query, pricer),
    routing: (query) => routing(prepare, query),
    reliability: (query) => reliability(prepare, query),
  };
}
