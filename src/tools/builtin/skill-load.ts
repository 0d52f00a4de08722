// skill_load: instructions that a model reads when it needs them (10 §5.4).

import type { ToolFactory } from '#core/ports/tool.ts';
import { toolText } from '#protocol/tool.ts';
import { define, inputSchema, nothingToCancel } from './definition.ts';

const definition = define({
  name: 'skill_load',
  description:
    'Reads a skill: instructions for a kind of task, listed by name in your instructions. Read it before you begin such a task. With file it reads a file that the skill mentions.',
  side_effects: 'read',
  requires_workspace: false,
  path_fields: [],
  loads_skills: true,
  input_schema: inputSchema(
    {
      name: { type: 'string', minLength: 1, maxLength: 64, description: 'Name of the skill.' },
      file: { type: 'string', minLength: 1, description: 'Text file, relative to the folder of the skill.' },
    },
    ['name'],
  ),
});

export const skillLoad: ToolFactory = () => ({
  definition,
  cancel: nothingToCancel,
  async execute(input, { skills }) {
    const name = input.name as string;
    if (input.file !== undefined) return toolText(await skills.file(name, input.file as string));
    const skill = await skills.load(name);
    return toolText(`# Skill: ${skill.name} (source: ${skill.source})\n\n${skill.body}`, {
      skill_loaded: {
        skill_id: skill.name,
        skill_version: skill.version,
        load_size_tokens: skill.estimated_body_tokens,
        source: skill.source,
      },
    });
  },
});
