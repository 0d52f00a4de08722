// The history of a session: a worker that continues another one, and a fork, begin with messages of earlier sessions (20 §3, 21 §4).
import { extendHistory } from '#core/policy/context/session-history.ts';
import { omitThinking } from '#core/policy/session/fork-point.ts';
import type { Awaitable } from '#protocol/async/awaitable.ts';
import type { StoredMessage } from '#protocol/message.ts';
import type { Checkpoint } from '#protocol/prompt-parts.ts';
import type { SessionRecord } from '#protocol/session.ts';
import type { Storage } from '../state/engine.ts';

type Reader = Pick<Storage, 'store'>;
type Link = Pick<SessionRecord, 'id' | 'continues_session_id' | 'forked_from_session_id' | 'active_model'>;

/** The messages of earlier sessions that it begins with, then its own; the oldest first. */
export function readHistory(engine: Reader, session: Link): Awaitable<readonly StoredMessage[]> {
  const own = engine.store.messages.history(session.id);
  if (!hasBeginning(session)) return own;
  return readLongHistory(engine, session, own);
}

async function readLongHistory(
  engine: Reader,
  session: Link,
  own: Awaitable<readonly StoredMessage[]>,
): Promise<readonly StoredMessage[]> {
  const messages = await own;
  if (session.forked_from_session_id !== null)
    return extendHistory(
      omitThinking(await engine.store.messages.prefix(session.id), session.active_model),
      ...messages,
    );
  const earlier = await readEarlier(engine, session);
  if (earlier === null) return messages;
  return extendHistory(await readHistory(engine, earlier), ...messages);
}

/** Whether the session may begin with messages of earlier ones. */
function hasBeginning({ forked_from_session_id, continues_session_id }: Link): boolean {
  return forked_from_session_id !== null || continues_session_id !== null;
}

/** The checkpoints of these messages, so that what was cached stays cached. */
export function readCheckpoints(engine: Reader, session: Link): Awaitable<readonly Checkpoint[]> {
  const own = engine.store.messages.checkpoints(session.id);
  if (!hasBeginning(session)) return own;
  return readAllCheckpoints(engine, session, own);
}

async function readAllCheckpoints(
  engine: Reader,
  session: Link,
  own: Awaitable<readonly Checkpoint[]>,
): Promise<readonly Checkpoint[]> {
  const checkpoints = await own;
  if (session.forked_from_session_id !== null)
    return [...(await engine.store.messages.prefixCheckpoints(session.id)), ...checkpoints];
  const earlier = await readEarlier(engine, session);
  if (earlier === null) return checkpoints;
  return [...(await readCheckpoints(engine, earlier)), ...checkpoints];
}

/** The session that it continues. */
export async function readEarlier(
  { store }: Reader,
  { continues_session_id: id }: Pick<Link, 'continues_session_id'>,
): Promise<SessionRecord | null> {
  if (id === null) return null;
  return store.sessions.record(id);
}
