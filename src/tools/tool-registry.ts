// The tools of a workspace: built-in tools, tools of its MCP servers, and named workers (09 §1, §2, 13 §6.1).

import { namesTool } from '#core/policy/tools/tool-names.ts';
import { normaliseInput } from '#core/policy/workers/worker-tools.ts';
import type { Tool, ToolFactory, ToolRegistry, ToolSet } from '#core/ports/tool-port.ts';
import { type Issue, StartupError } from '#protocol/errors.ts';
import { compareText } from '#protocol/text/compare-text.ts';
import { REQUEST_CONTEXT, TOOL_NAME_PATTERN, type ToolDefinition, ToolError } from '#protocol/tool.ts';
import type { Mcp } from './mcp-client/workspace-servers.ts';
import { createLazyValidator, schemaCompiler } from './schema-compiler.ts';

// A named worker as a tool. The spawner resolves the worker (13 §6.1).

function createWorkerTool(definition: ToolDefinition) {
  const factory = (): Tool => ({
    definition,
    plain: normaliseInput,
    // The signal of the call reaches the worker's turn.
    cancel: async () => false,
    check: async (input, { spawner }) => spawner?.check(input) ?? [],
    shares: async (input, { spawner }) => spawner?.shares(input) ?? [],
    async execute(input, { spawner }) {
      if (spawner === null) throw new ToolError('permission_denied', 'this session cannot call workers');
      return spawner.spawn(input);
    },
  });
  return { definition, validate: createLazyValidator(definition.input_schema), factory };
}

/** A tool that some workspaces or sessions have in addition to the built-in tools. */
interface AddedTool {
  readonly definition: ToolDefinition;
  readonly validate: (value: unknown) => readonly Issue[];
  readonly factory: ToolFactory;
}

/**
 * @param mcp null = no MCP server is configured: every workspace has the built-in tools, and no turn waits for more
 * @param disabled names, or prefixes with a final `*`, of tools that no turn gets, including turns from before a restart
 */
export function createToolRegistry(builtin: ToolSet, mcp: Mcp | null, disabled: readonly string[]): ToolRegistry {
  const own = disabled.length === 0 ? builtin : removeDisabled(builtin, disabled);
  const withWorkers = (toolset: ToolSet, workers: readonly ToolDefinition[]) =>
    mergeTools(toolset, workers.filter(({ name }) => !isDisabled(name, disabled)).map(createWorkerTool));
  if (mcp === null)
    return { resolveTools: () => own, knownTools: () => own, problems: () => [], hold: () => () => {}, withWorkers };
  const withMcp = (tools: readonly AddedTool[]) =>
    mergeTools(
      own,
      tools.filter(({ definition }) => !isDisabled(definition.name, disabled)),
    );
  return {
    resolveTools: async (workspace) => withMcp(await mcp.tools(workspace)),
    knownTools: (workspace) => withMcp(mcp.knownTools(workspace)),
    problems: mcp.problems,
    hold: mcp.hold,
    withWorkers,
  };
}

function isDisabled(name: string, disabled: readonly string[]): boolean {
  // A worker without this tool would have to guess.
  if (name === REQUEST_CONTEXT) return false;
  return disabled.some((entry) => namesTool(entry, name));
}

function removeDisabled(tools: ToolSet, disabled: readonly string[]): ToolSet {
  const definitions = tools.definitions().filter(({ name }) => !isDisabled(name, disabled));
  return {
    ...tools,
    definitions: () => definitions,
    definition: (name) => {
      if (isDisabled(name, disabled)) return null;
      return tools.definition(name);
    },
  };
}

function mergeTools(builtin: ToolSet, more: readonly AddedTool[]): ToolSet {
  if (more.length === 0) return builtin;
  const added = new Map(more.map((tool) => [tool.definition.name, tool]));
  // Names are ASCII, so code unit order is byte order.
  const definitions: readonly ToolDefinition[] = [
    ...builtin.definitions(),
    ...more.map(({ definition }) => definition),
  ].sort((a, b) => compareText(a.name, b.name));
  return {
    definitions: () => definitions,
    definition: (name) => added.get(name)?.definition ?? builtin.definition(name),
    validate: (name, input) => added.get(name)?.validate(input) ?? builtin.validate(name, input),
    create: (name) => added.get(name)?.factory() ?? builtin.create(name),
  };
}

// Tools by name: each registered once, its input schema compiled once, made fresh for every call (09 §1, §3).

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
      ? ({ ok: true, validate: createLazyValidator(definition.input_schema) } as const)
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
  const definitions = [...tools.keys()].sort().map((name) => findRegistration(name).definition);
  function findRegistration(name: string): Registration {
    const tool = tools.get(name);
    if (tool === undefined) throw new Error(`no tool named ${name}`);
    return tool;
  }
  return {
    definitions: () => definitions,
    definition: (name) => tools.get(name)?.definition ?? null,
    validate: (name, input) => findRegistration(name).validate(input),
    create: (name) => findRegistration(name).factory(),
  };
}
