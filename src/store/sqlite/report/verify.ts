// Compares the rollups with the ledger, and the ledger with the events that are still there (07 §9.5).
import type Database from 'better-sqlite3';
import type { LlmCallCompleted } from '../../../domain/event/llm.ts';
import { toPusd } from '../../../kernel/money.ts';
import { ROLLUPS, rollupColumns, rollupFromCalls, TOKEN_COUNTS } from '../schema/rollups.ts';

/** Of each kind; who has more needs a rebuild, not a longer list. */
const MAX_DIFFERENCES = 100;

/** One line per difference, none when all agree. Reads one state of the database, also beside a running server. */
export function verifyRollups(db: Database.Database): readonly string[] {
  return db.transaction(() => [
    ...ROLLUPS.flatMap((rollup) => {
      const stored = `SELECT ${rollupColumns(rollup).join(', ')} FROM ${rollup.table}`;
      const derived = rollupFromCalls(rollup);
      return [
        ...rowsOnlyIn(db, derived, stored).map((row) => `${rollup.table} lacks ${row}`),
        ...rowsOnlyIn(db, stored, derived).map((row) => `${rollup.table} has ${row}, which llm_calls do not give`),
      ];
    }),
    ...ledgerDifferences(db),
  ])();
}

function rowsOnlyIn(db: Database.Database, left: string, right: string): string[] {
  const rows = db
    .prepare(`SELECT * FROM (${left}) EXCEPT SELECT * FROM (${right}) LIMIT ${MAX_DIFFERENCES}`)
    .safeIntegers()
    .all() as Record<string, unknown>[];
  return rows.map((row) =>
    Object.entries(row)
      .map(([column, value]) => `${column}=${value}`)
      .join(' '),
  );
}

interface CallEvent {
  readonly id: string;
  readonly timestamp_ms: number;
  readonly session_id: string;
  readonly turn_id: string | null;
  readonly payload_json: string;
}

/** A fact without an event is no difference: its event was pruned or purged. */
function ledgerDifferences(db: Database.Database): string[] {
  const differences: string[] = [];
  const factOf = db.prepare('SELECT * FROM llm_calls WHERE event_id = ?').safeIntegers();
  const events = db.prepare(
    "SELECT id, timestamp_ms, session_id, turn_id, payload_json FROM events WHERE type = 'llm.call_completed'",
  );
  for (const event of events.iterate() as IterableIterator<CallEvent>) {
    const fact = factOf.get(event.id) as Record<string, unknown> | undefined;
    if (fact === undefined) differences.push(`llm_calls lacks event ${event.id}`);
    else {
      for (const [column, expected] of Object.entries(factFrom(event))) {
        if (String(fact[column]) === String(expected)) continue;
        differences.push(`llm_calls ${event.id}: ${column} is ${fact[column]}, its event says ${expected}`);
      }
    }
    if (differences.length >= MAX_DIFFERENCES) break;
  }
  return differences;
}

/** The columns of a fact that its event determines. */
function factFrom({ timestamp_ms, session_id, turn_id, payload_json }: CallEvent): Record<string, unknown> {
  const call = JSON.parse(payload_json) as LlmCallCompleted;
  return {
    ts_ms: timestamp_ms,
    session_id,
    turn_id,
    root_session_id: call.root_session_id,
    parent_session_id: call.parent_session_id,
    is_worker: Number(call.is_worker),
    model: call.model,
    provider: call.provider,
    pricing_version: call.pricing_version,
    purpose: call.purpose,
    ...Object.fromEntries(TOKEN_COUNTS.map((name) => [name, call[name]])),
    usage_estimated: Number(call.usage_estimated),
    priced: Number(call.priced),
    cancelled: Number(call.stop_reason === 'cancelled'),
    latency_ms: call.latency_ms,
    cost_pusd: toPusd(call.cost_usd),
  };
}
