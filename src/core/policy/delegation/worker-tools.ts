// Which tools a planner and a worker of `delegate` are offered (09 §2, 04 §3.2, 04 §11).
import type { ModelEntry } from '#protocol/model.ts';
import { REQUEST_CONTEXT, type ToolDefinition } from '#protocol/tool.ts';
import { toolKey } from '../tools/tool-names.ts';

export const DELEGATE = 'delegate';
/** A model's names that mean no tool: so many, of so many characters, are kept. */
const MAX_UNKNOWN = 100;
const MAX_NAME = 128;

type Named = Pick<ToolDefinition, 'name' | 'planners_only' | 'spawns' | 'creates_workers'>;

/**
 * Whether a turn offers `delegate`, once its model is known.
 * @param depth of the session; `delegateDepth` is the first depth that may not
 * @param granted a worker's own names; null for a top-level session
 */
export function offersDelegate(turn: {
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
export function plannerTools(session: {
  readonly registered: readonly Named[];
  readonly offerDelegate: boolean;
}): string[] {
  return session.registered
    .map((tool) => tool.name)
    .filter((name) => name !== REQUEST_CONTEXT)
    .filter((name) => name !== DELEGATE || session.offerDelegate)
    .sort(byteOrder);
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
 * What a worker of `delegate` gets: the planner's set of the calling turn, narrowed, less what only planners have.
 * @param allowed_tools null = all
 * @param mayDelegate whether the worker's depth is below `delegation.delegate_depth`
 * @param registered the tools of the server; those that call or make named workers are not inherited
 */
export function workerTools(call: {
  readonly plannerTools: readonly string[];
  readonly allowed_tools: readonly string[] | null;
  readonly mayDelegate: boolean;
  readonly registered: readonly Named[];
}): WorkerToolSet {
  const asked = call.allowed_tools === null ? null : new Map(call.allowed_tools.map((name) => [toolKey(name), name]));
  const registered = new Map(call.registered.map((tool) => [tool.name, tool]));
  const forbidden = (name: string) => {
    const tool = registered.get(name);
    if (tool === undefined || tool.planners_only || tool.creates_workers) return true;
    return tool.spawns === 'delegate' ? !call.mayDelegate : tool.spawns !== undefined;
  };

  const wanted = [...new Set(call.plannerTools)].filter(
    (name) => name !== REQUEST_CONTEXT && (asked === null || asked.has(toolKey(name))),
  );
  const found = new Set([REQUEST_CONTEXT, ...wanted].map(toolKey));
  const unknown = [...(asked ?? [])].filter(([key]) => !found.has(key)).map(([, name]) => name.slice(0, MAX_NAME));
  return {
    effective: [...wanted.filter((name) => !forbidden(name)), REQUEST_CONTEXT].sort(byteOrder),
    dropped_tools: [...new Set([...wanted.filter(forbidden), ...unknown.slice(0, MAX_UNKNOWN)])].sort(byteOrder),
    allowed_tool_count: asked?.size ?? null,
  };
}

// Tool names are ASCII, where the order of UTF-16 units is the order of bytes.
function byteOrder(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
