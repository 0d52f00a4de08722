// Messages that wait for a running turn: stored at once, gone when the turn has read them (20 §4).
import type Database from 'better-sqlite3';
import { JournalConflict } from '#core/ports/journal-writer.ts';
import { MAX_TURN_INPUTS } from '#protocol/turn.ts';
import { json } from '#store/schema/values.ts';
import * as sql from '#store/write/turns.ts';
import { insertInto } from '../connection/named.ts';
import type { Appliers } from './writes.ts';

export function inputWrites(db: Database.Database): Appliers<'turn_input.insert' | 'turn_input.read'> {
  const insert = insertInto(db, 'turn_inputs', sql.INPUT_COLUMNS);
  const waiting = db.prepare<[string], number>(sql.INPUTS_WAITING).pluck();
  const remove = db.prepare<[string]>(sql.READ_INPUT);
  return {
    'turn_input.insert': ({ input: { content, ...input } }) => {
      if ((waiting.get(input.turn_id) ?? 0) >= MAX_TURN_INPUTS)
        throw new JournalConflict('inputs_full', `${MAX_TURN_INPUTS} inputs wait for turn ${input.turn_id}`);
      insert({ ...input, content_json: json(content) });
    },
    'turn_input.read': ({ id }) => {
      if (remove.run(id).changes === 0) throw new Error(`no input ${id}`);
    },
  };
}
