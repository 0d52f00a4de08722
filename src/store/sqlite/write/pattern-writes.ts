// Changes of learned patterns; sums are kept by the database, so that a purge in between is not undone (12 §12.3).
import type Database from 'better-sqlite3';
import { JournalConflict } from '#core/ports/journal-writer.ts';
import { toPusd } from '#protocol/money.ts';
import * as sql from '#store/write/patterns.ts';
import { named } from '../connection/named.ts';
import type { Appliers } from './writes.ts';

export function patternWrites(db: Database.Database): Appliers<'pattern.record' | 'pattern.score' | 'pattern.forget'> {
  const fingerprint = named(db, sql.FINGERPRINT);
  const outcome = named(db, sql.OUTCOME);
  const turn = named(db, sql.TURN);
  const scored = named<sql.Scored>(db, sql.SCORED);
  const scoreTurn = named(db, sql.SCORE_TURN);
  const scoreOutcome = named(db, sql.SCORE_OUTCOME);
  const forget = named(db, sql.FORGET);
  const dropEmpty = db.prepare<[string]>(sql.DROP_EMPTY);

  return {
    'pattern.record': ({ record }) => {
      fingerprint.run(record);
      const scored = record.score === null ? 0 : 1;
      outcome.run({ ...record, cost_pusd: toPusd(record.cost_usd), mean: record.score ?? 0, scored });
      if (turn.run(record).changes === 0) throw new JournalConflict('turn_gone', `no turn ${record.turn_id}`);
    },
    'pattern.score': (write) => {
      const place = scored.get(write);
      if (place === undefined || (place.before !== null && !write.replaces))
        throw new Error(`turn ${write.turn_id} takes no score`);
      scoreTurn.run(write);
      scoreOutcome.run({ ...write, ...place, added: place.before === null ? 1 : 0 });
    },
    'pattern.forget': ({ fingerprint_id, primary_model }) => {
      forget.run({ fingerprint_id, primary_model });
      dropEmpty.run(fingerprint_id);
    },
  };
}

/** Takes the turns of sessions out of what was learned, for a purge: call it before their rows go. */
export function createUnlearner(db: Database.Database): (sessionIds: string) => void {
  const subtract = db.prepare(sql.SUBTRACT);
  const forgetTurns = db.prepare(sql.FORGET_TURNS);
  const forgetOutcomes = db.prepare(sql.FORGET_OUTCOMES);
  const dropEmpty = db.prepare<[string]>(sql.DROP_EMPTY);
  return (sessionIds) => {
    const left = subtract.all(sessionIds) as { readonly fingerprint_id: string; readonly sample_size: number }[];
    forgetTurns.run(sessionIds);
    for (const { fingerprint_id, sample_size } of left) {
      if (sample_size > 0) continue;
      forgetOutcomes.run(fingerprint_id);
      dropEmpty.run(fingerprint_id);
    }
  };
}
