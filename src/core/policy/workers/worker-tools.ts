// The tools of a named worker, and named workers as tools (09 §2, 13 §6).

import { BACKGROUND, CONTINUED, ISOLATED } from '#protocol/delegate.ts';
import type { ModelEntry } from '#protocol/model.ts';
import { compareText } from '#protocol/text/compare-text.ts';
import { type JsonSchema, REQUEST_CONTEXT, type ToolDefinition } from '#protocol/tool.ts';
import { type FoundWorker, STANDARD_POLICY, type WorkerDefinition } from '#protocol/worker-definition.ts';
import { findToolRule } from '../tools/approval.ts';
import { namesTool, toolKey } from '../tools/tool-names.ts';

interface NamedToolSet {
  /** Sorted by byte order. */
  readonly effective: string[];
  /** Names that its definition asks for and it must not have, and entries that name no tool, sorted. */
  readonly dropped_tools: string[];
  /** The entries among them that name no tool. */
  readonly unknown_tools: string[];
}

/**
 * The tools of a session with a definition: those of its sandboxes and its file, independent of the caller.
 * @param session.registered all tools there are, those of the workers it may call among them
 * @param session.creatorTools of a worker that a model made and no person edited: what that model had
 */
export function selectNamedTools(session: {
  readonly definition: WorkerDefinition;
  readonly registered: readonly ToolDefinition[];
  readonly isWorker: boolean;
  readonly creatorTools: readonly string[] | null;
}): NamedToolSet {
  const { definition, creatorTools } = session;
  const boxes = Object.values(definition.sandboxes);
  const isRequested = (name: string) => definition.tools.some((entry) => namesTool(entry, name));
  const isWanted = (tool: ToolDefinition): boolean => {
    if (tool.file_access === 'read') return boxes.length > 0;
    if (tool.file_access === 'write') return boxes.some((box) => box.mode === 'rw');
    // Tools of named workers are registered only where the session may call them.
    if (tool.spawns === 'worker_tool') return true;
    return isRequested(tool.name) && (creatorTools === null || creatorTools.includes(tool.name));
  };
  const isPermitted = (tool: ToolDefinition): boolean =>
    tool.name !== REQUEST_CONTEXT &&
    tool.spawns !== 'delegate' &&
    !(tool.planners_only && session.isWorker) &&
    findToolRule(definition.tool_rules, tool)?.allowed !== false;
  const effective = session.registered.filter((tool) => isWanted(tool) && isPermitted(tool)).map(({ name }) => name);
  const dropped = session.registered.filter(
    ({ name }) => name !== REQUEST_CONTEXT && isRequested(name) && !effective.includes(name),
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
export function createWorkerTool(worker: FoundWorker & { readonly definition: WorkerDefinition }): ToolDefinition {
  const { name, definition } = worker;
  return {
    name,
    description: definition.description ?? `Delegate task to the '${name}' worker`,
    input_schema: createInputSchema(definition),
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

function createInputSchema(definition: WorkerDefinition): JsonSchema {
  const policy = definition.attachment_policy ?? STANDARD_POLICY;
  const properties: Record<string, JsonSchema> = {
    input: INPUT_SCHEMA,
    background: BACKGROUND,
    ...CONTINUED,
    ...ISOLATED,
  };
  if (policy.max_attachments !== 0)
    properties.attachments = attachmentsSchema(policy.max_attachments, policy.allowed_suffixes);
  return {
    type: 'object',
    additionalProperties: false,
    properties,
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
  const sentences = ['Paths of files to hand over.'];
  if (most !== null) sentences.push(`At most ${most}.`);
  const kinds = suffixes.map((suffix) => suffix || 'names without a dot');
  if (kinds.length > 0) sentences.push(`Only ${kinds.join(', ')}.`);
  return {
    type: 'array',
    items: { type: 'string', minLength: 1 },
    description: sentences.join(' '),
  };
}

/** `input_data` is `input`, and what is no text is written as JSON: what models give instead of a text (13 §6.1). */
export function normaliseInput(given: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const { input_data, ...rest } = given;
  if ('input' in given && 'input_data' in given) return given;
  const { input = input_data } = given;
  if (input === undefined) return given;
  if (typeof input === 'string') return { ...rest, input };
  return { ...rest, input: JSON.stringify(sortKeys(input), null, 2) };
}

function sortKeys(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sortKeys);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.keys(value)
      .sort()
      .map((key) => [key, sortKeys((value as Record<string, unknown>)[key])]),
  );
}

// Which tools a planner and a worker of `delegate` are offered (09 §2, 04 §3.2, 04 §11).

const DELEGATE = 'delegate';
/** A model's names that mean no tool: so many, of so many characters, are kept. */
const MAX_UNKNOWN = 100;
const MAX_NAME = 128;

type Named = Pick<ToolDefinition, 'name' | 'planners_only' | 'spawns' | 'creates_workers' | 'manages_workers'>;

/**
 * Whether a turn offers `delegate`, once its model is known.
 * @param depth of the session; `delegateDepth` is the first depth that may not
 * @param granted a worker's own names; null for a top-level session
 */
export function canDelegate(turn: {
  readonly depth: number;
  readonly delegateDepth: number;
  readonly model: Pick<ModelEntry, 'can_delegate' | 'capabilities'>;
  readonly granted: readonly string[] | null;
}): boolean {
  return (
    turn.depth < turn.delegateDepth &&
    turn.model.can_delegate &&
    turn.model.capabilities.supports_tools &&
    (turn.granted === null || turn.granted.includes(DELEGATE))
  );
}

/** Names a top-level session without a definition has, sorted by byte order. */
export function listPlannerTools(session: {
  readonly registered: readonly Named[];
  readonly offerDelegate: boolean;
}): string[] {
  return session.registered
    .map((tool) => tool.name)
    .filter((name) => name !== REQUEST_CONTEXT)
    .filter((name) => name !== DELEGATE || session.offerDelegate)
    .sort(compareText);
}

export interface WorkerToolSet {
  /** Sorted by byte order. */
  readonly effective: string[];
  /** Names asked for that a worker must not have or its planner lacks; without `allowed_tools` the planner's that it must not have; sorted. */
  readonly dropped_tools: string[];
  /** Distinct names asked for; null without `allowed_tools`. */
  readonly allowed_tool_count: number | null;
}

/**
 * The tools of a `delegate` worker: the tools of the calling turn, narrowed, without those reserved for planners.
 * @param allowed_tools null = all
 * @param mayDelegate whether the worker's depth is below `delegation.delegate_depth`
 * @param registered the tools of the server; those that call or make named workers are not inherited
 */
export function selectWorkerTools(call: {
  readonly plannerTools: readonly string[];
  readonly allowed_tools: readonly string[] | null;
  readonly mayDelegate: boolean;
  readonly registered: readonly Named[];
}): WorkerToolSet {
  const asked = call.allowed_tools === null ? null : new Map(call.allowed_tools.map((name) => [toolKey(name), name]));
  const registered = new Map(call.registered.map((tool) => [tool.name, tool]));
  const isForbidden = (name: string) => {
    const tool = registered.get(name);
    if (tool === undefined || tool.planners_only || tool.creates_workers) return true;
    if (tool.spawns === 'delegate' || tool.manages_workers) return !call.mayDelegate;
    return tool.spawns !== undefined;
  };

  const wanted = [...new Set(call.plannerTools)].filter(
    (name) => name !== REQUEST_CONTEXT && (asked === null || asked.has(toolKey(name))),
  );
  const found = new Set([REQUEST_CONTEXT, ...wanted].map(toolKey));
  const unknown = [...(asked ?? [])].filter(([key]) => !found.has(key)).map(([, name]) => name.slice(0, MAX_NAME));
  return {
    effective: [...wanted.filter((name) => !isForbidden(name)), REQUEST_CONTEXT].sort(compareText),
    dropped_tools: [...new Set([...wanted.filter(isForbidden), ...unknown.slice(0, MAX_UNKNOWN)])].sort(compareText),
    allowed_tool_count: asked?.size ?? null,
  };
}

/**
 * The tools of a worker that continues another one: those that one had, narrowed (20 §3).
 * @param allowed_tools null = all
 */
export function narrowWorkerTools(earlier: readonly string[], allowed_tools: readonly string[] | null): WorkerToolSet {
  if (allowed_tools === null) return { effective: [...earlier], dropped_tools: [], allowed_tool_count: null };
  const asked = new Map(allowed_tools.map((name) => [toolKey(name), name]));
  const effective = earlier.filter((name) => name === REQUEST_CONTEXT || asked.has(toolKey(name)));
  const found = new Set(effective.map(toolKey));
  const missing = [...asked].filter(([key]) => !found.has(key)).map(([, name]) => name.slice(0, MAX_NAME));
  return {
    effective,
    dropped_tools: [...new Set(missing.slice(0, MAX_UNKNOWN))].sort(compareText),
    allowed_tool_count: asked.size,
  };
}

/** Whether one of the tools writes files or runs commands. What `delegate` may do follows from the other tools. */
export function hasWritingTool(
  names: readonly string[],
  registered: readonly Pick<ToolDefinition, 'name' | 'side_effects' | 'spawns'>[],
): boolean {
  return registered.some(
    ({ name, side_effects, spawns }) =>
      names.includes(name) && spawns !== 'delegate' && (side_effects === 'write' || side_effects === 'execute'),
  );
}
