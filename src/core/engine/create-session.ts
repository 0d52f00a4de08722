// Opening a top-level session (05 §3.1).

import { JournalConflict } from '#protocol/batch.ts';
import type { SessionId } from '#protocol/ids.ts';
import type { Session } from '#protocol/session.ts';
import { NOTHING_YET, sessionView } from '../policy/session/session-view.ts';
import type { Write } from '../ports/journal.ts';
import { takeNotices } from './routing/route-environment.ts';
import type { SessionInput } from './session/new-session.ts';
import { createdEvent, newSession, openWorkspace } from './session/new-session.ts';
import type { Engine } from './state/engine.ts';
import { noteStart } from './state/session-starts.ts';

type Claim = (status: number, body: unknown) => Write;

/**
 * Opens a top-level session; the row and `session.created` commit together. Where the client has a session of that name, it is
 * that one.
 * Throws `not_found` (workspace), `workspace_not_allowed`, `model_not_configured`, `approval_mode_not_allowed`.
 */
export async function createSession(engine: Engine, input: SessionInput, claim?: Claim): Promise<Session> {
  const { client_ref: ref = null } = input;
  if (ref === null) return openNew(engine, input, claim);
  const known = await sessionOfClient(engine, ref, input.workspace_path);
  if (known !== null) return known;
  try {
    return await openNew(engine, input, claim);
  } catch (error) {
    if (!(error instanceof JournalConflict && error.code === 'client_known')) throw error;
    // Somebody else was faster.
    return (await sessionOfClient(engine, ref, input.workspace_path))!;
  }
}

/** The tree of the session that callers without a key know by this name. */
export async function clientTree(engine: Engine, ref: string): Promise<SessionId | null> {
  return (await engine.store.sessions.ofClient('', ref))?.id ?? null;
}

/** The session that callers without a key know by this name. What the gateway keeps without a workspace gets one. */
async function sessionOfClient(engine: Engine, ref: string, workspace: string): Promise<Session | null> {
  const record = await engine.store.sessions.ofClient('', ref);
  if (record === null) return null;
  if (record.ended_at === null && record.workspace_path === engine.gatewayFolder) {
    const workspace_path = await openWorkspace(engine, workspace);
    const at = engine.clock.now();
    const write: Write = { kind: 'session.set_workspace', session_id: record.id, workspace_path, at };
    await engine.journal.commit({ writes: [write], emit: [] });
  }
  return engine.store.sessions.view(record.id);
}

async function openNew(engine: Engine, input: SessionInput, claim?: Claim): Promise<Session> {
  const session = await newSession(engine, input);
  const view = sessionView(session, NOTHING_YET);
  await engine.journal.commit({
    writes: [{ kind: 'session.insert', session }, ...(claim ? [claim(201, view)] : [])],
    emit: [createdEvent(session), ...takeNotices(engine, session)],
  });
  noteStart(engine, session.id);
  // Its first turn finds them started.
  engine.tools.hold(session.workspace_path)();
  return view;
}
