// Finding a session that takes turns and settings (05 §3.1).

import { AppError } from '#protocol/errors.ts';
import type { SessionRecord } from '#protocol/session.ts';
import type { Engine } from '../state/engine.ts';

/** Any session that has not ended. Throws `not_found` or `session_already_ended`. */
export async function openSession(engine: Engine, id: string): Promise<SessionRecord> {
  const session = await knownSession(engine, id);
  if (session.ended_at !== null || engine.ending.has(session.id)) throw alreadyEnded();
  return session;
}

/** A top-level session. Throws `not_found` or `session_is_worker`. */
export async function topLevelSession(engine: Engine, id: string): Promise<SessionRecord> {
  const session = await knownSession(engine, id);
  if (session.is_worker) throw belongsToDelegation();
  return session;
}

async function knownSession(engine: Engine, id: string): Promise<SessionRecord> {
  const session = await engine.store.sessions.record(id);
  if (!session) throw new AppError('not_found', `no session with id ${id}`, { resource: 'session' });
  return session;
}

export function belongsToDelegation(): AppError {
  return new AppError(
    'session_is_worker',
    'this session belongs to a delegation: it can be read, its running turn steered or cancelled, nothing else',
  );
}

/** A top-level session that takes turns and settings. Throws `not_found`, `session_is_worker`, `session_already_ended`. */
export async function liveSession(engine: Engine, id: string): Promise<SessionRecord> {
  const session = await topLevelSession(engine, id);
  if (session.ended_at !== null || engine.ending.has(session.id)) throw alreadyEnded();
  return session;
}

export function alreadyEnded(): AppError {
  return new AppError('session_already_ended', 'this session has ended');
}
