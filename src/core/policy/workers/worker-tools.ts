// The tools of a named worker, and named workers as tools (09 §2, 13 §6).
import { type JsonSchema, REQUEST_CONTEXT, type ToolDefinition } from '#protocol/tool.ts';
import { type FoundWorker, STANDARD_POLICY, type WorkerDefinition } from '#protocol/worker/definition.ts';
import { ruleFor } from '../tools/approval.ts';
import { namesTool } from '../tools/tool-names.ts';

export interface NamedToolSet {
  /** Sorted by byte order. */
  readonly effective: string[];
  /** Names that its definition asks for and it must not have, and entries that name no tool, sorted. */
  readonly dropped_tools: string[];
  /** The entries among them that name no tool. */
  readonly unknown_tools: string[];
}

/**
 * What a session with a definition has: what its sandboxes and its file say, whoever called it.
 * @param session.registered all tools there are, those of the workers it may call among them
 * @param session.creatorTools of a worker that a model made and no person edited: what that model had
 */
export function namedTools(session: {
  readonly definition: WorkerDefinition;
  readonly registered: readonly ToolDefinition[];
  readonly isWorker: boolean;
  readonly creatorTools: readonly string[] | null;
}): NamedToolSet {
  const { definition, creatorTools } = session;
  const boxes = Object.values(definition.sandboxes);
  const asked = (name: string) => definition.tools.some((entry) => namesTool(entry, name));
  const wanted = (tool: ToolDefinition): boolean => {
    if (tool.file_access === 'read') return boxes.length > 0;
    if (tool.file_access === 'write') return boxes.some((box) => box.mode === 'rw');
    // They are there because it may call them.
    if (tool.spawns === 'worker_tool') return true;
    return asked(tool.name) && (creatorTools === null || creatorTools.includes(tool.name));
  };
  const permitted = (tool: ToolDefinition): boolean =>
    tool.name !== REQUEST_CONTEXT &&
    tool.spawns !== 'delegate' &&
    !(tool.planners_only && session.isWorker) &&
    ruleFor(definition.tool_rules, tool)?.allowed !== false;
  const effective = session.registered.filter((tool) => wanted(tool) && permitted(tool)).map(({ name }) => name);
  const dropped = session.registered.filter(
    ({ name }) => name !== REQUEST_CONTEXT && asked(name) && !effective.includes(name),
  );
  const unknown_tools = definition.tools.filter(
    (entry) => !session.registered.some(({ name }) => namesTool(entry, name)),
  );
  return {
    effective: [...effective, ...(session.isWorker ? [REQUEST_CONTEXT] : [])].sort(),
    dropped_tools: [...new Set([...dropped.map(({ name }) => name), ...unknown_tools])].sort(),
    unknown_tools: [...new Set(unknown_tools)].sort(),
  };
}

/** The tool by which a worker is called: what its callers see of it. */
export function workerTool(worker: FoundWorker & { readonly definition: WorkerDefinition }): ToolDefinition {
  const { name, definition } = worker;
  return {
    name,
    description: definition.description ?? `Delegate task to the '${name}' worker`,
    input_schema: workerInput(definition),
    side_effects: 'execute',
    requires_workspace: false,
    path_fields: [],
    // The worker's own clock bounds it.
    timeout_seconds: 0,
    spawns: 'worker_tool',
    restartable: true,
    group: 'worker.call',
  };
}

function workerInput(definition: WorkerDefinition): JsonSchema {
  const policy = definition.attachment_policy ?? STANDARD_POLICY;
  const attachments =
    policy.max_attachments === 0
      ? {}
      : { attachments: attachmentsSchema(policy.max_attachments, policy.allowed_suffixes) };
  return {
    type: 'object',
    additionalProperties: false,
    properties: { input: INPUT_SCHEMA, ...attachments },
    required: ['input'],
  };
}

export const INPUT_SCHEMA: JsonSchema = {
  type: 'string',
  minLength: 1,
  description: 'Everything the worker has to know: it sees nothing of this conversation.',
};

/** @param most how many are taken; null = as many as the worker takes */
export function attachmentsSchema(most: number | null, suffixes: readonly string[]): JsonSchema {
  const limit = most === null ? '' : ` At most ${most}.`;
  const kinds =
    suffixes.length === 0 ? '' : ` Only ${suffixes.map((s) => (s === '' ? 'names without a dot' : s)).join(', ')}.`;
  return {
    type: 'array',
    items: { type: 'string', minLength: 1 },
    description: `Paths of files to hand over.${limit}${kinds}`,
  };
}

/** `input_data` is `input`, and what is no text is written as JSON: what models give instead of a text (13 §6.1). */
export function plainInput(given: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const { input_data, ...rest } = given;
  const input = 'input' in given ? given.input : input_data;
  if (input === undefined) return given;
  if ('input' in given && 'input_data' in given) return given;
  return { ...rest, input: typeof input === 'string' ? input : JSON.stringify(sorted(input), null, 2) };
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.keys(value)
      .sort()
      .map((key) => [key, sorted((value as Record<string, unknown>)[key])]),
  );
}
