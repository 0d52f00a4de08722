// The skills of one session: its index was fixed when it began, a skill is read as it is now (10 §5.1, §5.4).

import { isIndexed } from '#core/policy/skills/skill-index.ts';
import type { SkillShelf } from '#core/ports/tool.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { ToolError } from '#protocol/tool.ts';
import type { Engine } from '../state/engine.ts';

export function skillShelf(engine: Engine, session: SessionRecord): SkillShelf {
  const { workspace_path: root, system_prompt } = session;
  const there = <T>(found: T | null, name: string): T => {
    if (found !== null) return found;
    const text = isIndexed(system_prompt, name)
      ? `skill '${name}' is no longer available`
      : `no skill registered with name '${name}'`;
    throw new ToolError('execution_error', text);
  };
  return {
    load: async (name) => there(await engine.workspaces.skill(root, name), name),
    file: async (name, path) => there(await engine.workspaces.skillFile(root, name, path), name),
  };
}
