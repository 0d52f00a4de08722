// Checkpoints of compaction as their table holds them (01 §11.3).
import type { Checkpoint } from '#protocol/prompt-parts.ts';
import { json } from '../schema/values.ts';

export const COLUMNS = [
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

export function checkpointRow(checkpoint: Checkpoint) {
  const { id, session_id, kind, tokens_before, tokens_after, created_at } = checkpoint;
  return { id, session_id, kind, tokens_before, tokens_after, created_at, ...ofKind(checkpoint) };
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
