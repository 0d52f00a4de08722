// The part of a prompt that may differ from call to call (10 §2).
import type { SessionRecord } from '#protocol/session.ts';
import type { Engine } from '../state/engine.ts';

/** The system text that may differ from call to call: a planner's memory as it is now, a worker's task; a definition has none (10 §2, §3.4). */
export async function volatilePrompt(engine: Engine, session: SessionRecord): Promise<string | null> {
  return session.is_worker || session.worker_definition !== null
    ? session.system_prompt_volatile
    : await engine.workspaces.memoryText(session.workspace_path);
}
