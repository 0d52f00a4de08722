// The history of a session: a worker that continues another one, and a fork, begin with messages of earlier sessions (20 §3, 21 §4).
import { extendHistory } from '#core/policy/context/session-history.ts';
import { omitThinking } from '#core/policy/session/fork-point.ts';
import type { StoredMessage } from '#protocol/message.ts';
import type { Checkpoint } from '#protocol/prompt-parts.ts';
import type { SessionRecord } from '#protocol/session.ts';
import type { Storage } from '../state/engine.ts';

type Reader = Pick<Storage, 'store'>;
type Link = Pick<SessionRecord, 'id' | 'continues_session_id' | 'forked_from_session_id' | 'active_model'>;

/** The messages of earlier sessions that it begins with, then its own; the oldest first. */
export async function readHistory(engine: Reader, session: Link): Promise<readonly StoredMessage[]> {
  const own = await engine.store.messages.history(session.id);
  if (session.forked_from_session_id !== null)
    return extendHistory(omitThinking(await engine.store.messages.prefix(session.id), session.active_model), ...own);
  const earlier = await readEarlier(engine, session);
  if (earlier === null) return own;
  return extendHistory(await readHistory(engine, earlier), ...own);
}

/** The checkpoints of these messages, so that what was cached stays cached. */
export async function readCheckpoints(engine: Reader, session: Link): Promise<readonly Checkpoint[]> {
  const own = await engine.store.messages.checkpoints(session.id);
  if (session.forked_from_session_id !== null)
    return [...(await engine.store.messages.prefixCheckpoints(session.id)), ...own];
  const earlier = await readEarlier(engine, session);
  if (earlier === null) return own;
  return [...(await readCheckpoints(engine, earlier)), ...own];
}

/** The session that it continues. */
export async function readEarlier(
  { store }: Reader,
  { continues_session_id: id }: Pick<Link, 'continues_session_id'>,
): Promise<SessionRecord | null> {
  if (id === null) return null;
  return store.sessions.record(id);
}
