// Tools for memory files (memory_add, memory_replace, memory_consolidate) and for skills (skill_load) (10 §4.3, §5.4).
import { editMemory, type MemoryEdit, memoryAnswer } from '#core/policy/context/memory-files.ts';
import type { ToolContext, ToolFactory, ToolInput } from '#core/ports/tool-port.ts';
import type { MemoryFile, MemoryWrite } from '#protocol/event/session-events.ts';
import { type JsonSchema, ToolError, type ToolOutput, toolText } from '#protocol/tool.ts';
import { cancelNothing, defineTool, inputSchema } from './common.ts';

const FILE: JsonSchema = {
  type: 'string',
  enum: ['MEMORY.md', 'USER.md'],
  description: 'MEMORY.md: facts about this workspace. USER.md: facts about the person you work for.',
};

export const memoryAdd = memoryTool({
  name: 'memory_add',
  description:
    'Adds one entry at the end of a memory file, which later sessions of this workspace read. For what stays true and cannot be seen in the code; a line or two.',
  fields: {
    entry: { type: 'string', minLength: 1, description: 'The text of the entry, such as "- Tests need a database".' },
  },
  edit: (input) => ({ operation: 'add', entry: input.entry as string }),
});

export const memoryReplace = memoryTool({
  name: 'memory_replace',
  description:
    'Replaces a text in a memory file, e.g. a fact that has changed. The old text must occur exactly once; both are taken literally.',
  fields: {
    old: { type: 'string', description: 'The text to replace, exactly as it occurs in the file.' },
    new: { type: 'string', description: 'The text to put in its place; empty removes it.' },
  },
  edit: (input) => ({ operation: 'replace', old: input.old as string, new: input.new as string }),
});

export const memoryConsolidate = memoryTool({
  name: 'memory_consolidate',
  description:
    'Replaces the whole content of a memory file, e.g. with a shorter version of the same facts when it has grown too large.',
  fields: { content: { type: 'string', description: 'The complete new content; empty clears the file.' } },
  edit: (input) => ({ operation: 'consolidate', content: input.content as string }),
});

function memoryTool(given: {
  readonly name: string;
  readonly description: string;
  readonly fields: Readonly<Record<string, JsonSchema>>;
  edit(input: ToolInput): MemoryEdit;
}): ToolFactory {
  const definition = defineTool({
    name: given.name,
    description: given.description,
    side_effects: 'write',
    // The file is an enum value, not a path: no other file is reachable.
    path_fields: [],
    memory_field: 'file',
    planners_only: true,
    input_schema: inputSchema({ file: FILE, ...given.fields }, ['file', ...Object.keys(given.fields)]),
  });
  return () => ({
    definition,
    cancel: cancelNothing,
    execute: (input, context) => changeMemory(input.file as MemoryFile, given.edit(input), context),
  });
}

async function changeMemory(file: MemoryFile, edit: MemoryEdit, context: ToolContext): Promise<ToolOutput> {
  if (context.memory === null) throw new ToolError('execution_error', 'a worker has no memory files to write');
  const { operation } = edit;
  const written: MemoryWrite = await context.memory.change({
    file,
    next(before) {
      context.signal.throwIfAborted();
      const edited = editMemory(file, before, edit);
      if (!edited.ok) throw new ToolError('execution_error', edited.error);
      return edited.value;
    },
    notify: (change) => context.emit({ type: 'memory.updated', payload: { file, operation, ...change } }),
  });
  const { text, over_soft_cap } = memoryAnswer(file, operation, written);
  return toolText(text, {
    metadata: { file, operation, ...written, over_soft_cap },
    files_modified: [`.metis/${file}`],
  });
}

const skillLoadDefinition = defineTool({
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
  definition: skillLoadDefinition,
  cancel: cancelNothing,
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
