// Delegations of one message whose results are merged at once: each successful one waits for all others (20 §2.5).
import type { ToolUseId } from '#protocol/ids.ts';
import type { ToolUseBlock } from '#protocol/message.ts';
import type { ToolDefinition } from '#protocol/tool.ts';
import { Interrupted } from './concurrency.ts';

/** What became of one worker's changes. */
export interface AppliedTree {
  readonly applied: boolean;
  readonly conflicts: readonly string[];
}
/** Outcomes by call. */
export type AppliedTrees = ReadonlyMap<ToolUseId, AppliedTree>;

export interface ApplyGroup {
  /** Releases this slot while the call waits for the others, which may need it. */
  holdSlot(call: ToolUseId, release: () => void): void;
  /**
   * Waits until every other call has arrived or has its result, then runs `apply` once for all that arrived, in block
   * order. Throws `Interrupted` where another call was interrupted: the group is complete after the next start.
   */
  arrive(call: ToolUseId, apply: (arrived: readonly ToolUseId[]) => Promise<AppliedTrees>): Promise<AppliedTrees>;
  /** The call has its result, or none because of `thrown`. */
  leave(call: ToolUseId, thrown: unknown): void;
}

/** Open groups by call. */
export type ApplyGroups = Map<ToolUseId, ApplyGroup>;

/** @param calls in block order */
function createApplyGroup(calls: readonly ToolUseId[]): ApplyGroup {
  const slots = new Map<ToolUseId, () => void>();
  const arrived = new Set<ToolUseId>();
  const missing = new Set(calls);
  let interrupted: Interrupted | null = null;
  let outcome: Promise<AppliedTrees> | null = null;
  let markComplete = () => {};
  const completed = new Promise<void>((resolve) => {
    markComplete = resolve;
  });

  function strike(call: ToolUseId): void {
    missing.delete(call);
    if (missing.size === 0) markComplete();
  }
  return {
    holdSlot: (call, release) => void slots.set(call, release),
    async arrive(call, apply) {
      arrived.add(call);
      slots.get(call)?.();
      strike(call);
      await completed;
      if (interrupted !== null) throw interrupted;
      outcome ??= apply(calls.filter((id) => arrived.has(id)));
      return outcome;
    },
    leave(call, thrown) {
      if (thrown instanceof Interrupted) interrupted ??= thrown;
      strike(call);
    },
  };
}

/** Opens the group of calls that run at the same time. Those with a result already have left it. */
export function openApplyGroup(
  groups: ApplyGroups,
  calls: readonly ToolUseBlock[],
  {
    tools,
    results,
  }: {
    readonly tools: readonly Pick<ToolDefinition, 'name' | 'spawns'>[];
    readonly results: ReadonlyMap<ToolUseId, unknown>;
  },
): { close(): void } {
  const delegates = new Set(tools.filter(({ spawns }) => spawns !== undefined).map(({ name }) => name));
  const members = calls.filter(({ name, input }) => delegates.has(name) && input.apply === 'together');
  const ids = members.map(({ id }) => id);
  const group = createApplyGroup(ids);
  for (const id of ids) {
    groups.set(id, group);
    if (results.has(id)) group.leave(id, null);
  }
  return {
    close() {
      for (const id of ids) groups.delete(id);
    },
  };
}
