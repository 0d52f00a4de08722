// What nodes that watch a tree must know of it beside its rows (16 §6).
import type { Standing } from '#core/ports/tree-ownership.ts';
import type { Send } from '../postgres/connection/client.ts';

const STANDINGS = `SELECT root_session_id AS root, owner_epoch AS epoch, seq FROM trees
  WHERE root_session_id = ANY (CAST(? AS text[]))`;
/** Of 244 bits of chance. */
const MAKE_KEY = `INSERT INTO meta (key, value)
  VALUES ('frame_key', CAST(gen_random_uuid() AS text) || CAST(gen_random_uuid() AS text)) ON CONFLICT DO NOTHING`;
const KEY = `SELECT value FROM meta WHERE key = 'frame_key'`;

/** Of those that are there, in one query. */
export async function standings(send: Send, roots: readonly string[]): Promise<readonly Standing[]> {
  return (await send<Standing>(STANDINGS, [roots])).rows;
}

/** What seals the frames of this database's nodes: made by the first of them. */
export async function frameKey(send: Send): Promise<Buffer> {
  await send(MAKE_KEY, []);
  const { rows } = await send<{ value: string }>(KEY, []);
  return Buffer.from(rows[0]!.value);
}
