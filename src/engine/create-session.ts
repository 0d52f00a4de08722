// Opening a top-level session (05 §3.1).

import type { Session } from '../domain/session.ts';
import { NOTHING_YET, sessionView } from '../policy/session/session-view.ts';
import type { Write } from '../ports/journal.ts';
import { takeNotices } from './routing/route-environment.ts';
import type { SessionInput } from './session/new-session.ts';
import { createdEvent, newSession } from './session/new-session.ts';
import type { Engine } from './state/engine.ts';
import { noteStart } from './state/session-starts.ts';

type Claim = (status: number, body: unknown) => Write;

/**
 * Opens a top-level session; the row and `session.created` commit together.
 * Throws `not_found` (workspace), `workspace_not_allowed`, `model_not_configured`, `approval_mode_not_allowed`.
 */
export async function createSession(engine: Engine, input: SessionInput, claim?: Claim): Promise<Session> {
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
