// The system text of a new session with a definition, made once (10 §3.4).

import { namedPrompt } from '#core/policy/context/named-prompt.ts';
import { skillIndex } from '#core/policy/skills/skill-index.ts';
import type { CalledWorker } from '#protocol/delegate.ts';
import type { Engine } from '../state/engine.ts';

export async function newNamedPrompt(
  engine: Engine,
  root: string,
  called: Pick<CalledWorker, 'instructions' | 'definition'>,
  { worker, readsSkills }: { readonly worker: boolean; readonly readsSkills: boolean },
): Promise<string> {
  return namedPrompt({
    instructions: called.instructions,
    sandboxes: called.definition.sandboxes,
    worker,
    skills: readsSkills ? skillIndex(await engine.workspaces.skills(root)) : null,
  });
}
