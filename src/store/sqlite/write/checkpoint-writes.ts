// Checkpoints of compaction: inserted once, changed never (01 §11.3).
import type Database from 'better-sqlite3';
import type { Checkpoint } from '../../../domain/context/checkpoint.ts';
import { insertInto, json } from '../connection/named.ts';
import type { Appliers } from './writes.ts';

const COLUMNS = [
  'id',
  'session_id',
  'kind',
  'message_ids_json',
  'through_message_id',
  'summary_text',
  'tokens_before',
  'tokens_after',
  'model',
  'created_at',
] as const;

export function checkpointWrites(db: Database.Database): Appliers<'checkpoint.insert'> {
  const insert = insertInto(db, 'compaction_checkpoints', COLUMNS);
  return {
    'checkpoint.insert': ({ checkpoint }) => {
      const { id, session_id, kind, tokens_before, tokens_after, created_at } = checkpoint;
      insert({ id, session_id, kind, tokens_before, tokens_after, created_at, ...ofKind(checkpoint) });
    },
  };
}

function ofKind(checkpoint: Checkpoint) {
  return checkpoint.kind === 'elide'
    ? {
        message_ids_json: json(checkpoint.message_ids),
        through_message_id: null,
        summary_text: null,
        model: null,
      }
    : { message_ids_json: null, ...checkpoint };
}
