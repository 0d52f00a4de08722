// Which tools a planner and a worker of `delegate` are offered (09 §2, 04 §3.2, 04 §11).
import type { ModelEntry } from '../../domain/model.ts';
import { REQUEST_CONTEXT, type ToolDefinition } from '../../domain/tool.ts';

export const DELEGATE = 'delegate';

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
  /** Names asked for that a worker must not have, sorted. */
  readonly dropped_tools: string[];
  /** Distinct names asked for; 0 when nothing was asked. */
  readonly allowed_tool_count: number;
}

/**
 * What a worker of `delegate` gets: the planner's set of the calling turn, narrowed, less what only planners have.
 * @param allowed_tools null = all; names that the planner lacks are ignored
 * @param mayDelegate whether the worker's depth is below `delegation.delegate_depth`
 * @param registered the tools of the server; those that call or make named workers are not inherited
 */
export function workerTools(call: {
  readonly plannerTools: readonly string[];
  readonly allowed_tools: readonly string[] | null;
  readonly mayDelegate: boolean;
  readonly registered: readonly Named[];
}): WorkerToolSet {
  const asked = call.allowed_tools === null ? null : new Set(call.allowed_tools);
  const registered = new Map(call.registered.map((tool) => [tool.name, tool]));
  const forbidden = (name: string) => {
    const tool = registered.get(name);
    if (tool === undefined || tool.planners_only || tool.creates_workers) return true;
    return tool.spawns === 'delegate' ? !call.mayDelegate : tool.spawns !== undefined;
  };

  const wanted = [...new Set(call.plannerTools)].filter(
    (name) => name !== REQUEST_CONTEXT && (asked === null || asked.has(name)),
  );
  return {
    effective: [...wanted.filter((name) => !forbidden(name)), REQUEST_CONTEXT].sort(byteOrder),
    dropped_tools: asked === null ? [] : wanted.filter(forbidden).sort(byteOrder),
    allowed_tool_count: asked?.size ?? 0,
  };
}

// Tool names are ASCII, where the order of UTF-16 units is the order of bytes.
function byteOrder(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
