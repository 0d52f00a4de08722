// The stable system text of a new session, made from its workspace once (10 §2).

import { stablePrompt } from '#core/policy/context/system-prompt.ts';
import { skillIndex } from '#core/policy/skills/skill-index.ts';
import type { SessionRecord } from '#protocol/session.ts';
import type { Engine } from '../state/engine.ts';
import { baseTools } from './offered-tools.ts';

/** @param granted for a worker: the names of its delegation. Who cannot read a skill is told of none. */
export async function newStablePrompt(
  engine: Engine,
  session: Pick<SessionRecord, 'workspace_path' | 'is_worker' | 'worker_definition'>,
  granted: readonly string[] | null,
): Promise<string | null> {
  const { config, workspaces } = engine;
  const { workspace_path: root, is_worker: worker } = session;
  const tools = baseTools(session, { toolset: engine.tools.knownTools(root), granted });
  const readsSkills = tools.some((tool) => tool.loads_skills);
  return stablePrompt({
    base: config.context.base_system_prompt,
    instructions: await workspaces.instructions(root, config.context.project_instruction_files),
    worker,
    memory: worker ? await workspaces.memoryText(root) : null,
    skills: readsSkills ? skillIndex(await workspaces.skills(root)) : null,
  });
}
