// The history of a session: a worker that continues another one begins with the messages of that one (20 §3).
import { extendHistory } from '#core/policy/context/session-history.ts';
import type { StoredMessage } from '#protocol/message.ts';
import type { Checkpoint } from '#protocol/prompt-parts.ts';
import type { SessionRecord } from '#protocol/session.ts';
import type { Storage } from '../state/engine.ts';

type Reader = Pick<Storage, 'store'>;
type Link = Pick<SessionRecord, 'id' | 'continues_session_id'>;

/** The messages of the workers that it continues, then its own; the oldest first. */
export async function readHistory(engine: Reader, session: Link): Promise<readonly StoredMessage[]> {
  const own = await engine.store.messages.history(session.id);
  const earlier = await readEarlier(engine, session);
  if (earlier === null) return own;
  return extendHistory(await readHistory(engine, earlier), ...own);
}

/** The checkpoints of these messages, so that what was cached stays cached. */
export async function readCheckpoints(engine: Reader, session: Link): Promise<readonly Checkpoint[]> {
  const own = await engine.store.messages.checkpoints(session.id);
  const earlier = await readEarlier(engine, session);
  if (earlier === null) return own;
  return [...(await readCheckpoints(engine, earlier)), ...own];
}

/** The session that it continues. */
export async function readEarlier(
  { store }: Reader,
  { continues_session_id: id }: Link,
): Promise<SessionRecord | null> {
  if (id === null) return null;
  return store.sessions.record(id);
}
