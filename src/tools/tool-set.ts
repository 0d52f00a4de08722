// Tools by name: each registered once, its input schema compiled once, made fresh for every call (09 §1, §3).

import type { ToolFactory, ToolSet } from '#core/ports/tool.ts';
import { type Issue, StartupError } from '#protocol/errors.ts';
import { REQUEST_CONTEXT, TOOL_NAME_PATTERN, type ToolDefinition } from '#protocol/tool.ts';
import { schemaCompiler, validatorOnUse } from './schema.ts';

interface Registration {
  readonly definition: ToolDefinition;
  readonly validate: (value: unknown) => readonly Issue[];
  readonly factory: ToolFactory;
}

/**
 * Registers all tools, or none: a bad name, a duplicate or a schema that breaks the rule throws
 * `StartupError('invalid_tool')` with one line per problem that names the tool and the path.
 * @param shipped schemas that this program's tests have proven: each is compiled when its tool is first called
 */
export function createToolSet(factories: readonly ToolFactory[], { shipped = false } = {}): ToolSet {
  const tools = new Map<string, Registration>();
  const problems: string[] = [];
  for (const factory of factories) {
    const { definition } = factory();
    const { name } = definition;
    const compiled = shipped
      ? ({ ok: true, validate: validatorOnUse(definition.input_schema) } as const)
      : schemaCompiler.compile(definition.input_schema);
    if (name !== REQUEST_CONTEXT && !TOOL_NAME_PATTERN.test(name)) {
      problems.push(`tool ${JSON.stringify(name)}: name: must match ${TOOL_NAME_PATTERN.source}`);
    } else if (tools.has(name)) {
      problems.push(`tool "${name}": name: is registered twice`);
    } else if (compiled.ok) {
      tools.set(name, { definition, validate: compiled.validate, factory });
    } else {
      problems.push(
        ...compiled.problems.map(({ path, message }) => `tool "${name}": input_schema.${path}: ${message}`),
      );
    }
  }
  if (problems.length > 0) throw new StartupError('invalid_tool', problems);

  // Names are ASCII, so code unit order is byte order.
  const definitions = [...tools.keys()].sort().map((name) => registered(name).definition);
  function registered(name: string): Registration {
    const tool = tools.get(name);
    if (tool === undefined) throw new Error(`no tool named ${name}`);
    return tool;
  }
  return {
    definitions: () => definitions,
    definition: (name) => tools.get(name)?.definition ?? null,
    validate: (name, input) => registered(name).validate(input),
    create: (name) => registered(name).factory(),
  };
}
